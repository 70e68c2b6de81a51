"""Arrays that grow, and the index over hashes: growth in steps, removal, hashes that collide."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from penstock.state import growable_array, index
from penstock.state.growable_array import GrowableArray
from penstock.state.index import HashIndex
from penstock.state.row_numbers import RowNumbers


@pytest.mark.parametrize("held", [False, True])
def test_pages_grow_without_losing_anything_also_while_someone_looks(
    monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    monkeypatch.setattr(growable_array, "_MAPPED_BYTES", 8192)
    array, views = GrowableArray(np.int64), []
    for size in range(0, 20_000, 500):
        array.reserve(size + 500)
        assert (array.data[size : size + 500] == 0).all()
        array.data[size : size + 500] = np.arange(size, size + 500)
        if held:
            views.append(array.data[: size + 500])
    assert (array.data[:20_000] == np.arange(20_000)).all()
    assert all((view == np.arange(len(view))).all() for view in views)


class Index:
    """Keys are their hashes' preimages by row."""

    def __init__(self, bits: int = 64) -> None:
        self.keys = np.zeros(0, np.int64)
        self.mask = np.uint64((1 << bits) - 1)
        self.index = HashIndex(lambda rows: self.hashes(self.keys[rows]))

    def hashes(self, keys: Any) -> Any:
        mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9) & self.mask

    def insert(self, keys: Any) -> None:
        rows = np.arange(len(self.keys), len(self.keys) + len(keys))
        self.keys = np.concatenate([self.keys, keys])
        self.index.insert(rows, self.hashes(keys))

    def find(self, keys: Any) -> Any:
        return self.index.find(self.hashes(keys), lambda rows, asked: self.keys[rows] != keys[asked])


def test_the_index_grows_by_splitting_a_few_segments_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    table, most = Index(), []
    real = HashIndex._split
    monkeypatch.setattr(HashIndex, "_split", lambda self, count: most.append(count) or real(self, count))
    for start in range(0, 200_000, 2000):
        table.insert(np.arange(start, start + 2000))
    assert table.find(np.arange(200_000)).tolist() == list(range(200_000))
    assert (table.find(np.arange(200_000, 210_000)) == -1).all()
    assert table.index._segments > 100
    assert max(most) <= 3


def test_slots_of_removed_keys_are_used_again_without_growing() -> None:
    table = Index()
    for start in range(0, 300_000, 1000):
        table.insert(np.arange(start, start + 1000))
        rows = np.arange(start, start + 1000)
        table.index.remove(rows, table.hashes(table.keys[rows]))
        assert (table.find(table.keys[rows]) == -1).all()
    assert table.index._segments <= 4
    assert table.index._live == 0


def test_hashes_that_collide_are_told_apart_by_their_keys() -> None:
    table = Index(bits=3)
    table.insert(np.arange(300))
    assert table.find(np.arange(310)).tolist() == [*range(300), *[-1] * 10]
    table.index.remove(np.arange(0, 300, 2), table.hashes(table.keys[::2]))
    assert table.find(np.arange(300)).tolist() == [n if n % 2 else -1 for n in range(300)]


def test_a_segment_that_many_hashes_fall_into_is_split_before_it_is_full() -> None:
    table = Index()
    table.mask = ~np.uint64(7)  # one segment in eight gets them all
    for start in range(0, 16_000, 500):
        table.insert(np.arange(start, start + 500))
        assert (table.index._used <= index._CROWDED).all()
    assert table.find(np.arange(16_000)).tolist() == list(range(16_000))


def test_new_rows_of_a_key_group_lie_together_and_no_number_is_given_twice() -> None:
    chance, numbers = np.random.default_rng(0), RowNumbers(16)
    group_of: dict[int, int] = {}
    for _ in range(200):
        groups = chance.integers(0, 16, int(chance.integers(1, 400))).astype(np.int16)
        rows = numbers.take(groups).tolist()
        assert not group_of.keys() & set(rows)
        assert max(rows) < numbers.size
        group_of.update(zip(rows, groups.tolist(), strict=True))
    by_row = [group_of[row] for row in sorted(group_of)]
    changes = sum(a != b for a, b in pairwise(by_row))
    assert changes < len(by_row) / 20
    assert numbers.size < 1.2 * len(group_of)
    gone = np.array(sorted(group_of)[:50])
    numbers.free(gone)
    assert sorted(numbers.take(np.zeros(50, np.int16)).tolist()) == gone.tolist()
