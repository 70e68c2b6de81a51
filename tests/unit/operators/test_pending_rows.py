"""Rows of an unfinished slice in snapshots: by reference, whole, and in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import CorruptSnapshot
from penstock.operators.stateful import unprocessed_rows as waiting
from penstock.operators.stateful.unprocessed_rows import UnprocessedRows
from penstock.operators.stateful.variables import unprocessed_schema
from penstock.state.hashing import key_groups
from penstock.state.stored_form import stored_schema
from penstock.state.table import StoredRows

ROWS = pa.schema([("n", pa.int64()), ("k", pa.string())])
GROUPS = 16


def table() -> UnprocessedRows:
    schema = stored_schema(unprocessed_schema(pa.schema([ROWS.field("k")]), ROWS))
    return UnprocessedRows(schema, [1], ROWS, GROUPS)


def some(count: int) -> pa.RecordBatch:
    keys = [None if n % 5 == 0 else f"k{n % 7}" for n in range(count)]
    return pa.record_batch([pa.array(range(count), pa.int64()), pa.array(keys)], schema=ROWS)


def test_rows_are_put_in_order_when_they_are_written_and_come_back_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "_AT_ONCE", 3)
    batch = some(50)
    capture = table().capture(batch)
    assert capture.rows == 50
    halves = [list(capture.base(0, 6)), list(capture.base(7, GROUPS - 1))]
    for half, bounds in zip(halves, ((0, 6), (7, GROUPS - 1)), strict=True):
        groups = [group for piece in half for group in piece.column(0).to_pylist()]
        assert groups == sorted(groups)
        assert groups
        assert min(groups) >= bounds[0]
        assert max(groups) <= bounds[1]
        assert all(piece.num_rows <= 3 and piece.schema == capture.schema for piece in half)
        for piece in half:
            assert piece.column(0).to_pylist() == key_groups(piece, [1], GROUPS).tolist()
    pieces = [StoredRows(piece, False) for half in halves for piece in half]
    assert table().restored(reversed(pieces)) == batch
    assert table().restored([]) is None


def test_nothing_is_written_as_long_as_there_are_no_rows() -> None:
    rows = table()
    assert rows.capture(None).changed_since(0) == 0
    assert rows.capture(some(3)).changed_since(1) is None
    assert rows.capture(None).changed_since(2) is None
    assert rows.capture(None).changed_since(2) is None, "of a snapshot that was given up nothing is the base"
    assert rows.capture(None).changed_since(3) == 0
    loaded = table()
    loaded.restored([StoredRows(piece, False) for piece in rows.capture(some(3)).base(0, GROUPS - 1)])
    assert loaded.capture(None).changed_since(0) is None, "the snapshot it began with had some"


def test_rows_that_are_stored_as_changes_are_a_corrupt_snapshot() -> None:
    [piece] = table().capture(some(3)).base(0, GROUPS - 1)
    with pytest.raises(CorruptSnapshot, match="stored as changes"):
        table().restored([StoredRows(piece, True)])
