"""The edge values that expressions are compared on: every pair of them, for every type."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pyarrow as pa

INF = float("inf")
NAN = float("nan")


def _integers(bits: int) -> list[int | None]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [None, low, low + 1, -7, -1, 0, 1, 3, high // 2 + 1, high - 1, high]


DOUBLES = [None, NAN, -INF, INF, -0.0, 0.0, 5e-324, -2147483648.5, 1.7976931348623157e308, 9.223372036854775807e18, 2.5]
FLOATS = [None, NAN, -INF, INF, -0.0, 0.0, 1.401298464324817e-45, -2147483648.0, 3.4028234663852886e38, 127.5, -2.5]
DECIMALS = [None, "0.00", "-0.01", "99999999.99", "-99999999.99", "0.05", "2.50", "-2.50", "3.00", "1.00", "127.99"]
LARGE_DECIMALS = [
    None, "0", "1e-10", "-1e-10", "9999999999999999999999999999.9999999999",
    "-9999999999999999999999999999.9999999999", "9223372036854775807", "-9223372036854775808.5", "1.5", "-2.5", "3",
]  # fmt: skip

_PAIRED: dict[str, tuple[pa.DataType, list[object]]] = {
    "b": (pa.bool_(), [None, True, False, None, True, False, True, False, True, False, None]),
    "i8": (pa.int8(), list(_integers(8))),
    "i16": (pa.int16(), list(_integers(16))),
    "i32": (pa.int32(), list(_integers(32))),
    "i64": (pa.int64(), list(_integers(64))),
    "f32": (pa.float32(), list(FLOATS)),
    "f64": (pa.float64(), list(DOUBLES)),
    "dec": (pa.decimal128(10, 2), [None if v is None else Decimal(v) for v in DECIMALS]),
    "big": (pa.decimal128(38, 10), [None if v is None else Decimal(v) for v in LARGE_DECIMALS]),
}


def numbers() -> pa.Table:
    """Columns ``x_<type>`` and ``y_<type>`` with all pairs of edge values, and ``id``, the row's number."""
    pairs = list(itertools.product(range(11), repeat=2))
    columns: dict[str, pa.Array] = {"id": pa.array(range(len(pairs)), pa.int32())}
    for name, (data_type, values) in _PAIRED.items():
        columns[f"x_{name}"] = pa.array([values[p] for p, _ in pairs], data_type)
        columns[f"y_{name}"] = pa.array([values[q] for _, q in pairs], data_type)
    return pa.table(columns)
