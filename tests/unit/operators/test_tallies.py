"""State of percentiles and modes: correct in any order of merges, with at most two entries per value on average."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import EvaluationError
from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.accumulators.base import doubles
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.vector import Vector
from tests.support.effort import some

GROUPS = 3
PERCENTAGES = (0.0, 0.3, 0.5, 0.99, 1.0)
DESCENDING = (PERCENTAGES, True, "between")


def call(function: str, parameters: tuple[object, ...], result: pa.DataType) -> AggregateCall:
    return AggregateCall(function, 0, pa.float64(), result, parameters=parameters, second=1, second_type=pa.int32())


def fresh(made: AggregateCall) -> list[Vector]:
    vectors = [Vector(field.type, None) for field in made.buffer_fields(0)]
    for vector in vectors:
        vector.extend(GROUPS)
    return vectors


def between(ordered: list[float], percentage: float) -> float:
    position = (len(ordered) - 1) * percentage
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low if low == high else low + (position - math.floor(position)) * (high - low)


@settings(max_examples=some(15))
@given(seed=st.integers(0, 10_000), batches=st.sampled_from([1, 2, 7, 25]), different=st.sampled_from([1, 5, 30, 400]))
def test_results_do_not_depend_on_how_rows_come(seed: int, batches: int, different: int) -> None:
    random = np.random.default_rng(seed)
    percentile = call("percentile", DESCENDING, pa.list_(pa.float64()))
    mode = call("mode", (True,), pa.float64())
    calls = [(made, create_accumulator(made), fresh(made)) for made in (percentile, mode)]
    seen: list[list[float]] = [[] for _ in range(GROUPS)]
    for _ in range(batches):
        size = int(random.integers(0, 60))
        groups, values = random.integers(0, GROUPS - 1, size), np.round(random.normal(0, different, size)) + 0.0
        amounts = random.integers(0, 3, size)
        for group, value, amount in zip(groups, values.tolist(), amounts, strict=True):
            seen[group] += [value] * amount
        for made, accumulator, buffers in calls:
            partial = fresh(made)
            accumulator.add(partial, groups, [pa.array(values), pa.array(amounts, pa.int32())])
            accumulator.merge(buffers, np.arange(GROUPS), [vector.to_arrow(np.arange(GROUPS)) for vector in partial])
            for group, kept in enumerate(buffers[0].to_arrow(np.arange(GROUPS)).to_pylist()):
                assert len(kept or []) <= 2 * len({*seen[group]})
    found, modes = (accumulator.result(buffers, np.arange(GROUPS)).to_pylist() for _, accumulator, buffers in calls)
    for group, values in enumerate(seen):
        ordered = sorted(values, reverse=True)
        assert found[group] == ([between(ordered, percentage) for percentage in PERCENTAGES] if values else None)
        counts = Counter(values)
        assert modes[group] == min(counts, key=lambda value: (-counts[value], value), default=None)


def test_a_negative_frequency_is_an_error() -> None:
    made = call("percentile", DESCENDING, pa.list_(pa.float64()))
    accumulator = create_accumulator(made)
    rows = [pa.array([1.0, None]), pa.array([-2, -3], pa.int32())]
    with pytest.raises(EvaluationError, match=r"NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION.*-2L"):
        accumulator.add(fresh(made), np.array([0, 0]), rows)
    accumulator.add(fresh(made), np.array([0]), [rows[0].slice(1), rows[1].slice(1)])


@given(st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p))), st.data())
def test_decimals_are_taken_as_the_nearest_double(shape: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = shape
    limit = 10**precision - 1
    numbers = data.draw(st.lists(st.integers(-limit, limit), max_size=4))
    values = [Decimal(number).scaleb(-scale, Context(prec=76)) for number in numbers]
    column = pa.array([None, *values], pa.decimal128(precision, scale))
    assert doubles(column)[1:].tolist() == [float(value) for value in values]
