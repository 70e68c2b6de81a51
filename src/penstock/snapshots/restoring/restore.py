"""Restore of a subtask from a manifest: the inverse of ``CheckpointWriter``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptSnapshot
from penstock.model.ids import ChannelId
from penstock.model.job_graph import OperatorSpec
from penstock.model.key_groups import MAX_KEY_GROUPS
from penstock.model.manifest import InflightEntry, ScalarShare, StateEntry, SubtaskManifest
from penstock.operators.base import RestoredState, ScalarPart
from penstock.snapshots.format.sections import read_section
from penstock.snapshots.restoring.local_state import LocalStateRestore, entries_by_table
from penstock.snapshots.restoring.widening import as_schema, with_optional_columns
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.handover import SubtaskRestore
from penstock.snapshots.writing.state_index import BASE, DELTA, TableId
from penstock.state.stored_form import DELETED_COLUMN, KEY_GROUP_COLUMN, delta_schema
from penstock.state.table import StoredRows


def load_restore(
    manifest: SubtaskManifest, store: Store, specs: Sequence[OperatorSpec] = (), local: LocalStateRestore | None = None
) -> SubtaskRestore:
    """Return the initial state of a subtask.

    Tables are read and verified while they are iterated over, and in-flight entries by ``load_inflight``. Both raise
    CorruptSnapshot if a section is missing or changed.

    For each table, base pieces precede the deltas, in the order in which they apply. Rows of other subtasks' key groups
    and superseded rows are left out.

    Args:
        specs: the subtask's operators in the current plan. Columns of their tables are found by name and widened. A
            column may be missing if the state evolves. Tables of other operators are read as they were written.
        local: local memory, from which tables are restored instead of being read. It retains the restored tables.
    """
    schemas = {(spec.operator_id, table): schema for spec in specs for table, schema in read_schemas(spec).items()}
    tables: dict[str, dict[TableId, list[StateEntry]]] = {}
    for table, entries in entries_by_table([manifest]).items():
        tables.setdefault(table.operator_id, {})[table] = entries
    with_scalars = [*manifest.scalars, *(operator_id for share in manifest.shares for operator_id in share.scalars)]
    operators = {
        operator_id: RestoredState(
            {
                table.table: _load_table(store, entries, schemas.get((operator_id, table.table)))
                for table, entries in tables.get(operator_id, {}).items()
            },
            _scalar_parts(manifest, operator_id),
            rescaled=bool(manifest.shares),
            local={}
            if local is None
            else {
                table.table: local.table_restore(table, entries)
                for table, entries in tables.get(operator_id, {}).items()
            },
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


def read_schemas(spec: OperatorSpec) -> dict[str, pa.Schema]:
    """Return the schema, by table, in which rows of any earlier plan are read."""
    if spec.evolution is None:
        return spec.state_schemas
    return {
        table: schema if table in spec.evolution.passing else with_optional_columns(schema, 1 + spec.state_keys[table])
        for table, schema in spec.state_schemas.items()
    }


def _scalar_parts(manifest: SubtaskManifest, operator_id: str) -> list[ScalarPart]:
    own = [ScalarShare(manifest.index, 0, MAX_KEY_GROUPS - 1, manifest.scalars)] if manifest.scalars else []
    return [
        ScalarPart(share.index, share.first, share.last, share.scalars[operator_id])
        for share in manifest.shares or own
        if operator_id in share.scalars
    ]


def load_inflight(store: Store, entry: InflightEntry, schema: pa.Schema | None = None) -> list[pa.RecordBatch]:
    """Return the rows ``[row_start, row_start + rows)`` of an in-flight entry's section, in order; no empty batches.

    Args:
        schema: schema of the current edge. Columns are found by name and type, because another plan may have written
            the rows (``plan.accepts_rows_of``). None returns the rows as they were written.

    Raises:
        CorruptSnapshot: the section is missing or changed, or has too few rows.
    """
    found: list[pa.RecordBatch] = []
    position, end = 0, entry.row_start + entry.rows
    for batch in read_section(store, entry.section):
        first = max(entry.row_start - position, 0)
        rows = min(end - position, batch.num_rows) - first
        if rows > 0:
            part = batch.slice(first, rows)
            found.append(part if schema is None else as_schema(part, schema))
        position += batch.num_rows
    if position < end:
        raise CorruptSnapshot(f"section {entry.section.identity!r} has {position} rows; {end} are referred to")
    return found


def _input_channel(key: str, consumer: int) -> ChannelId:
    edge, _, producer = key.partition(":")
    return ChannelId(int(edge), int(producer), consumer)


def _load_table(store: Store, entries: Sequence[StateEntry], schema: pa.Schema | None) -> Iterator[StoredRows]:
    """Yield the rows of a table, bases first.

    A base supersedes everything earlier of its key groups, so the order of bases does not matter. One section is in
    memory at a time.
    """
    ordered = sorted(entries, key=lambda entry: entry.kind != BASE)
    for ref, same in groupby(ordered, key=lambda entry: entry.section):
        batches = [_checked_state(batch, ref.identity) for batch in read_section(store, ref)]
        rows = sum(batch.num_rows for batch in batches)
        for entry in same:
            if entry.kind not in (BASE, DELTA):
                raise CorruptSnapshot(f"section {ref.identity!r} is of an unknown kind of state: {entry.kind!r}")
            if entry.kind == DELTA and any(not _has_tombstones(batch) for batch in batches):
                raise CorruptSnapshot(f"section {ref.identity!r} is a delta without {DELETED_COLUMN}")
            if rows != entry.rows:
                raise CorruptSnapshot(f"section {ref.identity!r} has {rows} rows instead of {entry.rows}")
            for batch in batches:
                part = _of_key_groups(batch, entry.key_group_first, entry.key_group_last)
                if entry.without:
                    part = part.drop_columns([name for name in entry.without if name in part.schema.names])
                if part.num_rows:
                    yield _with_schema(StoredRows(part, entry.kind == DELTA), schema)


def _has_tombstones(batch: pa.RecordBatch) -> bool:
    last = batch.schema.field(len(batch.schema) - 1)
    marks = batch.column(batch.num_columns - 1)
    return (last.name, last.type) == (DELETED_COLUMN, pa.bool_()) and not marks.null_count


def _checked_state(batch: pa.RecordBatch, identity: str) -> pa.RecordBatch:
    """Check that rows begin with their key group, as all code that selects key groups expects."""
    if batch.schema.names[:1] != [KEY_GROUP_COLUMN] or batch.schema.field(0).type != pa.int16():
        raise CorruptSnapshot(f"section {identity!r} has rows without {KEY_GROUP_COLUMN}")
    if batch.column(0).null_count:
        raise CorruptSnapshot(f"section {identity!r} has rows of no key group")
    return batch


def _with_schema(rows: StoredRows, schema: pa.Schema | None) -> StoredRows:
    if schema is None:
        return rows
    return StoredRows(as_schema(rows.batch, delta_schema(schema) if rows.is_delta else schema), rows.is_delta)


def _of_key_groups(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    groups = batch.column(0).to_numpy(zero_copy_only=False)
    start = int(np.searchsorted(groups, first, "left"))
    return batch.slice(start, max(0, int(np.searchsorted(groups, last, "right")) - start))
