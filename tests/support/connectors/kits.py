"""Checks that every source and every sink must pass; tests call them with a connector of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import cloudpickle
import msgspec
import pyarrow as pa

from penstock.connectors.base import Sink, SinkContext, Source, SourceReader
from penstock.model.commits import EpochCommit
from penstock.model.splits import Split
from penstock.snapshots.format.blobs import extract_blobs, insert_blobs

PATIENCE_S = 20.0
QUERY_ID = "9f1f5d3e-0000-4000-8000-000000000001"


def stored(split: Split) -> Split:
    """Return a value after a round trip through JSON, as a snapshot stores it."""
    return msgspec.json.decode(msgspec.json.encode(split), type=Split)


def stored_state(state: Any) -> Any:
    """Return a state after a round trip through a snapshot: blobs unchanged, the rest through JSON."""
    plain, blobs = extract_blobs(state)
    return insert_blobs(json.loads(json.dumps(plain)), [bytes(blob) for blob in blobs])


def discover_all(source: Source, parallelism: int = 2) -> list[Split]:
    """Every split there is now; the state goes through JSON between two looks."""
    splits: list[Split] = []
    state: Any = None
    while True:
        discovery = source.discover(state, parallelism)
        state = stored_state(discovery.state)
        splits += [stored(split) for split in discovery.splits]
        if not discovery.splits:
            return splits


def new_reader(source: Source) -> SourceReader:
    """A reader as a slot gets it: the source went through cloudpickle."""
    reader = cloudpickle.loads(cloudpickle.dumps(source)).create_reader()
    reader.open(0, 1)
    return reader


def read_rows(reader: SourceReader, max_rows: int = 1000, limit: int | None = None) -> list[tuple[Any, ...]]:
    """Rows until the splits are finished, or until ``limit`` rows; ``limit`` is never exceeded."""
    rows: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + PATIENCE_S
    while limit is None or len(rows) < limit:
        wanted = max_rows if limit is None else min(max_rows, limit - len(rows))
        batch = reader.poll(wanted, int(time.time() * 1000))
        if batch is not None:
            assert 0 < batch.num_rows <= wanted
            rows += rows_of(batch)
        elif not reader.snapshot() or reader.caught_up():
            break
        else:
            assert time.monotonic() < deadline, "the reader yields nothing and does not finish"
            time.sleep(0.001)
    return rows


def next_batch(reader: SourceReader, max_rows: int) -> pa.RecordBatch | None:
    """The next rows, however long they take; None at the end."""
    deadline = time.monotonic() + PATIENCE_S
    while (batch := reader.poll(max_rows, 0)) is None and reader.snapshot():
        assert time.monotonic() < deadline, "the reader yields nothing and does not finish"
    return batch


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    columns = [_values(column) for column in batch.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * batch.num_rows


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Dates and timestamps as numbers: Python's calendar is shorter than Arrow's."""
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def check_replay(source: Source, steps: int = 1, max_rows: int = 1000) -> list[tuple[Any, ...]]:
    """Check from every position that the rows before it and those that a new reader reads after it are the full read,
    in order.

    Returns:
        The rows of the full read.
    """
    splits = discover_all(source)
    reader = new_reader(source)
    for split in splits:
        reader.add_split(split)
    expected = read_rows(reader, max_rows)
    reader.close()
    for cut in range(0, len(expected) + 1, steps):
        first = new_reader(source)
        for split in splits:
            first.add_split(split)
        before = read_rows(first, max_rows, limit=cut)
        unfinished = [stored(split) for split in first.snapshot()]
        first.close()
        second = new_reader(source)
        for split in unfinished:
            second.add_split(split)
        after = read_rows(second, max_rows)
        second.close()
        assert repr(before + after) == repr(expected), f"cut after {cut} rows"
    return expected


_TOKENS = count(1)
"""Each writer has a token of its own, as slots have random ones."""


def stage(
    sink: Sink, rows: Mapping[int, pa.RecordBatch], epoch: int, generation: int = 1, query_id: str = QUERY_ID
) -> EpochCommit:
    """One epoch with one batch per subtask, staged by writers that went through cloudpickle."""
    messages: dict[int, bytes] = {}
    for subtask, batch in rows.items():
        writer = cloudpickle.loads(cloudpickle.dumps(sink)).create_writer()
        writer.open(SinkContext(query_id, generation, subtask, max(rows) + 1, f"{next(_TOKENS):08x}"))
        writer.write(batch)
        message = writer.prepare(epoch)
        writer.close()
        assert message is not None
        messages[subtask] = message
    return EpochCommit(query_id, epoch, messages)


def check_commits_once(sink: Sink, permit: EpochCommit, visible: Callable[[], int], rows: int) -> None:
    """Invisible before its commit, visible once after it, and not twice after the same commit by a new driver."""
    before = visible()
    for _ in range(3):
        committer = sink.create_committer()
        committer.open(permit.query_id)
        if _ == 0:
            assert visible() == before
        committer.commit(permit)
        committer.close()
        assert visible() == before + rows
