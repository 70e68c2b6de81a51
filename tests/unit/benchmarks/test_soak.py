"""Flatness of a metric over time, with made-up values; and the chart."""

from __future__ import annotations

import random
import statistics
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from benchmarks.lib.trend import Verdict, blocks, last_to_first, slope, student
from benchmarks.reports import charts, drawing
from benchmarks.reports import soak as report_soak
from benchmarks.reports.drawing import Line, Panel, TimeChart
from benchmarks.suites import soak
from benchmarks.suites.soak import QUICK, Length, series, summary

TIMES = [10.0 * n for n in range(150)]
LENGTH = Length(1_500.0, 300.0, 10.0, 6)


def noisy(rise: float, noise: float = 0.01, seed: int = 1) -> list[float]:
    """Return values that start at 100 and rise by this share."""
    chance = random.Random(seed)
    return [100.0 * (1 + rise * n / 149 + chance.gauss(0, noise)) for n in range(150)]


def test_a_line_without_noise_has_its_slope_and_no_bound() -> None:
    found = slope([0.0, 1_800.0, 3_600.0], [90.0, 100.0, 110.0], 1)
    assert (found.value, found.lower, found.upper) == pytest.approx((0.2, 0.2, 0.2))


def test_bounds_of_the_slope_and_of_the_ratio_hold_in_nineteen_of_twenty() -> None:
    slopes = [slope(TIMES, noisy(0.05, seed=seed), 6) for seed in range(400)]
    true = 0.05 * 3_600 / 1_490 / 1.025
    assert 0.92 < statistics.fmean(one.lower <= true <= one.upper for one in slopes) < 0.98
    ratios = [last_to_first(noisy(0.0, seed=seed), 6) for seed in range(400)]
    assert 0.92 < statistics.fmean(one.lower <= 1.0 <= one.upper for one in ratios) < 0.98


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (noisy(0.0), Verdict.FLAT),
        (noisy(0.2), Verdict.GROWS),
        (noisy(-0.2), Verdict.FALLS),
        (noisy(0.0, noise=0.3), Verdict.UNKNOWN),
        (noisy(0.045), Verdict.UNKNOWN),
        (noisy(-0.045), Verdict.NOT_MORE),
    ],
)
def test_flat_is_what_is_surely_within_the_limit(values: list[float], verdict: Verdict) -> None:
    assert last_to_first(values, 6).against(1.0, 0.03) is verdict


def test_what_began_at_nothing_and_is_there_now_has_grown() -> None:
    assert last_to_first([0.0] * 12, 2).value == 1.0
    assert last_to_first([0.0] * 8 + [1.0] * 4, 2).against(1.0, 0.0) is Verdict.GROWS


def test_blocks_have_every_sample_once() -> None:
    assert blocks([1, 3, 5, 7, 9], 2) == [2, 7]
    assert blocks([4.0], 6) == [4.0]
    assert (student(1), student(11), student(24), student(500)) == (12.71, 2.23, 2.09, 2.00)


# -- samples ----------------------------------------------------------------------------------------------------------


def sample(number: int, leak: int = 0) -> dict[str, Any]:
    """Every ten seconds; a core of each process is half used, and 1,000 rows a second come. From the hundredth on there
    is a file more at most times, not always."""
    often = number % 10 > 0 if number >= 100 else number % 2 > 0
    process = {
        "cpu_s": 5.0 * number,
        "resident_bytes": 100_000_000,
        "threads": 7,
        "open_files": 20 + leak * number,
    }
    return {
        "at_s": 10.0 * number,
        "rows": {0: 6_000 * number, 1: 4_000 * number},
        "lived_s": {0: 10.0 * number, 1: 10.0 * number},
        "processes": dict.fromkeys(soak.PROCESSES, process),
        "files": {"data": 6 + often, "log": 20 * number, "history": 2 * number},
        "output_files": number,
        "state_rows": 5_000,
        "duration_ms": None if number == 3 else 20.0,
    }


def test_cost_is_cpu_by_the_rows_of_the_same_time() -> None:
    found = series([sample(n) for n in range(6)])
    assert found["rows_per_second"] == pytest.approx([1_000.0] * 5)
    assert found["slot 0, cpu_s_per_million"] == pytest.approx([500.0] * 5)
    assert found["all, cpu_s_per_million"] == pytest.approx([500.0 * len(soak.PROCESSES)] * 5)
    assert found["checkpoint, duration_ms"] == [20.0] * 5
    assert found["location, files"] == [7, 6, 7, 6, 7]
    assert found["location, log_files"] == [20, 40, 60, 80, 100]
    assert found["location, history_files"] == [2, 4, 6, 8, 10]
    assert {len(values) for values in found.values()} == {5}


def test_a_handle_that_is_not_closed_is_found_and_the_log_is_not_called_a_leak() -> None:
    found = summary(series([sample(n) for n in range(150)]), LENGTH)
    verdicts = {name: one["verdict"] for name, one in found.items()}
    assert {verdict for verdict in verdicts.values() if verdict} == {"flat"}
    assert verdicts["location, log_files"] is verdicts["location, history_files"] is None
    assert verdicts["JVM, resident_bytes"] is None
    leaking = summary(series([sample(n, leak=1) for n in range(150)]), LENGTH)
    assert leaking["slot 1, open_files"]["verdict"] == "grows"
    assert leaking["slot 1, threads"]["verdict"] == "flat"


def test_a_quick_run_has_blocks_enough_for_its_thirds() -> None:
    for length in (QUICK, soak.FULL):
        assert (length.run_s - length.warm_up_s) / length.sample_s / length.block >= 6


def test_files_are_counted_by_the_folder_at_the_top(tmp_path: Path) -> None:
    for path in ("query.json", "log/1.json", "log/2.json", "snapshots/chk-1/metadata.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert {name: n for name, n in soak.files_below(tmp_path).items() if n} == {"": 1, "log": 2, "snapshots": 1}


# -- what is told -----------------------------------------------------------------------------------------------------


def result(leak: int = 0) -> dict[str, Any]:
    found = series([sample(n, leak) for n in range(150)])
    return {
        "machine": {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"},
        "rows_per_second": 1_000,
        "length": {"run_s": 1_500.0, "warm_up_s": 300.0, "sample_s": 10.0, "block": 6},
        "failed": 0,
        "restarts": 0,
        "checkpoints": 1_500,
        "summary": summary(found, LENGTH),
        "series": found,
    }


def test_the_section_has_a_verdict_for_each_figure_and_tells_how_the_log_grows() -> None:
    page = report_soak.soak(result(leak=1))
    assert "| slot 1 | threads | 7 (7 to 7) | 1.000 (1.000 to 1.000) | +0.0% (+0.0% to +0.0%) | **flat** |" in page
    assert "| slot 1 | open files and sockets | 110 (50 to 169) |" in page
    assert page.count("**grows**") == len(soak.PROCESSES)
    assert "What grows by design: the log, by 2.0 files a" in page
    assert "1,500 of them, no restart,\n0 failed" in page


def test_a_run_without_huge_pages_says_so() -> None:
    assert "khugepaged" not in report_soak.soak(result())
    assert "khugepaged" in report_soak.soak({**result(), "conf": soak.CONF})


def test_one_runs_explanation_is_not_given_for_another() -> None:
    other = result(leak=1)
    assert "interned" not in report_soak.soak(other)
    other["machine"]["penstock"] = report_soak.LOOKED_AT
    assert "interned" in report_soak.soak(other)


def test_a_panel_begins_at_0_and_ends_above_its_largest_value() -> None:
    line = Line("a", "Spark", [10, 31, 15])
    with matplotlib.rc_context(drawing.STYLE):
        (axes,) = TimeChart("t", "s", "minutes", [0, 5, 10], [Panel("p", [line])], warm_up=5).figure().axes
    drawn, warm_up = axes.lines
    assert [list(drawn.get_xdata()), list(drawn.get_ydata())] == [[0, 5, 10], [10, 31, 15]]
    assert list(warm_up.get_xdata()) == [5, 5]
    assert axes.get_xlim() == (0, 10)
    assert axes.get_ylim() == (0, 40)


def test_the_chart_has_every_process_and_all_samples() -> None:
    chart = charts.soak(result())
    assert [line.name for line in chart.panels[0].lines] == list(soak.PROCESSES)
    assert all(len(line.values) == len(chart.times) for panel in chart.panels for line in panel.lines)
    assert drawing.svg(chart) == drawing.svg(charts.soak(result()))
