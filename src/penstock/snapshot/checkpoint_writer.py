"""One slot's part of one checkpoint on its way to a data file: parts come while the checkpoint is still being recorded.

::

    CheckpointWriter -> (refer_to | add_inflight | add_capture)* -> finish
                                                                 \\-> abandon, at any time

Sections are appended as parts come; the order in which rows are restored is made up at the end, from the rule of
``Captured``, over all parts and over what is only referred to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import ProtocolViolation
from penstock.graph.keygroups import owned_range
from penstock.graph.model import JobGraph
from penstock.ids import ChannelId, CheckpointId, GenerationId, SubtaskId
from penstock.protocol.elements import Captured, Side
from penstock.snapshot.handover import SubtaskCapture
from penstock.snapshot.inflight_index import NOTHING, Fresh, InflightIndex, Piece
from penstock.snapshot.model import CaptureMetrics, InflightEntry, SlotManifest, StateEntry, SubtaskManifest
from penstock.snapshot.sections import Metadata, SectionWriter, data_path
from penstock.snapshot.store import Store
from penstock.state.capture import TableCapture

BASE = "base"
BUFFER_ID = "buffer"
BUFFER_OFFSET = "offset"
"""Custom metadata of an in-flight batch: the identity of the buffer it was cut from, and at which of its rows."""

INFLIGHT_SECTION_BYTES = 1 << 20
"""An in-flight section holds no more, or one buffer. Sections are read whole, and what is being loaded has to fit into
the part of a gate's budget that is kept for it."""


class _Lane(NamedTuple):
    """What is restored in one go at its consumer: one channel's rows of one layer that waited on one side."""

    layer: int
    producer_side: bool
    channel: ChannelId

    @property
    def side(self) -> Side:
        return Side.PRODUCER if self.producer_side else Side.CONSUMER

    def __str__(self) -> str:
        return f"{self.channel}/{self.side.value}/{self.layer}"


@dataclass
class _Part:
    """What is known of one subtask so far; no rows. ``manifest``: without in-flight entries; None until its capture."""

    manifest: SubtaskManifest | None = None
    metrics: CaptureMetrics | None = None
    carried: Sequence[InflightEntry] = ()
    lanes: dict[_Lane, list[Piece]] = field(default_factory=dict)
    sections: int = 0
    inflight_bytes: int = 0
    inflight_rows: int = 0
    persisted_bytes: int = 0


class CheckpointWriter:
    """Writes one data file; owned by one thread, which it may block for as long as the store does.

    Args:
        base: what may be referred to instead of written; see ``refer_to``.
        compression: see ``SectionWriter``.

    Raises:
        CheckpointFailed: (every method but ``abandon``) the store is full or fails. Nothing of the file stays, and the
            writer can only be abandoned.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: GenerationId,
        checkpoint: CheckpointId,
        slot: int,
        base: InflightIndex = NOTHING,
        compression: str | None = None,
    ) -> None:
        self._graph = graph
        self._slot = slot
        self._prefix = f"g{generation}/c{checkpoint}"
        self._base = base
        self._file = SectionWriter(store, data_path(generation, checkpoint, slot), compression)
        self._parts: dict[SubtaskId, _Part] = {}
        self._index = NOTHING

    @property
    def captures(self) -> int:
        """How many subtasks' captures are here."""
        return sum(part.manifest is not None for part in self._parts.values())

    def refer_to(self, base: InflightIndex) -> None:
        """Rows of this index need not be written from here on. It must be of a checkpoint that is complete and stays
        until this one ends; barriers may be faster than the trigger that tells it."""
        self._base = base

    def add_inflight(self, subtask: SubtaskId, captured: Iterable[Captured]) -> None:
        """Append a part of what a subtask recorded: before its capture, in any order and number."""
        part = self._part(subtask)
        by_lane: dict[_Lane, list[Captured]] = {}
        for rows in captured:
            if rows.rows:
                lane = _Lane(rows.layer, rows.side is Side.PRODUCER, rows.channel)
                by_lane.setdefault(lane, []).append(rows)
                part.inflight_bytes += rows.cost
                part.inflight_rows += rows.rows
        for lane, recorded in sorted(by_lane.items(), key=lambda item: item[0]):
            self._add_to(lane, subtask, part, recorded)

    def add_capture(self, capture: SubtaskCapture) -> None:
        """Append the last part of a subtask, its state with it."""
        self.add_inflight(capture.subtask, capture.inflight)
        part = self._part(capture.subtask)
        part.manifest = SubtaskManifest(
            vertex=capture.subtask.vertex,
            index=capture.subtask.index,
            states=[
                self._state(capture.subtask, operator_id, table, captured)
                for operator_id, state in capture.operators.items()
                for table, captured in state.tables.items()
            ],
            scalars={op: dict(state.scalars) for op, state in capture.operators.items() if state.scalars},
            splits=list(capture.splits),
            channel_watermarks={f"{c.edge}:{c.producer}": us for c, us in sorted(capture.channel_watermarks.items())},
            pending_messages=dict(sorted(capture.pending_messages.items())),
            rows_in=capture.rows_in,
            inherited_messages=list(capture.inherited_messages),
        )
        part.metrics = capture.metrics
        part.carried = capture.carried

    def finish(self) -> SlotManifest:
        """Make everything durable. Every subtask of which there is a part must have been captured.

        Raises:
            ProtocolViolation: a row was captured twice.
        """
        manifest = SlotManifest(self._slot, [], [])
        for subtask, part in sorted(self._parts.items()):
            if part.manifest is None or part.metrics is None:
                raise ProtocolViolation(f"checkpoint {self._prefix}", f"{subtask} not captured", "finish")
            inflight = [*part.carried, *self._entries(part)]
            manifest.subtasks.append(msgspec.structs.replace(part.manifest, inflight=inflight))
            manifest.metrics.append(_metrics(part.manifest, part.metrics, part))
        lanes = [pieces for part in self._parts.values() for pieces in part.lanes.values()]
        self._index = InflightIndex(piece for pieces in lanes for piece in pieces)
        self._file.close()
        return manifest

    @property
    def index(self) -> InflightIndex:
        """After ``finish``: where the rows of this checkpoint lie, for those whose base it will be."""
        return self._index

    def abandon(self) -> None:
        """Remove the file. Also after ``finish``, as long as nobody was given the manifest; best effort then."""
        self._file.abandon()
        self._parts.clear()

    # -- sections -------------------------------------------------------------------------------------------------

    def _part(self, subtask: SubtaskId) -> _Part:
        return self._parts.setdefault(subtask, _Part())

    def _add_to(self, lane: _Lane, subtask: SubtaskId, part: _Part, recorded: list[Captured]) -> None:
        pieces = part.lanes.setdefault(lane, [])
        section: list[Fresh] = []
        section_bytes = 0
        for captured in sorted(recorded, key=_position):
            for found in self._base.split(captured):
                if isinstance(found, Piece):
                    pieces.append(found)
                    continue
                if section and section_bytes + found.cost > INFLIGHT_SECTION_BYTES:
                    pieces += self._inflight_section(lane, subtask, part, section)
                    section, section_bytes = [], 0
                section.append(found)
                section_bytes += found.cost
        if section:
            pieces += self._inflight_section(lane, subtask, part, section)

    def _inflight_section(self, lane: _Lane, subtask: SubtaskId, part: _Part, content: Sequence[Fresh]) -> list[Piece]:
        batches = [_batch(fresh) for fresh in content]
        part.sections += 1
        identity = f"{self._prefix}/{subtask}/inflight/{lane}/{part.sections}"
        section = self._file.append(identity, batches[0][0].schema, batches)
        part.persisted_bytes += section.length
        pieces, row = [], 0
        for fresh in content:
            pieces.append(Piece(fresh.captured.buffer.id, fresh.offset, fresh.rows, fresh.cost, section, row))
            row += fresh.rows
        return pieces

    def _state(self, subtask: SubtaskId, operator_id: str, table: str, captured: TableCapture) -> StateEntry:
        identity = f"{self._prefix}/{subtask}/state/{operator_id}/{table}"
        batches = list(captured.base(0, self._graph.max_parallelism - 1))
        section = self._file.append(identity, captured.schema, [(batch, None) for batch in batches])
        first, last = (batches[0].column(0)[0].as_py(), batches[-1].column(0)[-1].as_py()) if batches else (0, -1)
        return StateEntry(operator_id, table, BASE, captured.rows, first, last, section)

    # -- the manifest ---------------------------------------------------------------------------------------------

    def _entries(self, part: _Part) -> list[InflightEntry]:
        """In restore order; rows that lie one behind the other in a section are one entry."""
        entries: list[InflightEntry] = []
        for lane, pieces in sorted(part.lanes.items(), key=lambda item: item[0]):
            first = len(entries)
            for piece in sorted(pieces, key=lambda p: (p.buffer.seq, p.offset)):
                before = entries[-1] if len(entries) > first else None
                if before and before.section == piece.section and before.row_start + before.rows == piece.row_start:
                    entries[-1] = msgspec.structs.replace(before, rows=before.rows + piece.rows)
                else:
                    entries.append(self._entry(lane, piece))
        return entries

    def _entry(self, lane: _Lane, piece: Piece) -> InflightEntry:
        groups_first, groups_last = key_groups_of(self._graph, lane.channel)
        return InflightEntry(
            layer=lane.layer,
            edge=lane.channel.edge,
            producer=lane.channel.producer,
            consumer=lane.channel.consumer,
            side=lane.side.value,
            row_start=piece.row_start,
            rows=piece.rows,
            key_group_first=groups_first,
            key_group_last=groups_last,
            section=piece.section,
        )


def key_groups_of(graph: JobGraph, channel: ChannelId) -> tuple[int, int]:
    """The key groups for which rows can lie on a channel, both inclusive: the consumer's on a keyed edge, else all."""
    if graph.edge(channel.edge).keyed:
        return owned_range(channel.consumer, graph.parallelism, graph.max_parallelism)
    return 0, graph.max_parallelism - 1


def _position(captured: Captured) -> tuple[int, int]:
    return captured.buffer.id.seq, captured.offset


def _batch(fresh: Fresh) -> tuple[pa.RecordBatch, Metadata]:
    buffer = fresh.captured.buffer
    rows: pa.RecordBatch = buffer.payload.slice(fresh.offset, fresh.rows)
    return rows, {BUFFER_ID: str(buffer.id), BUFFER_OFFSET: str(fresh.offset)}


def _metrics(manifest: SubtaskManifest, metrics: CaptureMetrics, part: _Part) -> CaptureMetrics:
    return msgspec.structs.replace(
        metrics,
        inflight_bytes=part.inflight_bytes,
        inflight_persisted_bytes=part.persisted_bytes,
        inflight_rows=part.inflight_rows,
        state_bytes=sum(entry.section.length for entry in manifest.states),
    )
