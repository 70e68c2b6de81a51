"""Pace: an average speed that forgets by time and by work."""

from __future__ import annotations

import copy

import pytest

from penstock.protocol.pace import Pace


def test_pace_forgets_by_time_and_by_work() -> None:
    pace = Pace(100, by_work=True)
    assert pace.within(10, 1_000_000) is None
    for _ in range(50):
        pace.observe(1_000, 10)
    assert pace.within(10, 1_000_000) == pytest.approx(1_000, rel=0.01)
    for _ in range(30):
        pace.observe(10, 10)
    assert pace.within(10, 1_000_000) < 100  # type: ignore[operator]
    slow_to_believe = copy.copy(pace)
    slow_to_believe._by_work = False
    for _ in range(50):
        pace.observe(1_000, 0.1)
        slow_to_believe.observe(1_000, 0.1)
    faster, believed = pace.within(10, 1_000_000), slow_to_believe.within(10, 1_000_000)
    assert faster is not None
    assert believed is not None
    assert 100_000 > faster > 4 * believed
    assert pace.within(10, 500) == 500


def test_pace_takes_work_without_time_for_the_fastest_and_time_without_work_for_none() -> None:
    pace = Pace(100, by_work=False)
    pace.observe(5, 0)
    assert pace.within(10, 77) == 77
    for _ in range(100):
        pace.observe(0, 100)
    assert pace.within(10, 77) == 0
    pace.observe(1_000, 1)
    assert pace.within(10, 5_000) == pytest.approx(50, rel=0.1), "over 200 ms"
