"""One slot's part of one checkpoint on its way to data files: parts come while the checkpoint is still being recorded.

::

    CheckpointWriter -> (refer_to | add_inflight | add_capture)* -> finish
                                                                 \\-> abandon, at any time

Sections are appended as parts come; the order in which in-flight rows are restored is made up at the end, from the rule
of ``Captured``, over all parts and over what is only referred to. State has a file of its own: see ``state_path``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import ProtocolViolation
from penstock.model.elements import Captured, Side
from penstock.model.ids import ChannelId, CheckpointId, GenerationId, SubtaskId
from penstock.model.job_graph import EdgeKind, JobGraph
from penstock.model.key_groups import owned_range
from penstock.model.manifest import CaptureMetrics, InflightEntry, SlotManifest, StateEntry, SubtaskManifest
from penstock.snapshots.format.sections import Metadata, SectionWriter, data_path, state_path
from penstock.snapshots.restoring.local_state import KeptTable
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.base_index import NO_BASE, BaseIndex
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.snapshots.writing.inflight_index import Fresh, InflightIndex, Piece
from penstock.snapshots.writing.state_index import TableId, stored_bytes
from penstock.snapshots.writing.state_sections import WHOLE_BYTES, StateWriter
from penstock.state.hashing import key_groups

BUFFER_ID = "buffer"
BUFFER_OFFSET = "offset"
"""Custom metadata of an in-flight batch: the identity of the buffer it was cut from, and at which of its rows."""

INFLIGHT_SECTION_BYTES = 1 << 20
"""An in-flight section holds no more, or one buffer. Sections are read whole, and what is being loaded has to fit into
the part of a gate's budget that is kept for it."""
HASHED_AT_ONCE = 1_024
"""Rows. This many rows with different keys have all key groups of a channel; then no others are hashed."""


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
    state_bytes: int = 0
    state_rows: dict[str, int] = field(default_factory=dict)


class CheckpointWriter:
    """Writes the data files; owned by one thread, which it may block for as long as the store does.

    Args:
        base: what may be referred to instead of written; see ``refer_to``.
        compression: see ``SectionWriter``.
        whole_bytes: see ``StateWriter``.
        keep: tables shall be able to go back to what is written here.

    Attributes:
        kept: the way back to the tables written so far, if they are kept; whoever takes over the checkpoint has it.

    Raises:
        CheckpointFailed: (every method but ``abandon``) the store is full or fails; the writer can only be abandoned.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: GenerationId,
        checkpoint: CheckpointId,
        slot: int,
        base: BaseIndex = NO_BASE,
        compression: str | None = None,
        whole_bytes: int = WHOLE_BYTES,
        keep: bool = False,
    ) -> None:
        self.kept: dict[TableId, KeptTable] = {}
        self._keep = keep
        self._graph = graph
        self._slot = slot
        self._prefix = f"g{generation}/c{checkpoint}"
        self._base = base
        self._file = SectionWriter(store, data_path(generation, checkpoint, slot), compression)
        self._state_file = SectionWriter(store, state_path(generation, checkpoint, slot), compression)
        self._states = StateWriter(self._state_file, self._prefix, graph.max_parallelism, whole_bytes)
        self._parts: dict[SubtaskId, _Part] = {}
        self._index = NO_BASE

    @property
    def captures(self) -> int:
        """How many subtasks' captures are here."""
        return sum(part.manifest is not None for part in self._parts.values())

    def refer_to(self, base: BaseIndex) -> None:
        """What this index holds need not be written from here on. It must be of a checkpoint that is complete and stays
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
        """Append the last part of a subtask, its state with it. That is released, whatever becomes of it, or kept: see
        ``kept``."""
        try:
            self._add_capture(capture)
        finally:
            capture.release()

    def _add_capture(self, capture: SubtaskCapture) -> None:
        self.add_inflight(capture.subtask, capture.inflight)
        part = self._part(capture.subtask)
        part.manifest = SubtaskManifest(
            vertex=capture.subtask.vertex,
            index=capture.subtask.index,
            states=self._add_states(capture, part),
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
        self._index = BaseIndex(InflightIndex(piece for pieces in lanes for piece in pieces), self._states.tables)
        for file in (self._file, self._state_file):
            file.close()
        return manifest

    @property
    def index(self) -> BaseIndex:
        """After ``finish``: where everything of this checkpoint lies, for those whose base it will be."""
        return self._index

    def abandon(self) -> None:
        """Remove the files. Also after ``finish``, as long as nobody was given the manifest; best effort then."""
        for file in (self._file, self._state_file):
            file.abandon()
        for one in self.kept.values():
            one.point.release()
        self.kept.clear()
        self._parts.clear()

    # -- sections -------------------------------------------------------------------------------------------------

    def _part(self, subtask: SubtaskId) -> _Part:
        return self._parts.setdefault(subtask, _Part())

    def _add_to(self, lane: _Lane, subtask: SubtaskId, part: _Part, recorded: list[Captured]) -> None:
        pieces = part.lanes.setdefault(lane, [])
        section: list[Fresh] = []
        section_bytes = 0
        for captured in sorted(recorded, key=_position):
            for found in self._base.inflight.split(captured):
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
        groups = key_groups_among(self._graph, lane.channel, [rows for rows, _ in batches])
        pieces, row = [], 0
        for fresh in content:
            pieces.append(Piece(fresh.captured.buffer.id, fresh.offset, fresh.rows, fresh.cost, section, row, groups))
            row += fresh.rows
        return pieces

    def _add_states(self, capture: SubtaskCapture, part: _Part) -> list[StateEntry]:
        before = self._state_file.written
        entries: list[StateEntry] = []
        for operator_id, state in capture.operators.items():
            for name, captured in state.tables.items():
                table = TableId(capture.subtask, operator_id, name)
                part.state_rows[operator_id] = part.state_rows.get(operator_id, 0) + captured.rows
                written = self._states.write(table, captured, self._base.tables.get(table))
                entries += written
                point = captured.keep() if self._keep else None
                if point is not None:
                    self.kept[table] = KeptTable(written, point)
        part.state_bytes = self._state_file.written - before
        return entries

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

    @staticmethod
    def _entry(lane: _Lane, piece: Piece) -> InflightEntry:
        return InflightEntry(
            layer=lane.layer,
            edge=lane.channel.edge,
            producer=lane.channel.producer,
            consumer=lane.channel.consumer,
            side=lane.side.value,
            row_start=piece.row_start,
            rows=piece.rows,
            key_group_first=piece.key_groups[0],
            key_group_last=piece.key_groups[1],
            section=piece.section,
        )


def key_groups_among(graph: JobGraph, channel: ChannelId, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the first and the last key group of the rows, which lie on a channel. There is at least one row.

    On an edge without keys these are all key groups. Copies of broadcast rows count for all that the consumer owns.
    """
    edge = graph.edge(channel.edge)
    if not edge.keyed:
        return 0, graph.max_parallelism - 1
    owned = owned_range(channel.consumer, graph.parallelism, graph.max_parallelism)
    if edge.kind is EdgeKind.BROADCAST:
        return owned
    first, last = owned[1], owned[0]
    for batch in batches:
        for start in range(0, batch.num_rows, HASHED_AT_ONCE):
            groups = key_groups(batch.slice(start, HASHED_AT_ONCE), edge.key_columns, graph.max_parallelism)
            first, last = min(first, int(groups.min())), max(last, int(groups.max()))
            if (first, last) == owned:
                return owned
    return first, last


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
        state_bytes=part.state_bytes,
        state_total_bytes=stored_bytes(manifest.states),
        state_rows=part.state_rows,
    )
