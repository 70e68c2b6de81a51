"""Python functions are called once per distinct row of arguments, and never for a null or for what is not selected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.functions.core.vectors import map_distinct


def test_once_per_distinct_row() -> None:
    asked: list[tuple[object, ...]] = []

    def joined(*values: object) -> str:
        asked.append(values)
        return "/".join(map(str, values))

    left = pa.array(["a", "b", "a", None, "a", "c", "a"] * 100)
    right = pa.array([1, 1, 1, 1, None, 2, 3] * 100)
    third = pa.array([0.0, -0.0, 0.0, 1.0, 1.0, float("nan"), 5.0] * 100)
    rows = np.array([True, True, True, True, True, True, False] * 100)
    found = map_distinct(joined, [left, right, third], pa.string(), rows)
    assert found.to_pylist() == ["a/1/0.0", "b/1/-0.0", "a/1/0.0", None, None, "c/2/nan", None] * 100
    assert len(asked) == 3
    asked.clear()
    assert map_distinct(joined, [left], pa.string(), rows).to_pylist()[:7] == ["a", "b", "a", None, "a", "c", None]
    assert sorted(asked) == [("a",), ("b",), ("c",)]


def test_many_columns_of_many_values() -> None:
    columns = [pa.array(np.random.default_rng(seed).integers(0, 2**40, 3000)) for seed in range(9)]
    found = map_distinct(lambda *values: sum(values), columns, pa.int64(), None)
    assert found.to_pylist() == [sum(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
