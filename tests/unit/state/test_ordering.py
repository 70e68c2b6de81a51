"""Orders by integers are numpy's stable ones, whatever the range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.ordering import order_by

NUMBERS = st.lists(st.one_of(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 2**40)), max_size=40)


@given(NUMBERS)
def test_one_key_is_sorted_as_numpy_sorts_it(numbers: list[int]) -> None:
    key = np.array(numbers, np.int64)
    assert order_by(key).tolist() == np.argsort(key, kind="stable").tolist()
    assert key.tolist() == numbers


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-(2**62), 2**62), st.integers(0, 1)), max_size=40))
def test_of_several_keys_the_first_counts_most(rows: list[tuple[int, int, int]]) -> None:
    keys = [np.array([row[place] for row in rows], np.int64) for place in range(3)]
    assert order_by(*keys).tolist() == np.lexsort(keys[::-1]).tolist()


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32])
def test_narrow_integers_have_room_for_the_rows_beside_them(kind: type) -> None:
    key = np.random.default_rng(1).integers(-100, 100, 3000).astype(kind)
    assert order_by(key).tolist() == np.argsort(key, kind="stable").tolist()
