"""Writer of one slot's part of one checkpoint. Parts arrive while the checkpoint is still being recorded.

::

    CheckpointWriter -> (use_base | add_inflight | add_capture)* -> finish
                                                                 \\-> abandon, at any time

Sections are appended as parts arrive. At the end, all in-flight rows and references are put into restore order by the
rule of ``Captured``. State has a file of its own: see ``state_path``.
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
from penstock.snapshots.format.sections import BatchMetadata, SectionWriter, data_path, state_path
from penstock.snapshots.restoring.local_state import RetainedTable
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.base_index import NO_BASE, BaseIndex
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.snapshots.writing.inflight_index import DurableRange, InflightIndex, NewRange
from penstock.snapshots.writing.state_index import TableId, stored_bytes
from penstock.snapshots.writing.state_sections import WHOLE_BYTES, StateWriter
from penstock.state.hashing import key_groups

BUFFER_ID, BUFFER_OFFSET = "buffer", "offset"
"""Custom metadata of an in-flight batch: identity of its buffer, and position of its first row in the buffer."""

INFLIGHT_SECTION_BYTES = 1 << 20
"""Maximum size in bytes of an in-flight section with several buffers.

Sections are read as a whole, and a section that is being loaded must fit into the part of a gate's budget that is
reserved for it.
"""
HASHED_ROWS = 1_024
"""Number of rows hashed at a time. Once the hashed rows have all key groups of a channel, the rest is not hashed."""


class _ChannelLayer(NamedTuple):
    """Rows of one channel, layer and side. They are restored together."""

    number: int
    producer_side: bool
    channel: ChannelId

    @property
    def side(self) -> Side:
        return Side.PRODUCER if self.producer_side else Side.CONSUMER

    def __str__(self) -> str:
        return f"{self.channel}/{self.side.value}/{self.number}"


@dataclass
class _SubtaskPart:
    """Everything known of one subtask so far, without rows.

    Attributes:
        manifest: manifest without in-flight entries; None until the subtask's capture is added.
    """

    manifest: SubtaskManifest | None = None
    metrics: CaptureMetrics | None = None
    carried: Sequence[InflightEntry] = ()
    layers: dict[_ChannelLayer, list[DurableRange]] = field(default_factory=dict)
    sections: int = 0
    inflight_bytes: int = 0
    inflight_rows: int = 0
    persisted_bytes: int = 0
    state_bytes: int = 0
    state_rows: dict[str, int] = field(default_factory=dict)


class CheckpointWriter:
    """Writer of the data files. One thread owns it; calls block while the store is slow.

    Args:
        base: index of the base checkpoint to which this one refers; see ``use_base``.
        compression: see ``SectionWriter``.
        whole_bytes: see ``StateWriter``.
        retain_tables: keep restore points of the tables that are written.

    Attributes:
        retained: restore points of the tables written so far. The owner of the checkpoint takes them over.

    Raises:
        CheckpointFailed: the store is full or fails. Every method except ``abandon`` may raise it, and only ``abandon``
            may be called after it.
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
        retain_tables: bool = False,
    ) -> None:
        self.retained: dict[TableId, RetainedTable] = {}
        self._retain_tables = retain_tables
        self._graph = graph
        self._slot = slot
        self._prefix = f"g{generation}/c{checkpoint}"
        self._base = base
        self._file = SectionWriter(store, data_path(generation, checkpoint, slot), compression)
        self._state_file = SectionWriter(store, state_path(generation, checkpoint, slot), compression)
        self._states = StateWriter(self._state_file, self._prefix, graph.max_parallelism, whole_bytes)
        self._parts: dict[SubtaskId, _SubtaskPart] = {}
        self._index = NO_BASE

    @property
    def captured_subtasks(self) -> int:
        """Number of subtasks whose capture was added."""
        return sum(part.manifest is not None for part in self._parts.values())

    def use_base(self, base: BaseIndex) -> None:
        """From now on, refer to the rows and state of a base instead of writing them.

        The base must be complete, and must exist until this checkpoint ends. Parts may have arrived before: a barrier
        may be faster than the trigger that names the base.
        """
        self._base = base

    def add_inflight(self, subtask: SubtaskId, captured: Iterable[Captured]) -> None:
        """Append rows that a subtask recorded before its capture. The order and the number of calls do not matter."""
        part = self._part(subtask)
        by_layer: dict[_ChannelLayer, list[Captured]] = {}
        for rows in captured:
            if rows.rows:
                layer = _ChannelLayer(rows.layer, rows.side is Side.PRODUCER, rows.channel)
                by_layer.setdefault(layer, []).append(rows)
                part.inflight_bytes += rows.cost
                part.inflight_rows += rows.rows
        for layer, recorded in sorted(by_layer.items(), key=lambda item: item[0]):
            self._add_to(layer, subtask, part, recorded)

    def add_capture(self, capture: SubtaskCapture) -> None:
        """Append the capture of a subtask, including its state. The state is then released, or kept in ``retained``."""
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
        """Make the files durable. Every subtask with a part must have been captured.

        Raises:
            ProtocolViolation: a row was captured twice, or a subtask with a part was not captured.
        """
        manifest = SlotManifest(self._slot, [], [])
        for subtask, part in sorted(self._parts.items()):
            if part.manifest is None or part.metrics is None:
                raise ProtocolViolation(f"checkpoint {self._prefix}", f"{subtask} not captured", "finish")
            inflight = [*part.carried, *self._entries(part)]
            manifest.subtasks.append(msgspec.structs.replace(part.manifest, inflight=inflight))
            manifest.metrics.append(_metrics(part.manifest, part.metrics, part))
        layers = [pieces for part in self._parts.values() for pieces in part.layers.values()]
        self._index = BaseIndex(InflightIndex(piece for pieces in layers for piece in pieces), self._states.tables)
        for file in (self._file, self._state_file):
            file.close()
        return manifest

    @property
    def index(self) -> BaseIndex:
        """Index of this checkpoint, for checkpoints that use it as their base. Valid after ``finish``."""
        return self._index

    def abandon(self) -> None:
        """Remove the files, best effort. Allowed after ``finish`` as long as the manifest was not passed on."""
        for file in (self._file, self._state_file):
            file.abandon()
        for one in self.retained.values():
            one.point.release()
        self.retained.clear()
        self._parts.clear()

    # -- sections -------------------------------------------------------------------------------------------------

    def _part(self, subtask: SubtaskId) -> _SubtaskPart:
        return self._parts.setdefault(subtask, _SubtaskPart())

    def _add_to(self, layer: _ChannelLayer, subtask: SubtaskId, part: _SubtaskPart, recorded: list[Captured]) -> None:
        pieces = part.layers.setdefault(layer, [])
        section: list[NewRange] = []
        section_bytes = 0
        for captured in sorted(recorded, key=_position):
            for found in self._base.inflight.split(captured):
                if isinstance(found, DurableRange):
                    pieces.append(found)
                    continue
                if section and section_bytes + found.cost > INFLIGHT_SECTION_BYTES:
                    pieces += self._inflight_section(layer, subtask, part, section)
                    section, section_bytes = [], 0
                section.append(found)
                section_bytes += found.cost
        if section:
            pieces += self._inflight_section(layer, subtask, part, section)

    def _inflight_section(
        self, layer: _ChannelLayer, subtask: SubtaskId, part: _SubtaskPart, content: Sequence[NewRange]
    ) -> list[DurableRange]:
        batches = [_batch(fresh) for fresh in content]
        part.sections += 1
        identity = f"{self._prefix}/{subtask}/inflight/{layer}/{part.sections}"
        section = self._file.append(identity, batches[0][0].schema, batches)
        part.persisted_bytes += section.length
        groups = key_groups_among(self._graph, layer.channel, [rows for rows, _ in batches])
        pieces, row = [], 0
        for fresh in content:
            pieces.append(
                DurableRange(fresh.captured.buffer.id, fresh.offset, fresh.rows, fresh.cost, section, row, groups)
            )
            row += fresh.rows
        return pieces

    def _add_states(self, capture: SubtaskCapture, part: _SubtaskPart) -> list[StateEntry]:
        before = self._state_file.written
        entries: list[StateEntry] = []
        for operator_id, state in capture.operators.items():
            for name, captured in state.tables.items():
                table = TableId(capture.subtask, operator_id, name)
                part.state_rows[operator_id] = part.state_rows.get(operator_id, 0) + captured.rows
                written = self._states.write(table, captured, self._base.tables.get(table))
                entries += written
                point = captured.keep() if self._retain_tables else None
                if point is not None:
                    self.retained[table] = RetainedTable(written, point)
        part.state_bytes = self._state_file.written - before
        return entries

    # -- the manifest ---------------------------------------------------------------------------------------------

    def _entries(self, part: _SubtaskPart) -> list[InflightEntry]:
        """Return the entries in restore order. Consecutive rows of a section become one entry."""
        entries: list[InflightEntry] = []
        for layer, pieces in sorted(part.layers.items(), key=lambda item: item[0]):
            first = len(entries)
            for piece in sorted(pieces, key=lambda p: (p.buffer.seq, p.offset)):
                before = entries[-1] if len(entries) > first else None
                if before and before.section == piece.section and before.row_start + before.rows == piece.row_start:
                    entries[-1] = msgspec.structs.replace(before, rows=before.rows + piece.rows)
                else:
                    entries.append(self._entry(layer, piece))
        return entries

    @staticmethod
    def _entry(layer: _ChannelLayer, piece: DurableRange) -> InflightEntry:
        return InflightEntry(
            layer=layer.number,
            edge=layer.channel.edge,
            producer=layer.channel.producer,
            consumer=layer.channel.consumer,
            side=layer.side.value,
            row_start=piece.row_start,
            rows=piece.rows,
            key_group_first=piece.key_groups[0],
            key_group_last=piece.key_groups[1],
            section=piece.section,
        )


def key_groups_among(graph: JobGraph, channel: ChannelId, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the first and the last key group of the rows of a channel. There must be at least one row.

    On an edge without keys these are all key groups. Broadcast rows count for all key groups that the consumer owns.
    """
    edge = graph.edge(channel.edge)
    if not edge.keyed:
        return 0, graph.max_parallelism - 1
    owned = owned_range(channel.consumer, graph.parallelism, graph.max_parallelism)
    if edge.kind is EdgeKind.BROADCAST:
        return owned
    first, last = owned[1], owned[0]
    for batch in batches:
        for start in range(0, batch.num_rows, HASHED_ROWS):
            groups = key_groups(batch.slice(start, HASHED_ROWS), edge.key_columns, graph.max_parallelism)
            first, last = min(first, int(groups.min())), max(last, int(groups.max()))
            if (first, last) == owned:
                return owned
    return first, last


def _position(captured: Captured) -> tuple[int, int]:
    return captured.buffer.id.seq, captured.offset


def _batch(fresh: NewRange) -> tuple[pa.RecordBatch, BatchMetadata]:
    buffer = fresh.captured.buffer
    rows: pa.RecordBatch = buffer.payload.slice(fresh.offset, fresh.rows)
    return rows, {BUFFER_ID: str(buffer.id), BUFFER_OFFSET: str(fresh.offset)}


def _metrics(manifest: SubtaskManifest, metrics: CaptureMetrics, part: _SubtaskPart) -> CaptureMetrics:
    return msgspec.structs.replace(
        metrics,
        inflight_bytes=part.inflight_bytes,
        inflight_persisted_bytes=part.persisted_bytes,
        inflight_rows=part.inflight_rows,
        state_bytes=part.state_bytes,
        state_total_bytes=stored_bytes(manifest.states),
        state_rows=part.state_rows,
    )
