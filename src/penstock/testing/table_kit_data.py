"""Test data of the state table kit: key and value types with values that include edge cases, and their comparison."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.state.table import TableSpec

Frozen: TypeAlias = Any
"""Hashable form of a value. The forms of two values are equal if and only if the values count as equal."""

_OTHER_NAN: float = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
MOMENT = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", MOMENT), ("end", MOMENT)])
MAX_PARALLELISM = 16


def moment(seconds: float) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)


def micros(value: dt.datetime) -> int:
    return (value - moment(0)) // dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Kind:
    """Arrow type and some of its values. Null is always possible, too."""

    type: pa.DataType
    values: tuple[Any, ...]

    def choose(self, random: Random) -> Any:
        return random.choice((None, *self.values))


_INNER = pa.struct([("name", pa.string()), ("ratio", pa.float64()), ("deep", pa.struct([("x", pa.int32())]))])

KEY_KINDS: dict[str, Kind] = {
    "boolean": Kind(pa.bool_(), (True, False)),
    "tinyint": Kind(pa.int8(), (-128, 0, 127)),
    "smallint": Kind(pa.int16(), (-(2**15), 0, 1)),
    "int": Kind(pa.int32(), (-(2**31), 0, 7)),
    "bigint": Kind(pa.int64(), (-(2**63), -1, 0, 1, 2**63 - 1)),
    "date": Kind(pa.date32(), (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29))),
    "timestamp": Kind(MOMENT, (moment(-1), moment(0), moment(1.000001))),
    "timestamp_ntz": Kind(pa.timestamp("us"), (dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1, 0, 0, 1))),
    "interval": Kind(pa.duration("us"), (dt.timedelta(0), dt.timedelta(days=-1, microseconds=3))),
    "decimal(9,2)": Kind(pa.decimal128(9, 2), (Decimal("0.00"), Decimal("-1.50"), Decimal("1234567.89"))),
    "decimal(38,2)": Kind(pa.decimal128(38, 2), (Decimal("0.00"), Decimal(-(10**30)), Decimal(10**30))),
    "float": Kind(pa.float32(), (0.0, -0.0, math.nan, 1.5, math.inf)),
    "double": Kind(pa.float64(), (0.0, -0.0, math.nan, _OTHER_NAN, -2.25, -math.inf)),
    "string": Kind(pa.string(), ("", "a", "b\0", "ü" * 9, "a rather long one that no word holds")),
    "binary": Kind(pa.binary(), (b"", b"\0", b"\0\0", b"abc")),
    "window": Kind(WINDOW, ({"start": moment(0), "end": moment(5)}, {"start": moment(5), "end": None})),
    "struct": Kind(
        _INNER,
        (
            {"name": None, "ratio": None, "deep": None},
            {"name": None, "ratio": None, "deep": {"x": None}},
            {"name": "", "ratio": -0.0, "deep": {"x": 0}},
            {"name": "", "ratio": 0.0, "deep": {"x": 0}},
            {"name": "n", "ratio": math.nan, "deep": {"x": 1}},
        ),
    ),
}

VALUE_KINDS: dict[str, Kind] = {
    **KEY_KINDS,
    "null": Kind(pa.null(), ()),
    "list": Kind(pa.list_(pa.int64()), ([], [1], [None, 2, 3])),
    "list of strings": Kind(pa.list_(pa.string()), ([], ["", None, "abc"])),
    "map": Kind(pa.map_(pa.string(), pa.float64()), ([], [("a", 1.5), ("b", None)])),
    "nested": Kind(
        pa.list_(pa.struct([("m", pa.map_(pa.int32(), pa.list_(pa.string()))), ("t", MOMENT)])),
        ([], [None], [{"m": [(1, ["x", None]), (2, None)], "t": moment(3)}, {"m": None, "t": None}]),
    ),
}


def freeze(value: Any, key: bool = False) -> Frozen:
    """Return the hashable form of a value. All NaNs are equal. ``key``: -0.0 equals 0.0, as in Spark's keys."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value + 0.0 if key else value).hex()
    if isinstance(value, dict):
        return tuple((name, freeze(part, key)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(freeze(part, key) for part in value)
    return value


def frozen_rows(columns: Sequence[pa.Array], rows: int) -> list[tuple[Frozen, ...]]:
    """Return the rows of these columns. -0.0 differs from 0.0, because tables must return normalized keys."""
    if not columns:
        return [()] * rows
    return list(zip(*[[freeze(value) for value in column.to_pylist()] for column in columns], strict=True))


def arrays(kinds: Sequence[Kind], rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[position] for row in rows], kind.type) for position, kind in enumerate(kinds)]


@dataclass(frozen=True)
class Shape:
    """Columns and other properties of a table under test.

    Attributes:
        keys: the key columns, with the values that the table is filled with.
        values: the value columns, without the column of marks.
        keeps_arrays: see ``TableSpec``. If True, ``TableSpec.indexes_keys`` is False.
    """

    name: str
    keys: tuple[Kind, ...]
    values: tuple[Kind, ...]
    initial_values: tuple[object, ...] | None = None
    key_group_columns: int | None = None
    event_time: tuple[int, ...] | None = None
    marks_changes: bool = False
    keeps_arrays: bool = False

    @property
    def spec(self) -> TableSpec:
        fields = [pa.field(f"k{position}", kind.type) for position, kind in enumerate(self.keys)]
        fields += [pa.field("marked", pa.bool_())] if self.marks_changes else []
        fields += [pa.field(f"v{position}", kind.type) for position, kind in enumerate(self.values)]
        initial_values = (
            self.initial_values if self.initial_values is None or not self.marks_changes else (0, *self.initial_values)
        )
        return TableSpec(
            pa.schema(fields),
            len(self.keys),
            MAX_PARALLELISM,
            initial_values,
            self.key_group_columns,
            self.event_time,
            self.marks_changes,
            indexes_keys=not self.keeps_arrays,
            keeps_arrays=self.keeps_arrays,
        )

    def key(self, random: Random) -> tuple[Any, ...]:
        return tuple(kind.choose(random) for kind in self.keys)

    def value(self, random: Random) -> tuple[Any, ...]:
        return tuple(kind.choose(random) for kind in self.values)


SMALL_INT = Kind(pa.int64(), tuple(range(12)))
NAME = Kind(pa.string(), tuple(f"name {number}" for number in range(6)))
COUNT = Kind(pa.int64(), (0, 1, 2, 10**15))
TIMES = Kind(MOMENT, tuple(moment(second / 2) for second in range(-4, 12)))
WINDOWS = Kind(WINDOW, tuple({"start": moment(s), "end": moment(s + 5)} for s in range(-6, 6)))

PLAIN = Shape("a number and a name", (SMALL_INT, NAME), (COUNT, VALUE_KINDS["string"]))

LARGE = Shape("a number and its name", (SMALL_INT, NAME), (COUNT,))
"""Shape for many rows. The checks that use it create their own keys."""

SHAPES: tuple[Shape, ...] = (
    PLAIN,
    Shape("no key column", (), (COUNT, VALUE_KINDS["nested"]), marks_changes=True),
    Shape("event time", (SMALL_INT, TIMES), (COUNT,), event_time=(1,), marks_changes=True),
    Shape("a time as value", (NAME,), (COUNT, TIMES), event_time=(2,)),
    Shape("a time as marked value", (SMALL_INT, NAME), (TIMES,), event_time=(3,), marks_changes=True),
    Shape("windows", (WINDOWS, NAME), (COUNT, VALUE_KINDS["decimal(38,2)"]), event_time=(0, 1), key_group_columns=1),
    Shape("marks", (SMALL_INT,), (COUNT, VALUE_KINDS["list"]), initial_values=(7, 0), marks_changes=True),
    Shape("spread by nothing", (NAME, SMALL_INT), (VALUE_KINDS["double"],), key_group_columns=0),
    Shape("nothing but keys", (SMALL_INT, NAME), ()),
    *(Shape(f"key {name}", (kind, NAME), (COUNT,)) for name, kind in KEY_KINDS.items()),
    *(Shape(f"value {name}", (SMALL_INT,), (kind, COUNT)) for name, kind in VALUE_KINDS.items()),
    *(
        Shape(f"array of {name}", (SMALL_INT,), (kind, COUNT, NAME), keeps_arrays=True)
        for name, kind in VALUE_KINDS.items()
    ),
    Shape("arrays, with a time", (NAME,), (NAME, TIMES), event_time=(2,), keeps_arrays=True),
    Shape("arrays, with marks", (SMALL_INT,), (NAME, COUNT), marks_changes=True, keeps_arrays=True),
)
