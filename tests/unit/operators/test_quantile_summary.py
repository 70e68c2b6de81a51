"""The summary behind ``percentile_approx``: within its error however it was put together, and bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators.aggregate.accumulators.quantiles import Summary
from tests.support.effort import some

PERCENTAGES = [0.0, 0.01, 0.1, 0.25, 0.5, 0.6, 0.9, 0.999, 1.0]


def put_together(values: np.ndarray, sizes: list[int], accuracy: int, room: int) -> Summary:
    summary = Summary.exact(values[:0])
    for part in np.split(values, np.cumsum(sizes)):
        summary = summary.merged(Summary.exact(part))
        if len(summary.values) > room:
            summary = summary.thinned(accuracy)
        summary = Summary.stored(*summary.buffers())
    return summary


@settings(max_examples=some(60))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 20_000),
    accuracy=st.sampled_from([10, 50, 400]),
    few=st.booleans(),
)
def test_every_answer_is_within_the_error(seed: int, count: int, accuracy: int, few: bool) -> None:
    random = np.random.default_rng(seed)
    values = np.round(random.normal(0, 3 if few else 1e9, count))
    if seed % 3 == 0:
        values.sort()
    sizes = random.integers(1, 1 + count // 3 + 1, 12).clip(0, count // 13).tolist()
    summary = put_together(values, sizes, accuracy, room=4 * accuracy)
    assert summary.count == count
    assert len(summary.values) <= 4 * accuracy
    ordered = np.sort(values)
    for percentage, found in zip(PERCENTAGES, summary.quantiles(PERCENTAGES, accuracy), strict=True):
        wanted = math.ceil(percentage * count)
        low, high = np.searchsorted(ordered, found, "left") + 1, np.searchsorted(ordered, found, "right")
        allowed = count / accuracy + 1
        assert low - allowed <= wanted <= high + allowed, (percentage, found)


def test_few_values_are_kept_as_they_are() -> None:
    values = np.array([3.0, math.nan, -0.0, 0.0, -math.inf, 1.0])
    summary = put_together(values, [2, 1], 10_000, 4096)
    assert summary.buffers()[1:] == (None, None)
    assert repr(summary.values.tolist()) == repr([-math.inf, -0.0, 0.0, 1.0, 3.0, math.nan])


@pytest.mark.parametrize("accuracy", [1, 2, 100])
def test_the_least_and_the_largest_are_never_lost(accuracy: int) -> None:
    values = np.arange(50_000.0)
    np.random.default_rng(3).shuffle(values)
    summary = put_together(values, [10_000] * 4, accuracy, 64)
    assert (summary.values[0], summary.values[-1]) == (0.0, 49_999.0)
