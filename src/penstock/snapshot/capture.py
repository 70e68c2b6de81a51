"""From what a slot's subtasks captured to a durable manifest, and back.

Writing happens on the slot's upload thread: everything in a ``SubtaskCapture`` is immutable by then. The result of
``write_captures`` is durable when it returns and may be acknowledged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptSnapshot, NotYet
from penstock.graph.keygroups import owned_range
from penstock.graph.model import EdgeKind, JobGraph
from penstock.ids import ChannelId
from penstock.operators.base import KEY_GROUP_COLUMN, OperatorState
from penstock.protocol.elements import Captured, Side
from penstock.snapshot.handover import SubtaskCapture, SubtaskRestore
from penstock.snapshot.model import CaptureMetrics, InflightEntry, SlotManifest, StateEntry, SubtaskManifest
from penstock.snapshot.sections import SectionWriter, data_path, read_content, read_section
from penstock.snapshot.store import Store

BASE = "base"
BUFFER_ID = "buffer"
BUFFER_OFFSET = "offset"
"""Custom metadata of an in-flight batch: the identity of the buffer it was cut from, and at which of its rows."""


def write_captures(
    store: Store,
    graph: JobGraph,
    generation: int,
    slot: int,
    captures: Sequence[SubtaskCapture],
    compression: str | None = None,
) -> SlotManifest:
    """Write all sections of one slot's part of a checkpoint into one data file and make it durable.

    Args:
        captures: one per subtask of the slot, all of one checkpoint.
        compression: see ``SectionWriter``.

    Raises:
        CheckpointFailed: the store is full or fails; what was written is removed.
    """
    checkpoint = captures[0].checkpoint
    ordered = sorted(captures, key=lambda c: c.subtask)
    with SectionWriter(store, data_path(generation, checkpoint, slot), compression) as writer:
        parts = [_SubtaskWriter(writer, graph, generation, capture) for capture in ordered]
        subtasks = [part.write() for part in parts]
    return SlotManifest(slot, subtasks, [part.metrics() for part in parts])


class _SubtaskWriter:
    """Writes one subtask's sections."""

    def __init__(self, writer: SectionWriter, graph: JobGraph, generation: int, capture: SubtaskCapture) -> None:
        self._writer = writer
        self._graph = graph
        self._capture = capture
        self._prefix = f"g{generation}/c{capture.checkpoint}/{capture.subtask}"
        self._state_bytes = 0
        self._inflight_bytes = 0

    def write(self) -> SubtaskManifest:
        capture = self._capture
        states = [
            self._state(operator_id, table, batch)
            for operator_id, state in capture.operators.items()
            for table, batch in state.tables.items()
        ]
        return SubtaskManifest(
            vertex=capture.subtask.vertex,
            index=capture.subtask.index,
            states=states,
            scalars={op: dict(state.scalars) for op, state in capture.operators.items() if state.scalars},
            inflight=[*capture.carried, *self._inflight()],
            splits=list(capture.splits),
            channel_watermarks={f"{c.edge}:{c.producer}": us for c, us in sorted(capture.channel_watermarks.items())},
            pending_messages=dict(sorted(capture.pending_messages.items())),
            rows_in=capture.rows_in,
        )

    def metrics(self) -> CaptureMetrics:
        inflight_rows = sum(captured.rows for captured in self._capture.inflight)
        return msgspec.structs.replace(
            self._capture.metrics,
            inflight_bytes=self._inflight_bytes,
            inflight_rows=inflight_rows,
            state_bytes=self._state_bytes,
        )

    def _state(self, operator_id: str, table: str, batch: pa.RecordBatch) -> StateEntry:
        if batch.schema.names[:1] != [KEY_GROUP_COLUMN]:
            raise ValueError(f"state table {operator_id}/{table} does not begin with {KEY_GROUP_COLUMN}")
        identity = f"{self._prefix}/state/{operator_id}/{table}"
        section = self._writer.append(identity, batch.schema, [(batch, None)] if batch.num_rows else [])
        self._state_bytes += section.length
        groups = batch.column(0)
        first, last = (groups[0].as_py(), groups[-1].as_py()) if batch.num_rows else (0, -1)
        return StateEntry(operator_id, table, BASE, batch.num_rows, first, last, section)

    def _inflight(self) -> list[InflightEntry]:
        """One entry per (layer, side, channel), in restore order."""
        groups: dict[tuple[int, bool, ChannelId], list[Captured]] = {}
        for captured in self._capture.inflight:
            if captured.rows:
                key = (captured.layer, captured.side is Side.PRODUCER, captured.channel)
                groups.setdefault(key, []).append(captured)
        return [self._entry(channel, layer, parts) for (layer, _, channel), parts in sorted(groups.items())]

    def _entry(self, channel: ChannelId, layer: int, parts: list[Captured]) -> InflightEntry:
        parts.sort(key=lambda captured: (captured.buffer.id.seq, captured.offset))
        side = parts[0].side
        identity = f"{self._prefix}/inflight/{channel}/{side.value}/{layer}"
        batches = [
            (
                cast(pa.RecordBatch, part.buffer.payload.slice(part.offset, part.rows)),
                {BUFFER_ID: str(part.buffer.id), BUFFER_OFFSET: str(part.offset)},
            )
            for part in parts
        ]
        section = self._writer.append(identity, batches[0][0].schema, batches)
        self._inflight_bytes += section.length
        first, last = key_groups_of(self._graph, channel)
        return InflightEntry(
            layer=layer,
            edge=channel.edge,
            producer=channel.producer,
            consumer=channel.consumer,
            side=side.value,
            row_start=0,
            rows=sum(part.rows for part in parts),
            key_group_first=first,
            key_group_last=last,
            section=section,
        )


def key_groups_of(graph: JobGraph, channel: ChannelId) -> tuple[int, int]:
    """The key groups whose rows can lie on a channel, both inclusive: the consumer's on a hash edge, else all."""
    if graph.edge(channel.edge).kind is EdgeKind.HASH:
        return owned_range(channel.consumer, graph.parallelism, graph.max_parallelism)
    return 0, graph.max_parallelism - 1


def load_restore(manifest: SubtaskManifest, store: Store) -> SubtaskRestore:
    """What a subtask starts from: its state is read and verified now, its in-flight entries only by ``load_inflight``.

    Raises:
        CorruptSnapshot: a section is missing or changed.
    """
    tables: dict[str, dict[str, list[StateEntry]]] = {}
    for entry in manifest.states:
        tables.setdefault(entry.operator_id, {}).setdefault(entry.table, []).append(entry)
    operators = {
        operator_id: OperatorState(
            {table: _load_table(store, entries) for table, entries in tables.get(operator_id, {}).items()},
            manifest.scalars.get(operator_id, {}),
        )
        for operator_id in dict.fromkeys([*tables, *manifest.scalars])
    }
    return SubtaskRestore(
        operators=operators,
        splits=manifest.splits,
        inflight=manifest.inflight,
        channel_watermarks={
            _input_channel(key, manifest.index): watermark for key, watermark in manifest.channel_watermarks.items()
        },
        pending_messages=manifest.pending_messages,
        rows_in=manifest.rows_in,
    )


def load_inflight(store: Store, entry: InflightEntry) -> list[pa.RecordBatch]:
    """The rows of an in-flight entry, ``[row_start, row_start + rows)`` of its section, in order; no empty batches.

    Raises:
        CorruptSnapshot: the section is missing or changed, or has not that many rows.
    """
    found: list[pa.RecordBatch] = []
    position, end = 0, entry.row_start + entry.rows
    for batch in read_section(store, entry.section):
        first = max(entry.row_start - position, 0)
        rows = min(end - position, batch.num_rows) - first
        if rows > 0:
            found.append(batch.slice(first, rows))
        position += batch.num_rows
    if position < end:
        raise CorruptSnapshot(f"section {entry.section.identity!r} has {position} rows; {end} are referred to")
    return found


def _input_channel(key: str, consumer: int) -> ChannelId:
    edge, _, producer = key.partition(":")
    return ChannelId(int(edge), int(producer), consumer)


def _load_table(store: Store, entries: list[StateEntry]) -> pa.RecordBatch:
    """All entries of one table as one batch, sorted by key group (stable)."""
    batches: list[pa.RecordBatch] = []
    for entry in entries:
        if entry.kind != BASE:
            raise NotYet(f"{entry.section.identity}: state sections of kind {entry.kind!r} are of a later release")
        content = read_content(store, entry.section)
        rows = sum(batch.num_rows for batch in content.batches)
        if rows != entry.rows:
            raise CorruptSnapshot(f"section {entry.section.identity!r} has {rows} rows instead of {entry.rows}")
        batches += content.batches or [_empty(content.schema)]
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches)
    order = pc.sort_indices(table, sort_keys=[(KEY_GROUP_COLUMN, "ascending")])
    return table.take(order).combine_chunks().to_batches(max_chunksize=None)[0] if table.num_rows else batches[0]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)
