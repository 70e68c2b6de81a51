"""From a durable manifest back to what a subtask starts from: the way that ``CheckpointWriter`` went."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import CorruptSnapshot, NotYet
from penstock.graph.keygroups import MAX_KEY_GROUPS
from penstock.ids import ChannelId
from penstock.operators.base import RestoredState, ScalarPart
from penstock.snapshot.checkpoint_writer import BASE
from penstock.snapshot.handover import SubtaskRestore
from penstock.snapshot.model import InflightEntry, ScalarShare, StateEntry, SubtaskManifest
from penstock.snapshot.sections import read_section
from penstock.snapshot.store import Store
from penstock.snapshot.widening import as_schema
from penstock.state.capture import StoredRows


def load_restore(manifest: SubtaskManifest, store: Store) -> SubtaskRestore:
    """What a subtask starts from: its state is read and verified when its tables are iterated over, its in-flight
    entries by ``load_inflight``. Whoever reads gets ``CorruptSnapshot`` if a section is missing or changed."""
    tables: dict[str, dict[str, list[StateEntry]]] = {}
    for entry in manifest.states:
        tables.setdefault(entry.operator_id, {}).setdefault(entry.table, []).append(entry)
    with_scalars = [*manifest.scalars, *(operator_id for share in manifest.shares for operator_id in share.scalars)]
    operators = {
        operator_id: RestoredState(
            {table: _load_table(store, entries) for table, entries in tables.get(operator_id, {}).items()},
            _parts(manifest, operator_id),
            rescaled=bool(manifest.shares),
        )
        for operator_id in dict.fromkeys([*tables, *with_scalars])
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
        inherited_messages=manifest.inherited_messages,
    )


def _parts(manifest: SubtaskManifest, operator_id: str) -> list[ScalarPart]:
    own = [ScalarShare(manifest.index, 0, MAX_KEY_GROUPS - 1, manifest.scalars)] if manifest.scalars else []
    return [
        ScalarPart(share.index, share.first, share.last, share.scalars[operator_id])
        for share in manifest.shares or own
        if operator_id in share.scalars
    ]


def load_inflight(store: Store, entry: InflightEntry, schema: pa.Schema | None = None) -> list[pa.RecordBatch]:
    """The rows of an in-flight entry, ``[row_start, row_start + rows)`` of its section, in order; no empty batches.

    Args:
        schema: of the edge that they are on now: their columns are found by name and type, for they may have been
            written under another plan (``plan.carries``). None: as they were written.

    Raises:
        CorruptSnapshot: the section is missing or changed, or has not that many rows.
    """
    found: list[pa.RecordBatch] = []
    position, end = 0, entry.row_start + entry.rows
    for batch in read_section(store, entry.section):
        first = max(entry.row_start - position, 0)
        rows = min(end - position, batch.num_rows) - first
        if rows > 0:
            wanted = batch.slice(first, rows)
            found.append(wanted if schema is None else as_schema(wanted, schema))
        position += batch.num_rows
    if position < end:
        raise CorruptSnapshot(f"section {entry.section.identity!r} has {position} rows; {end} are referred to")
    return found


def _input_channel(key: str, consumer: int) -> ChannelId:
    edge, _, producer = key.partition(":")
    return ChannelId(int(edge), int(producer), consumer)


def _load_table(store: Store, entries: list[StateEntry]) -> Iterator[StoredRows]:
    for entry in entries:
        if entry.kind != BASE:
            raise NotYet(f"{entry.section.identity}: state sections of kind {entry.kind!r} are of a later release")
        batches = read_section(store, entry.section)
        rows = sum(batch.num_rows for batch in batches)
        if rows != entry.rows:
            raise CorruptSnapshot(f"section {entry.section.identity!r} has {rows} rows instead of {entry.rows}")
        for batch in batches:
            own = _own_rows(batch, entry)
            if own.num_rows:
                yield StoredRows(own, is_delta=False)


def _own_rows(batch: pa.RecordBatch, entry: StateEntry) -> pa.RecordBatch:
    """Those of the entry's key groups, by which a section is sorted."""
    groups = batch.column(0).to_numpy()
    first = groups.searchsorted(entry.key_group_first, "left")
    behind = groups.searchsorted(entry.key_group_last, "right")
    return batch.slice(first, behind - first)
