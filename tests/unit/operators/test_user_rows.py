"""Keys and frames of stateful functions: null numbers as Spark 4.3's own engine was seen to hand them out."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import Row

from penstock.errors import EvaluationError, FunctionError
from penstock.operators.python.user_code import PythonSettings
from penstock.operators.stateful.event_time_column import EventTimeColumnSpec
from penstock.operators.stateful.user_rows import NarrowPandasRows, PandasRows, SparkRows, UserRows

KINDS = [pa.int32(), pa.int64(), pa.float32(), pa.bool_(), pa.string(), pa.date32(), pa.decimal128(5, 1)]
PLAIN = [2, 2**53 + 1, 0.5, True, "a", date(1970, 1, 3), Decimal("1.0")]
NOTHING = [None] * len(KINDS)
NAN = float("nan")
OUTPUT = pa.schema([("x", pa.int64())])


def made(kind: type[UserRows], extension_types: bool = False) -> UserRows:
    names = [f"k{number}" for number in range(len(KINDS))]
    return kind(names, OUTPUT, PythonSettings(int_extension_types=extension_types))


def columns() -> list[pa.Array]:
    return [pa.array([None, value], kind) for value, kind in zip(PLAIN, KINDS, strict=True)]


def typed(keys: list[tuple[Any, ...]]) -> list[list[tuple[type, str]]]:
    return [[(type(value), str(value)) for value in key] for key in keys]


NUMPY = [np.int32(2), np.int64(2**53 + 1), np.float32(0.5), np.bool_(True), *PLAIN[4:]]
NUMPY_NAN = [np.float64(NAN), np.float64(NAN), np.float32(NAN), None, None, None, None]


@pytest.mark.parametrize(
    ("kind", "null", "other"),
    [
        (SparkRows, NOTHING, PLAIN),
        (PandasRows, [NAN, NAN, NAN, None, None, None, None], PLAIN),
        (NarrowPandasRows, NUMPY_NAN, NUMPY),
    ],
)
def test_keys(kind: type[UserRows], null: list[Any], other: list[Any]) -> None:
    assert typed(made(kind).keys(columns(), 2)) == typed([tuple(null), tuple(other)])


@pytest.mark.parametrize(
    ("kind", "null", "other"),
    [(SparkRows, NOTHING, PLAIN), (PandasRows, NOTHING, PLAIN), (NarrowPandasRows, NUMPY_NAN, NUMPY)],
)
def test_keys_of_timers(kind: type[UserRows], null: list[Any], other: list[Any]) -> None:
    """Those of ``applyInPandasWithState`` come as with rows, the others out of the state."""
    assert typed(made(kind).timer_keys(columns(), 2)) == typed([tuple(null), tuple(other)])


@pytest.mark.parametrize("kind", [SparkRows, PandasRows])
def test_keys_of_timers_are_pythons_own(kind: type[UserRows]) -> None:
    """Like values of a state, in either form: moments naive, in the time zone of the process, structs Rows."""
    at = datetime(2024, 3, 31, 0, 30, 0, 2, tzinfo=UTC)
    moments = pa.array([at, None], pa.timestamp("us", "UTC"))
    structs = pa.array([{"x": 1, "at": at}, None], pa.struct([("x", pa.int32()), ("at", moments.type)]))
    keys = kind(["at", "pair"], OUTPUT, PythonSettings(time_zone="Asia/Tokyo")).timer_keys([moments, structs], 2)
    naive = at.astimezone().replace(tzinfo=None)
    assert typed(keys) == typed([(naive, Row(x=1, at=naive)), (None, None)])


@pytest.mark.parametrize("kind", [PandasRows, NarrowPandasRows])
def test_keys_of_extension_types(kind: type[UserRows]) -> None:
    for (null, other), column in zip(zip(*made(kind, True).keys(columns(), 2), strict=True), KINDS, strict=True):
        assert (null is pd.NA) == pa.types.is_integer(column)
        assert not pa.types.is_integer(column) or type(other) is column.to_pandas_dtype()


INPUT = pa.record_batch(
    {"i": pa.array([1, None, 3], pa.int32()), "b": pa.array([True, None, False]), "s": pa.array(["x", None, "y"])}
)


@pytest.mark.parametrize(
    ("kind", "extension_types", "expected"),
    [
        (PandasRows, False, [("float64", "object", "object"), ("float64", "bool", "object")]),
        (PandasRows, True, [("object", "object", "object"), ("int32", "bool", "object")]),
        (NarrowPandasRows, False, [("float64", "object", "object"), ("int32", "bool", "object")]),
        (NarrowPandasRows, True, [("Int32", "object", "object"), ("Int32", "bool", "object")]),
    ],
)
def test_types_of_columns(kind: type[UserRows], extension_types: bool, expected: list[tuple[str, ...]]) -> None:
    frames = made(kind, extension_types).split(INPUT, [2, 3])
    assert [tuple(str(one) for one in frame.dtypes) for frame in frames] == expected
    assert [frame["b"].tolist() for frame in frames] == [[True, None], [False]]
    assert [list(frame.index) for frame in frames] == [[0, 1], [0]]


@pytest.mark.parametrize("kind", [SparkRows, PandasRows, NarrowPandasRows])
def test_times_that_python_has_no_value_for_are_refused_by_name(kind: type[UserRows]) -> None:
    rows = kind(["day"], OUTPUT, PythonSettings())
    far = pa.array([2**30], pa.date32())
    with pytest.raises(EvaluationError, match="column day holds a date or time that cannot be handed"):
        rows.keys([far], 1)
    with pytest.raises(EvaluationError, match="column at holds"):
        rows.split(pa.record_batch([far], ["at"]), [1])


def test_a_late_row_is_told_whatever_times_are_in_it() -> None:
    times = pa.timestamp("us", "UTC")
    schema = pa.schema([("at", times), ("far", times)])
    operator = EventTimeColumnSpec(operator_id="e", name="EventTime (at)", output_schema=schema, column=0).create()
    assert not list(operator.advance(10))
    row = pa.record_batch([pa.array([10], times), pa.array([253_402_300_800_000_000], times)], schema=schema)
    with pytest.raises(FunctionError, match=r"ROWS_ARE_OLDER_THAN_WATERMARK.*'far': '10000-01-01 00:00:00"):
        list(operator.process(row))


def test_plain_rows_leave_nothing_to_the_garbage_collector() -> None:
    rows = made(SparkRows)
    item = Row(x=1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            rows.collect(0, item)
        assert rows.take_output(lambda key: nullcontext()).num_rows == 100
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_nested_rows_are_taken_as_structs_by_their_names() -> None:
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    rows = SparkRows(["k"], pa.schema([("x", pair), ("y", pa.list_(pair))]), PythonSettings())
    rows.collect(0, Row(x=Row(b=2, a=1), y=[Row(b=4, a=3), None]))
    made = rows.take_output(lambda key: nullcontext())
    assert made.to_pylist() == [{"x": {"a": 1, "b": 2}, "y": [{"a": 3, "b": 4}, None]}]
