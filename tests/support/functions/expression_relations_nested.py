"""Edge values of arrays, maps and structs."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa

INF, NAN = float("inf"), float("nan")

INTEGERS: list[Any] = [None, [], [None], [1], [1, 2, 3], [3, 1, None, 1], [None, 2**31 - 1, -(2**31), 7, 7, None]]
DOUBLES: list[Any] = [
    None,
    [],
    [NAN],
    [0.0, -0.0],
    [1.5, None, NAN, NAN],
    [-0.0, INF, -INF, None],
    [2.5, 0.0, NAN, -0.0],
]
TEXTS: list[Any] = [None, [], [None], [""], ["b", "a", "é"], ["a", None, "a", "😀"], ["abc", "ab", "", None, "Z"]]
STRUCTS: list[Any] = [
    None, [], [None], [{"a": 1, "b": "x"}], [{"a": None, "b": "y"}, None, {"a": 1, "b": None}],
    [{"a": 2, "b": "x"}, {"a": 1, "b": "z"}, {"a": 1, "b": "x"}], [{"a": 1, "b": "x"}, {"a": 1, "b": "x"}],
]  # fmt: skip
LISTS: list[Any] = [None, [], [None], [[]], [[1, 2], [1]], [[None, 1], None, [1]], [[2], [1, None], [1, None], [], [1]]]
DECIMALS: list[Any] = [
    None if values is None else [None if v is None else Decimal(v) for v in values]
    for values in (None, [], [None], ["0.00"], ["1.50", "-2.25"], ["1.50", None, "1.50"], ["99999999.99", "0.01"])
]
MAPS: list[Any] = [None, [], [(1, "a")], [(1, None), (2, "b")], [(3, "c"), (1, "x"), (-1, "")], [(2, "b")], [(0, "z")]]
FLOAT_MAPS: list[Any] = [None, [], [(0.0, 1)], [(NAN, 2), (1.5, None)], [(1.5, 3), (2.5, 4)], [(INF, 5)], [(-1.0, 6)]]
NUMBERS: list[Any] = [None, 1, 0, -1, 2, -3, 7]
FLOATS: list[Any] = [None, NAN, -0.0, 0.0, 1.5, INF, 2.5]
WORDS: list[Any] = [None, "", "a", "b", "é", "ab", "Z"]
PAIRS: list[Any] = [
    None, {"a": 1, "b": "x"}, {"a": None, "b": None}, {"a": 1, "b": None}, {"a": 2, "b": "x"}, {"a": 1, "b": "z"},
    {"a": None, "b": "y"},
]  # fmt: skip

_PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.list_(pa.int32()), INTEGERS),
    "d": (pa.list_(pa.float64()), DOUBLES),
    "s": (pa.list_(pa.string()), TEXTS),
    "st": (pa.list_(_PAIR), STRUCTS),
    "ll": (pa.list_(pa.list_(pa.int32())), LISTS),
    "dec": (pa.list_(pa.decimal128(10, 2)), DECIMALS),
    "m": (pa.map_(pa.int32(), pa.string()), MAPS),
    "fm": (pa.map_(pa.float64(), pa.int32()), FLOAT_MAPS),
    "n": (pa.int32(), NUMBERS),
    "f": (pa.float64(), FLOATS),
    "w": (pa.string(), WORDS),
    "p": (_PAIR, PAIRS),
}


def collections() -> pa.Table:
    """Columns ``x_<name>`` and ``y_<name>`` with all pairs of edge values, and ``id``, the row's number."""
    pairs = list(itertools.product(range(7), repeat=2))
    columns: dict[str, pa.Array] = {"id": pa.array(range(len(pairs)), pa.int32())}
    for name, (data_type, values) in _COLUMNS.items():
        columns[f"x_{name}"] = pa.array([values[p] for p, _ in pairs], data_type)
        columns[f"y_{name}"] = pa.array([values[q] for _, q in pairs], data_type)
    return pa.table(columns)
