"""Values that stay as they came, against a dict: whatever is forgotten, little more is kept than what is in use."""

from __future__ import annotations

import threading
from random import Random

import numpy as np
import pyarrow as pa

from penstock.state.array_columns import ArrayColumns

KINDS = [pa.string(), pa.list_(pa.int64())]


def held(rows: int) -> ArrayColumns:
    values = ArrayColumns(KINDS, threading.Lock())
    values.reserve(rows)
    return values


def values_of(numbers: list[int]) -> list[pa.Array]:
    texts = [None if number % 7 == 0 else f"text {number}" for number in numbers]
    lists = [None if number % 5 == 0 else [number] * (number % 3) for number in numbers]
    return [pa.array(texts, KINDS[0]), pa.array(lists, KINDS[1])]


def check(values: ArrayColumns, model: dict[int, int], random: Random) -> None:
    rows = list(model)
    random.shuffle(rows)
    found = [values.take(column, np.array(rows, np.int64)) for column in range(2)]
    assert found == values_of([model[row] for row in rows])


def test_rows_hold_what_was_put_last_whatever_else_is_put_and_forgotten() -> None:
    for seed in range(8):
        random, model, values = Random(seed), dict[int, int](), held(3000)
        for step in range(150):
            rows = random.sample(range(3000), random.choice((1, 3, 30, 300)))
            if random.random() < 0.6:
                values.put(np.array(rows), values_of([row + step for row in rows]))
                model.update({row: row + step for row in rows})
            else:
                values.forget(np.array(rows))  # some of them were never put
                for row in rows:
                    model.pop(row, None)
            if step % 10 == 0:
                check(values, model, random)
        check(values, model, random)


def test_little_more_is_kept_than_what_is_in_use() -> None:
    values, text = held(200_000), "x" * 100
    for start in range(0, 200_000, 10):
        values.put(np.arange(start, start + 10), [pa.array([text] * 10), pa.array([[1]] * 10, KINDS[1])])
    full = values.nbytes
    assert len(values._parts) < 40
    assert full < 2.1 * 200_000 * (100 + 4 + 8 + 4 + 4 + 8)
    gone = np.flatnonzero(np.arange(200_000) % 20)
    for start in range(0, len(gone), 1000):
        values.forget(gone[start : start + 1000])
    assert values.nbytes - values_without_texts(values) < 2.1 / 20 * (full - values_without_texts(values))
    assert values.take(0, np.arange(0, 200_000, 20)).to_pylist() == [text] * 10_000
    values.forget(np.arange(0, 200_000, 20))
    assert values.nbytes == values_without_texts(values)


def test_what_is_overwritten_is_not_kept() -> None:
    values, once = held(20_000), 0  # so many that parts are not put together
    for round_ in range(8):
        values.put(np.arange(20_000), values_of(list(range(round_, 20_000 + round_))))
        once = once or values.nbytes
    assert values.nbytes < 2.1 * once


def values_without_texts(values: ArrayColumns) -> int:
    return values._positions.data.nbytes


def test_an_array_is_not_kept_for_the_sake_of_a_part_of_it() -> None:
    before = pa.total_allocated_bytes()
    large = pa.array(["x" * 1000] * 10_000)
    values = held(10)
    values.put(np.arange(10), [large.slice(5000, 10), pa.array([[1]] * 10, KINDS[1])])
    del large
    assert pa.total_allocated_bytes() - before < 100_000


def test_rows_that_nobody_writes_to_are_read_right_on_another_thread() -> None:
    values, lock = ArrayColumns(KINDS, lock := threading.Lock()), lock
    values.reserve(20_000)
    steady = np.arange(0, 20_000, 40)
    expected = values_of(steady.tolist())[0]
    values.put(np.arange(20_000), values_of(list(range(20_000))))
    wrong, done = list[int](), threading.Event()

    def read() -> None:
        while not done.is_set():
            with lock:
                found = values.take(0, steady)
            if found != expected:
                wrong.append(1)

    reader = threading.Thread(target=read)
    reader.start()
    others = np.setdiff1d(np.arange(20_000), steady)
    for _ in range(40):
        for start in range(0, len(others), 3000):
            values.forget(others[start : start + 3000])
        for start in range(0, len(others), 3000):
            rows = others[start : start + 3000]
            values.put(rows, values_of(rows.tolist()))
    done.set()
    reader.join()
    assert not wrong
