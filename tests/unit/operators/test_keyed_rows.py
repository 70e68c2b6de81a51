"""Rows by key: whose turn it is."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.stateful.keyed_rows import KeyedRows


def batch(*pairs: tuple[int | None, int]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], ["key", "value"])


def turns(rows: KeyedRows) -> list[tuple[int | None, list[int]]]:
    """Return the values by key."""
    begins = [0, *rows.ends]
    values = rows.batch.column("value").to_pylist()
    keys = rows.keys[0].to_pylist()
    return [(key, values[begin:end]) for key, begin, end in zip(keys, begins, rows.ends, strict=False)]


def test_keys_have_their_turns_in_the_order_in_which_they_came() -> None:
    rows = KeyedRows.of(batch((9, 1), (None, 2), (3, 3), (9, 4)), [0])
    assert turns(rows) == [(9, [1, 4]), (None, [2]), (3, [3])]


def test_who_waits_keeps_the_turn_and_has_all_rows_then() -> None:
    rows = KeyedRows.of(batch((9, 1), (5, 2), (3, 3), (5, 4)), [0])
    rows.processed = 1
    with_rows = rows.with_rows(batch((1, 5), (3, 6), (9, 7), (5, 8)), [0])
    assert turns(with_rows) == [(5, [2, 4, 8]), (3, [3, 6]), (1, [5]), (9, [7])]
    assert (with_rows.processed, with_rows.begin) == (0, 0)
