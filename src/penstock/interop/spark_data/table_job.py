"""Writes one state table from a DataFrame, as a Spark job: rows go to the tasks of their key groups, and each task
writes its sections into a file of its own.

The key group is computed in Spark's SQL, by the hash that it shares with Penstock, and again where rows are written.
Whatever a task leaves behind that failed or ran twice, nobody refers to.
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
"""Of a job, at most; fewer if the session runs fewer side by side."""
MAX_TABLES = 1000
"""Of one snapshot: files of empty tables have numbers below."""
_RESULT = "subtask int, entries binary, problem string"
Entries = dict[int, list[StateEntry]]
"""By subtask."""


@dataclass(frozen=True)
class Target:
    """Where a table goes: a snapshot's place in a location.

    Attributes:
        root: as ``store_at`` opens it.
        first_file: the lowest number of a data file.
        vertex: of the table's operator.
    """

    root: str
    first_file: int
    generation: int
    checkpoint: int
    parallelism: int
    vertex: int

    def prefix(self, table: StateTable, subtask: int) -> str:
        """What the identities of sections begin with."""
        place = f"g{self.generation}/c{self.checkpoint}/{SubtaskId(self.vertex, subtask)}"
        return f"{place}/state/{table.operator_id}/{table.table}"

    def path(self, number: int) -> str:
        """A data file of this snapshot's, beside those of its slots."""
        return state_path(self.generation, self.checkpoint, self.first_file + self.parallelism + 1 + number)

    def task_path(self, attempt: int) -> str:
        """The file of a task; no two attempts of a session have one number."""
        return self.path(MAX_TABLES + attempt)


def write_table(rows: DataFrame, table: StateTable, target: Target) -> Entries:
    """Write all rows, which have the table's columns but for the key group, by position; blocks until it is done.

    Returns:
        What subtasks have of the table; those without rows are not there.

    Raises:
        DataError: two rows have the same key, or a null is where none may be; the first that was found is said.
    """
    assert table.key_count is not None
    assert table.hash_key_count is not None
    ship_to_cluster(rows.sparkSession)
    tasks = _tasks(rows, target.parallelism, table.max_parallelism)
    columns = [f"c{position}" for position in range(len(table.schema) - 1)]
    renamed = rows.toDF(*columns)
    group = _key_group([F.col(name) for name in columns[: table.hash_key_count]], table.max_parallelism)
    grouped = renamed.select(group.alias(KEY_GROUP_COLUMN), *columns)
    place = F.floor(F.col(KEY_GROUP_COLUMN) * F.lit(tasks) / F.lit(table.max_parallelism)).cast("int")
    sorted_rows = grouped.repartitionById(tasks, place).sortWithinPartitions(
        KEY_GROUP_COLUMN, *columns[: table.key_count]
    )
    found: Entries = {}
    for row in sorted_rows.mapInArrow(_Task(table, target), _RESULT).collect():
        if row.problem:
            raise DataError(f"state table {table.name}: {row.problem}")
        found.setdefault(row.subtask, []).extend(decode_msgpack(row.entries, list[StateEntry]))
    return {subtask: sorted(entries, key=lambda one: one.key_group_first) for subtask, entries in found.items()}


def write_empty(table: StateTable, target: Target, store: Store, path: str, subtasks: Sequence[int]) -> Entries:
    """That these subtasks have no rows of the table, in a file of its own."""
    with SectionWriter(store, path) as writer:
        return {
            subtask: [
                append_empty_table(writer, target.prefix(table, subtask), table.operator_id, table.table, table.schema)
            ]
            for subtask in subtasks
        }


def _tasks(rows: DataFrame, parallelism: int, max_parallelism: int) -> int:
    """A multiple of the parallelism, so that a task's key groups are one subtask's."""
    wanted: int = min(MOST_TASKS, rows.sparkSession.sparkContext.defaultParallelism * 2)
    each = max(1, min(-(-wanted // parallelism), max_parallelism // parallelism))
    return parallelism * each


def _key_group(keys: Sequence[Column], max_parallelism: int) -> Column:
    hashed = F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")
    return F.pmod(hashed, F.lit(max_parallelism)).cast("int")


class _Refused(Exception):
    """What is wrong with the rows, for the user."""


class _Task:
    """What each task does with its rows: check, write, and say where they are."""

    def __init__(self, table: StateTable, target: Target) -> None:
        self._table = table
        self._target = target

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        try:
            subtask, entries = self._written(_CheckedRows(self._table, batches), context.taskAttemptId())
            problem = ""
        except StopIteration:
            return  # no rows
        except _Refused as refused:
            subtask, entries, problem = -1, [], str(refused)
        yield pa.record_batch(
            [
                pa.array([subtask], pa.int32()),
                pa.array([msgspec.msgpack.encode(entries)], pa.binary()),
                pa.array([problem], pa.string()),
            ],
            names=["subtask", "entries", "problem"],
        )

    def _written(self, rows: Iterator[pa.RecordBatch], number: int) -> tuple[int, list[StateEntry]]:
        """Whose rows they are, and where they lie now. Raises StopIteration if there are none."""
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
    """Rows in the table's columns, sorted by key group and key: none twice, nulls only where they may be."""

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
                raise _Refused(f"column {field.name} has a null, which the table cannot hold")

    def _check_keys(self, keys: list[pa.Array]) -> None:
        """Equal keys follow each other. Without key columns all rows have one key."""
        if self._last is not None:
            keys = [pa.concat_arrays([last, key]) for last, key in zip(self._last, keys, strict=True)]
        count = len(keys[0])
        same = np.ones(count - 1, np.bool_)
        for leaf in (leaf for key in keys for leaf in _leaves(key)):
            same &= _repeated(leaf)
        if same.any():
            row = int(np.flatnonzero(same)[0])
            raise _Refused(f"two rows have the key {_said([readable_objects(key.slice(row, 1))[0] for key in keys])}")
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


def _repeated(column: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether a value is the one before it; null is."""
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    equal = pc.fill_null(pc.equal(before, after), False)
    return np.asarray(pc.or_(equal, pc.and_(pc.is_null(before), pc.is_null(after))).to_numpy(zero_copy_only=False))


def _said(values: Sequence[object]) -> str:
    text = ", ".join(map(repr, values))
    return f"({text})" if len(text) <= 200 else f"({text[:200]}...)"
