"""Nexmark's events in files of their bare columns, as ``job/EventBlock.java`` reads them.

Flink's own format for columns, Parquet, is not among what PyPI has of it. These blocks cost it less to read than any
format would: nothing is compressed, and nothing decoded that a query does not touch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.lib.nexmark.generator import AUCTION, BID, PERSON, events

KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}
BLOCK = 10_000
"""Events in one."""


def write(folder: Path, count: int) -> int:
    """So many events, in blocks; returns how many blocks."""
    assert count % BLOCK == 0, f"{count} events are not whole blocks of {BLOCK}"
    folder.mkdir(parents=True)
    for number in range(count // BLOCK):
        (folder / f"block-{number}").write_bytes(b"".join(parts(events(number * BLOCK, BLOCK))))
    return count // BLOCK


def parts(batch: pa.RecordBatch) -> Iterator[bytes]:
    kinds = batch.column("event_type")
    yield _ints(np.array([batch.num_rows]))
    yield _ints(kinds.to_numpy())
    for name, kind in KINDS.items():
        rows = batch.column(name).filter(pc.equal(kinds, kind))
        yield _ints(np.array([len(rows)]))
        for column in rows.flatten():
            yield from _column(column)
    yield from _column(batch.column("dateTime"))


def _column(column: pa.Array) -> Iterator[bytes]:
    """Times are milliseconds: Flink's watermarks know no finer ones, and Nexmark's events have none."""
    if pa.types.is_string(column.type):
        lengths = pc.binary_length(column).to_numpy()
        yield _ints(np.concatenate([[0], np.cumsum(lengths)]))
        yield "".join(column.to_pylist()).encode()
    elif pa.types.is_timestamp(column.type):
        micros = column.view(pa.int64()).to_numpy()
        assert not (micros % 1000).any(), "a time with a fraction of a millisecond"
        yield (micros // 1000).astype("<i8").tobytes()
    else:
        yield column.to_numpy().astype("<i8").tobytes()


def _ints(values: np.ndarray) -> bytes:
    return values.astype("<i4").tobytes()
