"""Decimals as longs give what exact arithmetic gives, or say that they do not know."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EvaluationError
from penstock.functions.core.base import BoundReference
from penstock.functions.core.fast_path import FastPath
from penstock.functions.core.vectors import all_valid
from penstock.functions.numbers import decimal_division, decimals, fast_decimals, rounding
from penstock.functions.numbers.arithmetic import EvalMode
from tests.support.effort import some

_WIDE = Context(prec=400)
few = settings(max_examples=some(25), deadline=None)
_EDGES = [0, 1, -1, 5, 49, 50, 51, -50, 999, 2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 10**18 - 1, 10**18, 10**37]


@st.composite
def types(draw: st.DrawFn) -> pa.DataType:
    precision = draw(st.integers(1, 38))
    return pa.decimal128(precision, draw(st.integers(0, precision)))


def unscaled(data_type: pa.DataType) -> st.SearchStrategy[int]:
    limit = 10**data_type.precision - 1
    near = st.sampled_from(_EDGES) | st.integers(0, 37).flatmap(lambda p: st.integers(10**p - 2, 10**p + 2))
    return (near | st.integers(-limit, limit)).map(lambda value: max(-limit, min(limit, value)))


def columns(data_type: pa.DataType, rows: int) -> st.SearchStrategy[pa.Array]:
    values = st.none() | unscaled(data_type).map(lambda v: Decimal(v).scaleb(-data_type.scale, context=_WIDE))
    return st.lists(values, min_size=rows, max_size=rows).map(lambda found: pa.array(found, data_type))


def agrees(quick: FastPath, exact: Callable[..., Any], arrays: list[pa.Array], target: pa.DataType) -> None:
    """Row by row, as far as the quick way is sure."""
    rows = all_valid(arrays)
    with np.errstate(all="ignore"):
        answer = quick(*arrays, rows, target)
    if answer is None:
        return
    found, fallback = answer.values, np.zeros(len(answer.values)) if answer.fallback is None else answer.fallback
    for row, values in enumerate(zip(*(array.to_pylist() for array in arrays), strict=True)):
        if None in values:
            assert found[row].as_py() is None
        elif not fallback[row]:
            assert found[row].as_py() == exact(*values), values


@few
@given(st.data(), types(), types())
def test_rescaled(data: st.DataObject, source: pa.DataType, target: pa.DataType) -> None:
    column = data.draw(columns(source, 12))
    agrees(fast_decimals.rescale, partial(decimals.number_to_decimal, target.precision, target.scale), [column], target)


@few
@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1), types())
def test_of_integers(values: list[int | None], target: pa.DataType) -> None:
    exact = partial(decimals.number_to_decimal, target.precision, target.scale)
    agrees(fast_decimals.rescale, exact, [pa.array(values, pa.int64())], target)


halves = st.tuples(st.integers(-(10**9), 10**9), st.integers(0, 12)).map(lambda pair: pair[0] / 10 ** pair[1])


@few
@given(st.lists(st.none() | st.floats() | halves, min_size=1), types())
def test_of_doubles(values: list[float | None], target: pa.DataType) -> None:
    exact = partial(decimals.float_to_decimal, target, False)
    agrees(fast_decimals.from_float, exact, [pa.array(values, pa.float64())], target)


@pytest.mark.parametrize("target", [pa.int8(), pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string()], ids=str)
@few
@given(st.data(), types())
def test_to_others(target: pa.DataType, data: st.DataObject, source: pa.DataType) -> None:
    quick = fast_decimals.to_text if target == pa.string() else fast_decimals.to_number
    for ansi in (False, True):
        exact = decimals.decimal_converter(target, source, ansi)
        agrees(quick, exact, [data.draw(columns(source, 12))], target)


@pytest.mark.parametrize("mode", [ROUND_HALF_UP, ROUND_HALF_EVEN, ROUND_CEILING, ROUND_FLOOR])
@few
@given(st.data(), types(), st.integers(-4, 10), types())
def test_rounded(mode: str, data: st.DataObject, source: pa.DataType, places: int, target: pa.DataType) -> None:
    target = pa.decimal128(target.precision, min(max(places, 0), target.precision))
    exact = rounding.decimal_rounding(mode, target.scale if places > target.scale else places, target)
    places = min(places, target.scale)
    agrees(partial(fast_decimals.rounded, mode, places), exact, [data.draw(columns(source, 12))], target)


@pytest.mark.parametrize("symbol", ["+", "-", "*"])
@few
@given(st.data(), types(), types(), types())
def test_arithmetic(symbol: str, data: st.DataObject, one: pa.DataType, two: pa.DataType, target: pa.DataType) -> None:
    inputs = BoundReference(0, one), BoundReference(1, two)
    exact = decimals.DecimalArithmetic(symbol, *inputs, target, EvalMode.LEGACY)._apply
    arrays = [data.draw(columns(one, 12)), data.draw(columns(two, 12))]
    agrees(partial(fast_decimals.arithmetic, symbol), exact, arrays, target)


@pytest.mark.parametrize(
    "function", [decimal_division.quotient, decimal_division.whole_quotient, decimal_division.remainder]
)
@few
@given(st.data(), types(), types(), types())
def test_divisions(function: Any, data: st.DataObject, one: pa.DataType, two: pa.DataType, target: pa.DataType) -> None:
    whole = function is decimal_division.whole_quotient
    target = pa.decimal128(target.precision, 0) if whole else target
    inputs = BoundReference(0, one), BoundReference(1, two)
    result = pa.int64() if whole else target
    node = decimal_division.DecimalDivision(function, *inputs, result, target, EvalMode.LEGACY)

    def exact(left: Decimal, right: Decimal) -> Any:
        try:
            return node._apply(left, right)
        except EvaluationError:
            return "an error"

    divisors = data.draw(columns(two, 12)).to_pylist()
    arrays = [data.draw(columns(one, 12)), pa.array([None if value == 0 else value for value in divisors], two)]
    agrees(decimal_division._FAST_PATHS[function], exact, arrays, target)


def test_everyday_values_are_not_in_doubt() -> None:
    money = pa.array([Decimal(cents).scaleb(-2) for cents in range(-5_000, 5_000, 7)], pa.decimal128(12, 2))
    prices = pa.array([value.as_py() for value in money if value.as_py()], pa.decimal128(12, 2))
    doubles = pa.array(np.linspace(-1e6, 1e6, 1_000) + 0.001)
    for quick, arrays, target in (
        (fast_decimals.rescale, [money], pa.decimal128(10, 1)),
        (fast_decimals.from_float, [doubles], pa.decimal128(12, 2)),
        (fast_decimals.to_number, [money], pa.float64()),
        (partial(fast_decimals.rounded, ROUND_HALF_UP, 1), [money], pa.decimal128(12, 1)),
        (partial(fast_decimals.arithmetic, "*"), [money, money], pa.decimal128(24, 3)),
        (fast_decimals.quotient, [prices, prices[::-1]], pa.decimal128(27, 15)),
        (fast_decimals.remainder, [prices, prices[::-1]], pa.decimal128(12, 2)),
        (fast_decimals.whole_quotient, [prices, prices[::-1]], pa.decimal128(12, 0)),
        (fast_decimals.to_text, [money], pa.string()),
    ):
        answer = quick(*arrays, None, target)
        assert answer is not None
        assert answer.fallback is None or np.count_nonzero(answer.fallback) <= len(answer.fallback) // 100
