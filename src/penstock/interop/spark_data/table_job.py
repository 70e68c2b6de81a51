"""Spark job that writes a state table from a DataFrame: each task writes the sections of some key groups to a file.

Spark SQL computes the key group, by the hash function that it shares with Penstock. Tasks compute it again and compare.
No snapshot refers to files of tasks that failed or ran twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.decoding import decode_msgpack
from penstock.errors import DataError, ProtocolViolation
from penstock.model.ids import SubtaskId
from penstock.model.key_groups import owned_range, owner
from penstock.model.manifest import StateEntry
from penstock.snapshots.format.plan import is_never_null
from penstock.snapshots.format.sections import SectionWriter, state_path
from penstock.snapshots.restoring.state_tables import StateTable
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.writing.base_sections import append_empty_table, append_rows
from penstock.spark.shipping import ship_to_cluster
from penstock.state.arrays import readable_objects
from penstock.state.hashing import SEED, key_groups
from penstock.state.keys import normalize_floats
from penstock.state.stored_form import KEY_GROUP_COLUMN

MOST_TASKS = 200
"""Most tasks of a job, rounded up to a multiple of the parallelism. A job has fewer if the session runs fewer tasks in
parallel."""
MAX_TABLES = 1000
"""Most tables of a snapshot. The files of empty sections have numbers below it, the files of tasks above."""
_RESULT = "subtask int, entries binary, problem string"
Entries = dict[int, list[StateEntry]]
"""Entries of a table by subtask."""


@dataclass(frozen=True)
class TableTarget:
    """Snapshot to which a table is written.

    Attributes:
        root: root of the location, for ``store_at``.
        first_file: the lowest number of a data file.
        generation: generation of the snapshot.
        checkpoint: checkpoint of the snapshot.
        parallelism: parallelism of the snapshot.
        vertex: vertex of the table's operator.
    """

    root: str
    first_file: int
    generation: int
    checkpoint: int
    parallelism: int
    vertex: int

    def prefix(self, table: StateTable, subtask: int) -> str:
        """Return the start of the identities of sections."""
        owner_id = f"g{self.generation}/c{self.checkpoint}/{SubtaskId(self.vertex, subtask)}"
        return f"{owner_id}/state/{table.operator_id}/{table.table}"

    def path(self, number: int) -> str:
        """Return the path of a data file of this snapshot that belongs to no slot."""
        return state_path(self.generation, self.checkpoint, self.first_file + self.parallelism + 1 + number)

    def task_path(self, attempt: int) -> str:
        """Return the path of a task's file. ``attempt``: id of the task attempt, unique in the session."""
        return self.path(MAX_TABLES + attempt)


def write_table(rows: DataFrame, table: StateTable, target: TableTarget) -> Entries:
    """Write all rows, and block until that is done.

    Args:
        rows: the table's columns by position, without the key group.
        table: the table.
        target: the snapshot to which it is written.

    Returns:
        Entries of the subtasks that have rows.

    Raises:
        DataError: two rows have the same key, or a column that must not be null is null.
    """
    assert table.key_count is not None
    assert table.hash_key_count is not None
    ship_to_cluster(rows.sparkSession)
    tasks = _tasks(rows, target.parallelism, table.max_parallelism)
    columns = [f"c{position}" for position in range(len(table.schema) - 1)]
    renamed = rows.toDF(*columns)
    group = _key_group([F.col(name) for name in columns[: table.hash_key_count]], table.max_parallelism)
    grouped = renamed.select(group.alias(KEY_GROUP_COLUMN), *columns)
    task = F.floor(F.col(KEY_GROUP_COLUMN) * F.lit(tasks) / F.lit(table.max_parallelism)).cast("int")
    sorted_rows = grouped.repartitionById(tasks, task).sortWithinPartitions(
        KEY_GROUP_COLUMN, *columns[: table.key_count]
    )
    found: Entries = {}
    for row in sorted_rows.mapInArrow(_WriteTask(table, target), _RESULT).collect():
        if row.problem:
            raise DataError(f"state table {table.name}: {row.problem}")
        found.setdefault(row.subtask, []).extend(decode_msgpack(row.entries, list[StateEntry]))
    return {subtask: sorted(entries, key=lambda one: one.key_group_first) for subtask, entries in found.items()}


def write_empty(table: StateTable, target: TableTarget, store: Store, path: str, subtasks: Sequence[int]) -> Entries:
    """Write empty sections for subtasks without rows to a separate file, and return their entries."""
    with SectionWriter(store, path) as writer:
        return {
            subtask: [
                append_empty_table(writer, target.prefix(table, subtask), table.operator_id, table.table, table.schema)
            ]
            for subtask in subtasks
        }


def _tasks(rows: DataFrame, parallelism: int, max_parallelism: int) -> int:
    """Return the number of tasks: a multiple of the parallelism, so that each task has key groups of one subtask."""
    tasks: int = min(MOST_TASKS, rows.sparkSession.sparkContext.defaultParallelism * 2)
    each = max(1, min(-(-tasks // parallelism), max_parallelism // parallelism))
    return parallelism * each


def _key_group(keys: Sequence[Column], max_parallelism: int) -> Column:
    hashed = F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")
    return F.pmod(hashed, F.lit(max_parallelism)).cast("int")


class _InvalidRows(Exception):
    """The rows cannot be stored in the table. The text is part of the user's error message."""


class _WriteTask:
    """Function of a task: checks and writes its rows, and yields their entries."""

    def __init__(self, table: StateTable, target: TableTarget) -> None:
        self._table = table
        self._target = target

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        try:
            subtask, entries = self._write(_CheckedRows(self._table, batches), context.taskAttemptId())
            problem = ""
        except StopIteration:
            return  # no rows
        except _InvalidRows as refused:
            subtask, entries, problem = -1, [], str(refused)
        yield pa.record_batch(
            [
                pa.array([subtask], pa.int32()),
                pa.array([msgspec.msgpack.encode(entries)], pa.binary()),
                pa.array([problem], pa.string()),
            ],
            names=["subtask", "entries", "problem"],
        )

    def _write(self, rows: Iterator[pa.RecordBatch], number: int) -> tuple[int, list[StateEntry]]:
        """Write the rows, and return their subtask and entries. Raises StopIteration if there are none."""
        table, target = self._table, self._target
        first = next(rows)
        subtask = owner(int(first.column(0)[0].as_py()), target.parallelism, table.max_parallelism)
        content = _one_subtask(rows, first, owned_range(subtask, target.parallelism, table.max_parallelism))
        name = target.prefix(table, subtask), table.operator_id, table.table
        with SectionWriter(store_at(target.root), target.task_path(number)) as writer:
            return subtask, list(append_rows(writer, *name, table.schema, content))


def _one_subtask(
    rows: Iterator[pa.RecordBatch], first: pa.RecordBatch, groups: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    yield first
    for batch in rows:
        if int(batch.column(0)[-1].as_py()) > groups[1]:
            raise ProtocolViolation("a task", f"with key groups {groups}", "rows of another subtask")
        yield batch


class _CheckedRows(Iterator[pa.RecordBatch]):
    """Iterator that checks the rows of a table: keys must be unique, and nulls must be allowed by the table.

    The batches must be sorted by key group and key.
    """

    def __init__(self, table: StateTable, batches: Iterator[pa.RecordBatch]) -> None:
        self._table = table
        self._batches = batches
        self._last: list[pa.Array] | None = None

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        while batch.num_rows == 0:
            batch = next(self._batches)
        table = self._table
        assert table.key_count is not None
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(batch.columns, table.schema, strict=True)
        ]
        keys = range(1, 1 + table.key_count)
        for position in keys:
            columns[position] = normalize_floats(columns[position])
        self._check_nulls(columns)
        rows = pa.RecordBatch.from_arrays(columns, schema=table.schema)
        groups = key_groups(rows, range(1, 1 + (table.hash_key_count or 0)), table.max_parallelism)
        if not np.array_equal(groups, rows.column(0).to_numpy()):
            raise ProtocolViolation("a key group", "computed by Spark", f"another one for rows of {table.name}")
        self._check_keys([columns[position] for position in keys] or [pa.nulls(len(groups))])
        return rows

    def _check_nulls(self, columns: Sequence[pa.Array]) -> None:
        for column, field in zip(columns, self._table.schema, strict=True):
            if column.null_count and is_never_null(field.name, field):
                raise _InvalidRows(f"column {field.name} has a null, which the table cannot hold")

    def _check_keys(self, keys: list[pa.Array]) -> None:
        """Check that keys are unique. Equal keys follow each other; without key columns all rows have the same key."""
        if self._last is not None:
            keys = [pa.concat_arrays([last, key]) for last, key in zip(self._last, keys, strict=True)]
        count = len(keys[0])
        same = np.ones(count - 1, np.bool_)
        for leaf in (leaf for key in keys for leaf in _leaves(key)):
            same &= _equals_previous(leaf)
        if same.any():
            row = int(np.flatnonzero(same)[0])
            raise _InvalidRows(
                f"two rows have the key {_short_text([readable_objects(key.slice(row, 1))[0] for key in keys])}"
            )
        self._last = [key.slice(count - 1) for key in keys]


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_null(column.type):
        return
    if pa.types.is_struct(column.type):
        yield column.is_valid()
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_floating(column.type):
        yield column.view(pa.int32() if column.type.bit_width == 32 else pa.int64())
    else:
        yield column


def _equals_previous(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each value except the first one True if it equals the previous value. Nulls are equal."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    equal = pc.fill_null(pc.equal(before, after), False)
    return np.asarray(pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(after))).to_numpy(zero_copy_only=False))


def _short_text(values: Sequence[object]) -> str:
    text = ", ".join(map(repr, values))
    return f"({text})" if len(text) <= 200 else f"({text[:200]}...)"
