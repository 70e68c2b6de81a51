"""Texts as words: what comes back, what is equal, and the hash of every length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.state.texts import Texts, TextStore

LENGTHS = [0, 1, 3, 4, 5, 7, 8, 9, 12, 16, 23, 24, 31, 32, 33, 40, 63, 64, 65, 100, 1000]


@given(st.lists(st.none() | st.binary(max_size=80), max_size=20), st.integers(0, 5))
def test_texts_come_back_as_they_were(values: list[bytes | None], skipped: int) -> None:
    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array(values, kind).slice(skipped)
        texts = Texts.of(array)
        assert texts.to_arrow(array.is_valid().to_numpy(zero_copy_only=False), kind).equals(array)
        rows = np.arange(len(array))[::-1].copy()
        backwards = [value or b"" for value in array.to_pylist()][::-1]
        assert texts.take(rows).to_arrow(None, kind).to_pylist() == backwards


def test_hashes_are_those_of_the_library_at_every_length() -> None:
    chance = np.random.default_rng(1)
    values = [chance.bytes(length) for length in LENGTHS * 3]
    seeds = chance.integers(0, 2**63, len(values)).astype(np.uint64)
    expected = [xxhash.xxh64_intdigest(value, seed) for value, seed in zip(values, seeds.tolist(), strict=True)]
    assert Texts.of(pa.array(values, pa.binary())).hashes(seeds).tolist() == expected
    same_length = [chance.bytes(20) for _ in values]
    expected = [xxhash.xxh64_intdigest(value, seed) for value, seed in zip(same_length, seeds.tolist(), strict=True)]
    assert Texts.of(pa.array(same_length, pa.binary())).hashes(seeds).tolist() == expected


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_equal_hashes_do_not_make_texts_equal(length: int) -> None:
    store = TextStore()
    texts = Texts.of(pa.array([b"a" * length, b"", b"a" * (length - 1) + b"b"], pa.binary()))
    collide = np.zeros(3, np.uint64)
    store.reserve(3, texts)
    store.put(np.arange(3), texts, collide)
    for row in range(3):
        wrong = store.differ(np.full(3, row), texts, collide, np.arange(3))
        assert wrong.tolist() == [row != other for other in range(3)]


def test_room_of_removed_texts_is_taken_by_texts_of_as_many_words() -> None:
    store = TextStore()
    for round_ in range(20):
        texts = Texts.of(pa.array([f"{round_}{'x' * (n % 40)}" for n in range(200)]))
        store.reserve(200, texts)
        store.put(np.arange(200), texts, np.zeros(200, np.uint64))
        assert store.take(np.arange(200)).to_arrow(None, pa.string()).to_pylist() == [
            f"{round_}{'x' * (n % 40)}" for n in range(200)
        ]
        store.free(np.arange(200))
    assert store._used <= 2 * 200 * 6
