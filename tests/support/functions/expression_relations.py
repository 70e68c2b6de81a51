"""The edge values that expressions are compared on: every pair of them, for every type."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import itertools
import unicodedata
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


TEXTS = [
    None, "", " ", "a", "A", "abc", "aXbXc", "  padded  ", "\tab\n", "aaa", "a,b,,c,", ",", "a.b.c", "a_b%c", "a/%b",
    "ß", "ǆ", "İstanbul", "ΑΣ", "σΑΣ.", "ﬁn", "é", "e\u0301", "日本語", "😀x😀", "\U0001f468\u200d\U0001f469", "a\nb",
    "a\r\n", "a\r", "\u2028a", "line\n", "\x00nul\x7f", "\u00a0nbsp\u00a0", "100%", "a\\b", "ab" * 20, "tÄst", "ŉ",
]  # fmt: skip
PARTS = [None, "", "a", "b", "X", "😀", "aa", ",", "ab", "c", "%", ".", "é"]
COUNTS = [None, -3, -1, 0, 1, 2, 3, 7, 2147483647, -2147483648]

NUMERALS = [
    None, "", " ", "0", "-0", "+7", " 12 ", "\t12\n", "\x7f12\x00", "\u00a012", "1 2", "12.", ".5", "12.7", "-12.7", ".",
    "-", "+", "--1", "1e3", "1E-3", "1.e2", "e3", "127", "128", "-128", "-129", "32768", "2147483647", "2147483648",
    "-2147483649", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "000000000000000000000000012",
    "99999999999999999999999999999999999999", "999999999999999999999999999999999999999", "0x1F", "0x1p3", "0X.8P-1f",
    "1f", "1.5D", "1L", "nan", "NaN", "-NaN", "inf", "-Infinity", "+INF", "infinityx", "1e400", "-1e400", "1e-400",
    "4.9e-324", "2.4703282292062328e-324", "1.7976931348623159e308", "16777217.0000000001", "16777217", "3.4028235677973366e38",
    "3.4028235677973365e38", "1.401298464324817e-45", "7.006492321624085e-46", "7.006492321624086e-46", "１２", "1_000", "1,5",
    "true", "TRUE", " t ", "yes", "Y", "no", "f", "False", "2", "tru", "0.05", "0.005", "-0.005", "1e38", "1e-50", "123.456",
    "1234567.891", "½", "1e", "1e+", "+.5e+1", "0.0000001",
]  # fmt: skip


def texts() -> pa.Table:
    """Columns ``s`` and ``p`` (texts and parts), ``n`` (counts), ``bin`` (the text's bytes)."""
    rows = [(text, PARTS[(i + k) % 13], COUNTS[(i + 3 * k) % 10]) for i, text in enumerate(TEXTS) for k in (0, 1, 2, 5)]
    return pa.table(
        {
            "id": pa.array(range(len(rows)), pa.int32()),
            "s": pa.array([row[0] for row in rows], pa.string()),
            "p": pa.array([row[1] for row in rows], pa.string()),
            "n": pa.array([row[2] for row in rows], pa.int32()),
            "bin": pa.array([None if row[0] is None else row[0].encode() for row in rows], pa.binary()),
        }
    )


def numerals() -> pa.Table:
    """Column ``s``: texts that are numbers, booleans, or nearly."""
    return pa.table({"id": pa.array(range(len(NUMERALS)), pa.int32()), "s": pa.array(NUMERALS, pa.string())})


def letters() -> pa.Table:
    """Column ``s``: every code point that may have case, assigned yet or not, and the known ones next to a letter."""
    points = [chr(i) for i in range(0x20000) if unicodedata.category(chr(i)) not in ("Lo", "Cs", "Co", "So")]
    cased = [point for point in points if point.swapcase() != point]
    words = points + [f"a{point}" for point in cased] + [f"{point}b" for point in cased]
    return pa.table({"id": pa.array(range(len(words)), pa.int32()), "s": pa.array(words, pa.string())})


_DAY = 86_400_000_000
_HOUR = 3_600_000_000


def _micros(text: str) -> int:
    return int(np.datetime64(text, "us").astype(np.int64))


INSTANTS = [
    None, 0, -1, 1, _micros("0001-01-01"), _micros("0001-01-01T00:00:00.000001"), _micros("9999-12-31T23:59:59.999999"),
    _micros("1582-10-04T12:00"), _micros("1582-10-15"), _micros("1900-01-01"), _micros("1883-11-18T17:00:00"),
    _micros("1969-12-31T23:59:59.9"), _micros("2000-02-29T12:34:56.789012"), _micros("1900-02-28T23:59:59"),
    _micros("2024-12-30"), _micros("2021-01-03T23:00"), _micros("2013-01-01T05:00:00"),
    *(_micros(day) + hour * _HOUR // 2 for day in ("2024-03-10", "2024-11-03", "2024-03-31", "2024-10-27")
      for hour in (-2, 0, 1, 2, 3, 5, 9, 11, 12, 13, 14, 15)),
    _micros("2011-12-30T09:59:59"), _micros("2011-12-30T10:00"), _micros("2018-11-04T02:59:59"), _micros("2018-11-04T03:00"),
    _micros("1943-03-31T12:00"), _micros("2437-07-01T12:00"), _micros("2950-03-15T07:00"), _micros("-0044-03-15T12:00"),
    _micros("12345-06-07T08:09:10.5"), _micros("1846-01-01"), _micros("1700-05-05T05:05:05"),
    -(2**63) + _DAY, 2**63 - 1 - _DAY,
]  # fmt: skip
DAYS = [
    None, 0, -1, 1, -719162, 2932896, -141428, -141427, 11016, 19782, 20087, 18627, 19429, 15338, 17838, 10957, 58, 59,
    -25508, 730000, -800000, 4000000, 106751991, -106751991,
]  # fmt: skip
EXTREME_DAYS = [2**31 - 1, -(2**31)]
SHIFTS = [None, 0, 1, -1, 12, -13, 400, 2147483647, -2147483648]


def instants() -> pa.Table:
    """Columns ``ts``, ``ts2``, ``ntz``, ``dt``, ``dt2``, ``n``: each list with another period."""
    n = max(len(INSTANTS), 100)
    cycle = [INSTANTS[i % len(INSTANTS)] for i in range(n)]
    days = [DAYS[i % len(DAYS)] for i in range(n)]
    return pa.table(
        {
            "id": pa.array(range(n), pa.int32()),
            "ts": pa.array(cycle, pa.timestamp("us", tz="UTC")),
            "ts2": pa.array([cycle[(i * 7 + 3) % n] for i in range(n)], pa.timestamp("us", tz="UTC")),
            "ntz": pa.array(cycle, pa.timestamp("us")),
            "dt": pa.array(days, pa.int32()).cast(pa.date32()),
            "dt2": pa.array([days[(i * 5 + 1) % n] for i in range(n)], pa.int32()).cast(pa.date32()),
            "n": pa.array([SHIFTS[i % len(SHIFTS)] for i in range(n)], pa.int32()),
        }
    )


def inner_instants() -> pa.Table:
    """``instants`` less the two days at each end of Spark's range, where local time is refused."""
    table = instants()
    far = pa.scalar(2**63 - 3 * _DAY)
    keep = [pc.and_(pc.less(c.cast(pa.int64()), far), pc.greater(c.cast(pa.int64()), pc.negate(far)))
            for c in (table["ts"], table["ts2"])]  # fmt: skip
    inner = table.filter(pc.and_(*(pc.fill_null(k, True) for k in keep)))
    days = [pc.if_else(pc.less(pc.abs(inner[d].cast(pa.int32())), 106_751_980), inner[d], None) for d in ("dt", "dt2")]
    inner = inner.set_column(4, "dt", days[0]).set_column(5, "dt2", days[1])
    return inner.set_column(0, "id", pa.array(range(len(inner)), pa.int32()))


def known_instants() -> pa.Table:
    """``instants`` without nulls: ``window`` drops rows without a time."""
    table = instants().select(["ts", "ntz"]).drop_null()
    return table.add_column(0, "id", pa.array(range(len(table)), pa.int32()))


MOMENTS = [
    None, "", " ", "2024", "-2024", "+2024", "202", "2024-1", "2024-01", "2024-1-2", "2024-01-02", " 2024-01-02 ", "2024-13-01",
    "2024-02-30", "2023-02-29", "2024-02-29", "20240102", "2024-01-02T", "2024-01-02 ", "2024-01-02 xyz", "2024-01-02Txyz",
    "2024-01-02 3", "2024-01-02 03:04", "2024-01-02T03:04:05", "2024-01-02 3:4:5", "2024-01-02 03:04:05.", "2024-01-02 03:04:05.1",
    "2024-01-02 03:04:05.123456", "2024-01-02 03:04:05.1234567", "2024-01-02 03:04:05.1234567890123", "2024-01-02 24:00:00",
    "2024-01-02 23:60:00", "2024-01-02 23:59:60", "2024-01-02 03:04:05Z", "2024-01-02 03:04:05 UTC", "2024-01-02T03:04:05.5Z",
    "2024-01-02 03:04:05+01:00", "2024-01-02 03:04:05+1:00", "2024-01-02 03:04:05+01:5", "2024-01-02 03:04:05+0130",
    "2024-01-02 03:04:05-18:00", "2024-01-02 03:04:05-18:01", "2024-01-02 03:04:05+01:02:03", "2024-01-02 03:04:05 Europe/Paris",
    "2024-01-02 03:04:05America/New_York", "2024-01-02 03:04:05 europe/paris", "2024-01-02 03:04:05 PST",
    "2024-01-02 03:04:05 GMT+2", "2024-01-02 03:04:05 UTC+02:30", "2024-01-02 03:04:05 Nowhere/Land", "2024-01-02 03:04Z",
    "2024-01-02 03:04:05 z", "2024-01-02 03:04:05 EST", "2024-01-02 03:04:05 GMT0", "2024-03-10 02:30:00", "2024-11-03 01:30:00",
    "2024-03-31 02:30:00", "2024-10-27 02:30:00", "2011-12-30 12:00:00", "2018-11-04 00:00:00", "0001-01-01", "0000-01-01",
    "9999-12-31 23:59:59.999999", "10000-01-01", "+10000-01-01 00:00:00", "-0001-06-15", "294247-01-10 04:00:54.775807",
    "294247-01-10 04:00:54.775808", "294248-01-01", "999999-01-01", "1000000-01-01", "5881580-07-11", "5881580-07-12",
    "9999999-01-01", "99999999-01-01", "2024-01-02-03", "2024--01", "2024-01-02 03:04:05 +01:00", "２０２４-01-02", "1582-10-10",
    "1883-11-18 12:00:00", "1900-01-01 00:00:00", "abc", "2024/01/02", "\x002024-01-02\x7f", "2024-01-02 03:04:05.a",
    "2024-01-02 03:04:05.12.3", "2024-01-02 03:04:05+", "2024-01-02 03:04:05 +7", "2024-01-02 03:04:05+25:00",
]  # fmt: skip


def moments() -> pa.Table:
    """Column ``s``: texts that are dates or timestamps, or nearly."""
    return pa.table({"id": pa.array(range(len(MOMENTS)), pa.int32()), "s": pa.array(MOMENTS, pa.string())})
