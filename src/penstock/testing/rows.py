"""The rows of a simulated job: one schema on every edge.

``origin`` and ``time`` say which row of a source it came from (a window's result: which window), ``key`` is what it is
hashed by, ``time`` its event time in microseconds, ``note`` what a count said about it. ``via`` and ``seq`` are stamped
by the subtask that emits it: who that is and how many rows it has emitted so far, this one included. Two and two share
a column, because columns are what a small batch costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.base import KEY_GROUP_COLUMN
from penstock.state.hashing import key_groups

ROW = pa.schema([(name, pa.int64()) for name in ("key", "time", "origin and note", "via and seq")])
KEY, TIME, ORIGIN_AND_NOTE, VIA_AND_SEQ = range(4)
ROW_BYTES = 8 * len(ROW)
MS = 1_000
"""Microseconds of event time per millisecond; rows of a source are one millisecond apart."""

_LOW = 1 << 24
"""Notes and sequence numbers are below this."""

Longs = npt.NDArray[np.int64]
Columns = tuple[list[int], list[int], list[int], list[int], list[int], list[int]]
"""Origins, keys, times, notes, vias and seqs."""


def batch_of(columns: Columns) -> pa.RecordBatch:
    origins, keys, times, notes, vias, seqs = columns
    longs = np.array((keys, times, origins, vias), np.int64)
    longs[ORIGIN_AND_NOTE:] *= _LOW
    longs[ORIGIN_AND_NOTE:] += (notes, seqs)
    return pa.RecordBatch.from_arrays([pa.array(column) for column in longs], schema=ROW)


def columns_of(batch: pa.RecordBatch) -> Columns:
    keys, times, origins, vias = (column.to_numpy() for column in batch.columns)
    return (
        (origins // _LOW).tolist(),
        keys.tolist(),
        times.tolist(),
        (origins % _LOW).tolist(),
        (vias // _LOW).tolist(),
        (vias % _LOW).tolist(),
    )


def seqs_of(batch: Any) -> Longs:
    seqs: Longs = batch.column(VIA_AND_SEQ).to_numpy() % _LOW
    return seqs


def via_of(vertex: int, subtask: int) -> int:
    """Who emitted a row, as one number."""
    return vertex * 64 + subtask


@cache
def group_of(key: int, max_parallelism: int) -> int:
    """The key group of one key."""
    one = pa.record_batch([pa.array([key], pa.int64())], names=["key"])
    return int(key_groups(one, (0,), max_parallelism)[0])


def state_schema(*names: str) -> pa.Schema:
    """Of a keyed state table; the first name is the key's."""
    return pa.schema([(KEY_GROUP_COLUMN, pa.int16()), *((name, pa.int64()) for name in names)])


def state_table(schema: pa.Schema, rows: Sequence[Sequence[int]], max_parallelism: int) -> pa.RecordBatch:
    """Rows without their key group (the key is first) as a table sorted by key group."""
    keyed = sorted(((group_of(row[0], max_parallelism), *row) for row in rows), key=lambda row: row[0])
    columns = list(zip(*keyed, strict=True)) or [()] * len(schema)
    arrays = [pa.array(np.array(column, f.type.to_pandas_dtype())) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def state_rows(table: pa.RecordBatch) -> list[tuple[int, ...]]:
    """The rows of a table without their key group."""
    return list(zip(*(column.to_pylist() for column in table.columns[1:]), strict=True))
