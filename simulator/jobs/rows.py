"""Rows of a simulated job: one schema on every edge.

``origin`` and ``time`` identify the row of a source that it came from (the window, for a result of a window). ``key``
is its hash key, ``time`` its event time in microseconds, ``note`` the result of a count. ``emitter`` and ``seq`` are
stamped by the subtask that emits it: its identity and the number of rows that it has emitted so far, this one included.
Columns that the job does not use share columns of two longs (origin and note, emitter and seq), because small batches
cost time per column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.hashing import key_groups
from penstock.state.stored_form import KEY_GROUP_COLUMN, BatchCapture

_LONG, _TWO_LONGS = pa.int64(), pa.binary(16)
ROW = pa.schema([("key", _LONG), ("time", _LONG), ("origin, note, emitter and seq", _TWO_LONGS)])
KEY, TIME, REST = range(3)
ROW_BYTES = 32
MS = 1_000
"""Microseconds of event time per millisecond; rows of a source are one millisecond apart."""

_LOW = 1 << 24
"""Notes and sequence numbers are below this."""

Longs = npt.NDArray[np.int64]
Columns = tuple[list[int], list[int], list[int], list[int], list[int], list[int]]
"""Origins, keys, times, notes, emitters and seqs."""


def batch_of(columns: Columns) -> pa.RecordBatch:
    origins, keys, times, notes, emitters, seqs = columns
    rest = np.array((origins, emitters), np.int64)
    rest *= _LOW
    rest += (notes, seqs)
    arrays = [
        pa.Array.from_buffers(kind, len(keys), [None, pa.py_buffer(longs)])
        for kind, longs in (
            (_LONG, np.array(keys, np.int64)),
            (_LONG, np.array(times, np.int64)),
            (_TWO_LONGS, rest.T.copy()),
        )
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW)


def columns_of(batch: pa.RecordBatch) -> Columns:
    high, low = np.divmod(_rest(batch), _LOW)
    origins, emitters = high.T.tolist()
    notes, seqs = low.T.tolist()
    return origins, batch.column(KEY).to_pylist(), batch.column(TIME).to_pylist(), notes, emitters, seqs


def seqs_of(batch: Any) -> Longs:
    seqs: Longs = _rest(batch)[:, 1] % _LOW
    return seqs


def _rest(batch: Any) -> Longs:
    """A row of two longs for each."""
    column = batch.column(REST)
    longs = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    return longs[column.offset : column.offset + len(column)]


def emitters_of(batch: Any) -> Longs:
    emitters: Longs = _rest(batch)[:, 1] // _LOW
    return emitters


def emitter_of(vertex: int, subtask: int, generation_number: int = 0) -> int:
    """Return the identity of an emitting subtask as one number.

    ``generation_number`` tells subtasks before and after a rescale apart.
    """
    return (generation_number * 64 + vertex) * 64 + subtask


def vertex_of(emitter: int) -> int:
    return emitter // 64 % 64


def name_of(emitter: int) -> str:
    return f"v{vertex_of(emitter)}[{emitter % 64}]" + (f" of generation {emitter // 4096}" if emitter >= 4096 else "")


@cache
def group_of(key: int, max_parallelism: int) -> int:
    """The key group of one key."""
    one = pa.record_batch([pa.array([key], pa.int64())], names=["key"])
    return int(key_groups(one, (0,), max_parallelism)[0])


def state_schema(*names: str) -> pa.Schema:
    """Return the schema of a keyed state table; the first name is that of the key."""
    return pa.schema([(KEY_GROUP_COLUMN, pa.int16()), *((name, pa.int64()) for name in names)])


def state_table(schema: pa.Schema, rows: Sequence[Sequence[int]], max_parallelism: int) -> BatchCapture:
    """Rows without their key group (the key is first) as a table sorted by key group."""
    groups = np.array([group_of(row[0], max_parallelism) for row in rows], np.int16)
    order = np.argsort(groups, kind="stable")
    longs = np.array(rows, np.int64).reshape(-1, len(schema) - 1).T
    columns = [pa.array(column[order]) for column in (groups, *longs)]
    return BatchCapture(pa.RecordBatch.from_arrays(columns, schema=schema))


def state_rows(pieces: Iterable[pa.RecordBatch]) -> list[tuple[int, ...]]:
    """The rows of a table without their key group."""
    return [row for table in pieces for row in zip(*(column.to_pylist() for column in table.columns[1:]), strict=True)]
