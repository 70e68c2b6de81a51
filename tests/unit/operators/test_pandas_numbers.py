"""Plain numbers go round PySpark's converters: what comes out is what these make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from penstock.operators.python.pandas_conversion import PandasBatches
from penstock.operators.python.user_code import PythonSettings

_BITS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_FLOATS = {pa.float32(): 32, pa.float64(): 64}
_OTHERS = {pa.string(): st.text(max_size=3), pa.bool_(): st.booleans()}


def values_of(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in _BITS:
        return st.integers(-(1 << _BITS[kind] - 1), (1 << _BITS[kind] - 1) - 1)
    return st.floats(width=_FLOATS[kind]) if kind in _FLOATS else _OTHERS[kind]


KINDS = st.sampled_from([*_BITS, *_FLOATS, *_OTHERS])
SETTINGS = st.builds(PythonSettings, safe_cast=st.booleans(), int_extension_types=st.booleans())


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    kinds, count = draw(st.lists(KINDS, min_size=1, max_size=4)), draw(st.integers(1, 5))
    columns = []
    for kind in kinds:
        value = values_of(kind) | st.none() if draw(st.booleans()) else values_of(kind)
        columns.append(pa.array(draw(st.lists(value, min_size=count, max_size=count)), kind))
    return pa.RecordBatch.from_arrays(columns, [f"c{number}" for number in range(len(kinds))])


@given(batches(), SETTINGS, st.booleans())
def test_frames_of_numbers_are_those_of_spark(batch: pa.RecordBatch, settings: PythonSettings, wide: bool) -> None:
    conversion = PandasBatches(batch.schema, settings)
    expected = pd.concat(conversion._plain_series(batch), axis=1)
    if wide:
        for name, kind in expected.dtypes.items():
            if isinstance(kind, np.dtype) and kind.kind in "if":
                expected[name] = expected[name].astype(np.float64 if kind.kind == "f" else np.int64)
    frame = conversion.to_plain_frame(batch, wide)
    assert_frame_equal(frame, expected)
    frame.iloc[0, 0] = frame.iloc[0, 0]  # it is the user's to write to


NUMPYS = st.sampled_from([np.int8, np.int16, np.int32, np.int64, np.float32, np.float64, np.uint16, np.bool_])


@st.composite
def given_and_declared(draw: st.DrawFn) -> tuple[np.ndarray, pa.DataType]:
    kind = pa.from_numpy_dtype(draw(NUMPYS))
    value = st.integers(0, 2**16 - 1) if kind == pa.uint16() else values_of(kind)
    values = np.array(draw(st.lists(value, min_size=1, max_size=4)), kind.to_pandas_dtype())
    return values, draw(st.sampled_from([*_BITS, *_FLOATS, pa.string()]))


@given(given_and_declared(), SETTINGS)
def test_numbers_become_what_spark_makes_of_a_frame(
    example: tuple[np.ndarray, pa.DataType], settings: PythonSettings
) -> None:
    values, declared = example
    conversion = PandasBatches(pa.schema([("x", declared)]), settings)
    batch = conversion.from_numbers(["x"], [values])
    if batch is not None:
        expected = conversion.from_frame(pd.DataFrame({"x": values}))
        assert batch.to_pydict() == expected.to_pydict()
        assert batch.schema == expected.schema


@pytest.mark.parametrize(
    ("values", "declared", "safe", "expected"),
    [
        (np.array([1, 2]), pa.int32(), True, [1, 2]),
        (np.array([2**40 + 7]), pa.int32(), False, [7]),
        (np.array([2**40 + 7]), pa.int32(), True, None),
        (np.array([0.5, np.nan]), pa.float64(), True, [0.5, None]),
        (np.array([0.5]), pa.int32(), False, None),
        (np.array([True]), pa.int32(), False, None),
    ],
)
def test_what_goes_round(values: np.ndarray, declared: pa.DataType, safe: bool, expected: list[Any] | None) -> None:
    conversion = PandasBatches(pa.schema([("x", declared)]), PythonSettings(safe_cast=safe))
    batch = conversion.from_numbers(["x"], [values])
    assert (None if batch is None else batch.column(0).to_pylist()) == expected


def test_columns_in_another_order_do_not() -> None:
    conversion = PandasBatches(pa.schema([("x", pa.int64()), ("y", pa.int64())]), PythonSettings())
    assert conversion.from_numbers(["y", "x"], [np.array([1]), np.array([2])]) is None
    assert conversion.from_numbers(["x"], [np.array([1])]) is None
