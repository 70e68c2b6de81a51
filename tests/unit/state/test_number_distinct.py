"""Numbering the distinct keys of a batch, whatever shortcut the values allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.keys import Words, number_distinct

SPREAD = 10**12
"""Values so far apart are numbered by hashing, not by a table."""


def check(words: list[Words], rows: int) -> None:
    codes, first = number_distinct(words, rows)
    keys = list(zip(*(word.tolist() for word in words), strict=True)) if words else [()] * rows
    assert len(codes) == rows
    assert sorted(set(codes.tolist())) == list(range(len(set(keys))))
    assert len({*zip(codes.tolist(), keys, strict=True)}) == len(set(keys)), "one number per key and one key per number"
    assert [keys.index(keys[row]) for row in first.tolist()] == first.tolist(), "the first row of each group"
    assert codes[first].tolist() == list(range(len(first)))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1), st.integers(0, 2)), max_size=40),
    st.lists(st.sampled_from([1, SPREAD]), min_size=3, max_size=3),
)
def test_equal_rows_have_one_number(rows: list[tuple[int, int, int]], scales: list[int]) -> None:
    check([np.array([row[n] for row in rows], np.int64) * scale for n, scale in enumerate(scales)], len(rows))


@pytest.mark.parametrize("scale", [1, SPREAD])
@pytest.mark.parametrize("odd", [None, 0, 255, 256, 999])
def test_a_word_that_follows_from_those_before_it_in_all_rows_but_one(scale: int, odd: int | None) -> None:
    starts = np.arange(1000, dtype=np.int64) // 300 * scale
    ends = starts + 600
    if odd is not None:
        ends[odd] += 1
    check([starts, ends], 1000)
    check([np.full(1000, 7, np.int64), starts, ends], 1000)


def test_nothing_to_tell_rows_apart_by() -> None:
    check([], 5)
    check([], 0)
    check([np.zeros(0, np.int64)], 0)
    check([np.full(5, 3, np.int64), np.full(5, -SPREAD, np.int64)], 5)
