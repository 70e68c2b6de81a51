"""Benchmark of checkpoint costs: rates, turns of the runs, and the report. Without Flink and Spark."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.peers import spark_restarts
from benchmarks.reports import checkpoint_cost as report_checkpoint_cost
from benchmarks.suites import checkpoint_cost, throughput
from benchmarks.suites.checkpoint_cost import BASE, FORMS, Cost


def test_a_rate_is_that_between_the_first_note_of_each_subtask_in_the_window_and_its_last() -> None:
    one = [(0.0, 5), (10.2, 100), (12.2, 300), (15.0, 9_000)]
    other = [(9.9, 7), (10.0, 1_000), (14.0, 3_000)]
    assert checkpoint_cost.noted_rate([one, other], 10.0, 14.0) == pytest.approx(100 + 500)


def test_cpu_is_per_million_rows_of_the_same_time() -> None:
    assert checkpoint_cost.cost(500_000.0, 12.0, 6.0, 5) == Cost(500_000.0, 4.0, 5)


def test_only_checkpoints_that_end_in_the_window_count() -> None:
    assert checkpoint_cost.within([9_999.0, 10_000.0, 12_000.0, 14_001.0], 10.0, 14.0) == 2


def test_a_micro_batch_lasts_from_its_trigger_for_as_long_as_that_took() -> None:
    progress = {"timestamp": "1970-01-01T00:01:40.500Z", "durationMs": {"triggerExecution": 1_250}, "numInputRows": 7}
    assert spark_restarts.batch(progress) == (100.5, 101.75, 7)


def test_every_round_runs_every_form_once_an_engines_together_and_begins_with_another() -> None:
    everything = sorted((engine, form) for engine, forms in FORMS.items() for form in forms)
    rounds = [checkpoint_cost.turns(number) for number in range(12)]
    for turns in rounds:
        assert sorted(turns) == everything
        engines = [engine for engine, _ in turns]
        assert sum(engines[at] != engines[at - 1] for at in range(1, len(engines))) == len(FORMS) - 1
    assert {turns[0][0] for turns in rounds} == set(FORMS)
    for engine, forms in FORMS.items():
        assert {next(form for name, form in turns if name == engine) for turns in rounds} == set(forms)


def test_behind_the_rounds_of_all_penstock_has_some_alone() -> None:
    engines = {engine: lambda form: Cost(1.0, 1.0, 1) for engine in FORMS}
    found = checkpoint_cost.measured(engines, 3, 2, checkpoint_cost.WITHOUT)
    assert {(engine, len(rounds)) for engine, forms in found.items() for rounds in forms.values()} == {
        ("Flink", 3),
        ("Penstock", 5),
        ("Spark", 3),
    }


@pytest.mark.parametrize("load", [checkpoint_cost.WITH, checkpoint_cost.WITHOUT])
def test_there_is_a_bound_for_as_many_rounds_as_a_run_has(load: str) -> None:
    engines = {engine: lambda form: Cost(100.0 if form == BASE else 99.0, 1.0, 1) for engine in FORMS}
    found = checkpoint_cost.measured(engines, checkpoint_cost.ROUNDS[load], checkpoint_cost.ALONE[load], load)
    assert checkpoint_cost.summaries(found)["Penstock"]["default"]["rows"]["lower_bound"] == pytest.approx(0.99)


def test_with_more_rounds_than_the_table_of_t_has_its_last_figure_bounds_theirs() -> None:
    found = throughput.bound([0.9, 1.1] * 40)
    assert found["lower_bound"] == pytest.approx(1 - 1.699 * 0.1 * (80 / 79) ** 0.5 / 80**0.5)


class Switched:
    """A query whose rate is by its checkpoints."""

    def __init__(self) -> None:
        self.intervals: list[str] = []

    def setCheckpoints(self, interval: str) -> None:  # noqa: N802
        self.intervals.append(interval)


def test_checkpoints_of_one_query_are_switched_and_who_is_first_alternates(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Switched()
    monkeypatch.setattr(checkpoint_cost, "penstock_form", lambda spark, load: None)
    monkeypatch.setattr(checkpoint_cost.harness, "running", lambda df, **options: nullcontext(query))
    monkeypatch.setattr(checkpoint_cost.harness, "wait_for", lambda what, holds: None)
    monkeypatch.setattr(checkpoint_cost.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(checkpoint_cost, "window", lambda query, *_: Cost(float(len(query.intervals)), 1.0, 1))
    pairs = [*checkpoint_cost.in_windows(None, 2)]  # type: ignore[arg-type]
    assert query.intervals == ["1h", "1000ms", "1000ms", "1h"]
    assert [{form: one["rows_per_second"] for form, one in pair.items()} for pair in pairs] == [
        {BASE: 1.0, checkpoint_cost.SWITCHED: 2.0},
        {BASE: 4.0, checkpoint_cost.SWITCHED: 3.0},
    ]


def runs(*rates: tuple[float, float]) -> list[dict[str, Any]]:
    return [asdict(Cost(rate, cpu, 6)) for rate, cpu in rates]


def test_ratios_are_of_one_round_and_bounds_lie_on_the_side_that_is_worse() -> None:
    found = checkpoint_cost.summary(runs((90.0, 2.2), (190.0, 1.2)), runs((100.0, 2.0), (200.0, 1.0)))
    rows, cpu = found["rows"], found["cpu"]
    assert rows["ratios"] == pytest.approx([0.90, 0.95])
    assert cpu["ratios"] == pytest.approx([1.1, 1.2])
    assert rows["lower_bound"] < rows["mean"] == pytest.approx(0.925)
    # Of two: 6.314 standard deviations by the root of 2.
    assert cpu["upper_bound"] == pytest.approx(1.15 + 6.314 * 0.05)
    assert "lower_bound" not in cpu


def test_only_engines_that_run_without_checkpoints_have_ratios_and_the_page_says_both_bounds() -> None:
    flink = {BASE: runs((1e6, 2.0), (2e6, 1.0)), "aligned": runs((0.9e6, 2.2), (1.9e6, 1.2))}
    penstock = {BASE: runs((9e6, 0.1), (9e6, 0.1), (8e6, 0.1))}
    spark = {"micro-batch": runs((4e6, 0.5), (4e6, 0.5))}
    found = {"Flink": flink, "Penstock": penstock, "Spark": spark}
    summaries = checkpoint_cost.summaries(found)
    assert set(summaries) == {"Flink", "Penstock"}
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    loads = {checkpoint_cost.WITHOUT: {"runs": found, "summary": summaries}}
    result = {"flink": "2.3.0", "machine": facts, "loads": loads}
    assert "in windows" not in report_checkpoint_cost.checkpoint_cost(result)
    windows = {BASE: flink[BASE], checkpoint_cost.SWITCHED: flink["aligned"]}
    ratios_of_two = "| **0.925** (at least 0.767) | 1.70 (1.20 to 2.20) | **1.150** (at most 1.466) |"
    result["in_windows"] = {"windows": windows, "summary": summaries["Flink"]["aligned"]}
    page = report_checkpoint_cost.checkpoint_cost(result)
    assert f"| Penstock | default | 1.40 (0.90 to 1.90) | 6 to 6 {ratios_of_two}" in page
    assert "2 pairs of windows of 3 s" in page
    assert f"| Flink | aligned | 1.40 (0.90 to 1.90) | 6 to 6 {ratios_of_two}" in page
    assert "| Spark | micro-batch | 4.00 (4.00 to 4.00) | 6 to 6 |  | 0.50 (0.50 to 0.50) |  |" in page
    assert "| Flink | none | 1.50 (1.00 to 2.00) | 6 to 6 |  |" in page
    assert "2 rounds, and 1 of Penstock alone, 6 s of each run." in page
