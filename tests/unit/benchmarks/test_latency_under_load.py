"""Latency under load: which rows are due when, what is counted, and what is told of it. Without a JVM."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from benchmarks.lib import latency_sink, variable_rate_source
from benchmarks.lib.variable_rate_source import Schedule, Step, VariableRateReader
from benchmarks.peers import flink
from benchmarks.peers.flink.load_job import LoadSettings
from benchmarks.reports import charts
from benchmarks.reports import latency_under_load as report_load
from benchmarks.reports.drawing import Row
from benchmarks.suites import latency_under_load
from benchmarks.suites.latency_under_load import Lengths

STARTED_S = 1_700_000_000
STARTED_US = STARTED_S * 1_000_000
SCHEDULES = st.lists(st.builds(Step, st.integers(1, 20_000_000), st.integers(1, 3)), min_size=1, max_size=4).map(
    lambda steps: Schedule(STARTED_US, steps)
)
OPTIONS = {"startedUs": str(STARTED_US), "keys": "7", "partitions": "2"}


# -- rows by the clock ------------------------------------------------------------------------------------------------


@given(SCHEDULES, st.integers(-5, 13_000_000))
def test_a_row_is_there_from_the_moment_on_that_it_is_due(schedule: Schedule, elapsed_us: int) -> None:
    total = sum(step.rows_per_second * step.seconds for step in schedule.steps)
    now_us = STARTED_US + elapsed_us
    count = schedule.rows_due(now_us)
    assert count <= total
    if count:
        assert schedule.due_us(np.array([count - 1]))[0] <= now_us
    if count < total:
        assert schedule.due_us(np.array([count]))[0] > now_us


def test_each_second_has_as_many_rows_as_its_step_says() -> None:
    schedule = Schedule(STARTED_US, [Step(1_000, 2), Step(7, 1), Step(300_000, 1)])
    seconds = schedule.due_us(np.arange(302_007)) // 1_000_000 - STARTED_S
    assert np.bincount(seconds).tolist() == [1_000, 1_000, 7, 300_000]


@given(SCHEDULES)
def test_a_schedule_comes_out_of_the_sources_options_as_it_was(schedule: Schedule) -> None:
    assert variable_rate_source.parsed(STARTED_US, str(schedule)).steps == schedule.steps


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=4))
def test_ranges_one_behind_the_other_hold_every_row_once(lengths: list[int]) -> None:
    reader = VariableRateReader({**OPTIONS, "steps": "1000000:60"})
    start, due = 0, []
    for length in lengths:
        for partition in reader.partitions({"rows": start}, {"rows": start + length}):
            batches = list(reader.read(partition))
            assert all(batch.num_rows <= variable_rate_source.BATCH_ROWS for batch in batches)
            due += [batch["due_us"].to_numpy() for batch in batches]
        start += length
    found = np.sort(np.concatenate([*due, np.empty(0, np.int64)]))
    assert np.array_equal(found, STARTED_US + np.arange(start))


def test_a_reader_that_waits_has_no_row_before_it_is_due_and_none_is_left_out() -> None:
    started_us = time.time_ns() // 1_000 + 20_000
    reader = VariableRateReader({**OPTIONS, "startedUs": str(started_us), "steps": "1000:60", "waits": "true"})
    (first, _) = reader.partitions({"rows": 0}, reader.latestOffset({"rows": 0}, None))
    due: list[int] = []
    for batch in reader.read(first):
        due += batch["due_us"].to_pylist()
        assert due[-1] <= time.time_ns() // 1_000
        if len(due) > 30:
            break
    assert due == [started_us + 2_000 * number for number in range(len(due))]


def test_a_reader_that_is_not_behind_gathers_rows_for_some_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ns = [STARTED_US * 1_000]

    def sleep(seconds: float) -> None:
        clock_ns[0] += round(seconds * 1e9)

    monkeypatch.setattr(variable_rate_source, "time", SimpleNamespace(time_ns=lambda: clock_ns[0], sleep=sleep))
    reader = VariableRateReader({**OPTIONS, "steps": "1000000:60", "waits": "true", "lingerMs": "20"})
    (first, _) = reader.partitions({"rows": 0}, reader.latestOffset({"rows": 0}, None))
    batches = list(itertools.islice(reader.read(first), 6))
    assert [batch.num_rows for batch in batches[1:]] == [10_000] * 5, "20 ms of one partition of two"
    assert clock_ns[0] == STARTED_US * 1_000 + 5 * 20_000_000


def test_without_a_schedule_rows_are_due_when_they_are_taken_and_a_range_has_its_size() -> None:
    reader = VariableRateReader({**OPTIONS, "rangeRows": "100", "steps": ""})
    end = reader.latestOffset({"rows": 500}, None)
    before_us = time.time_ns() // 1_000
    batches = [batch for part in reader.partitions({"rows": 500}, end) for batch in reader.read(part)]
    assert [batch.num_rows for batch in batches] == [50, 50]
    assert all(before_us <= due <= time.time_ns() // 1_000 for batch in batches for due in batch["due_us"].to_pylist())


# -- what is counted --------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(0, 1_000), st.integers(0, latency_sink.MOST_US)), min_size=1))
def test_the_buckets_are_those_of_an_hdr_histogram(latencies: list[int]) -> None:
    reference = HdrHistogram(1, latency_sink.MOST_US, latency_sink.DIGITS)
    found = latency_sink.buckets(np.array(latencies))
    assert [latency_sink.least_us(int(bucket)) for bucket in found] == [
        reference.get_lowest_equivalent_value(latency) for latency in latencies
    ]
    assert found.max() < latency_sink.BUCKETS == reference.counts_len


def test_a_stall_counts_for_every_row_that_was_due_in_it(tmp_path: Path) -> None:
    """The sink gets 1,000 rows a second at once, but for one second, whose rows all come at its end."""
    counted = latency_sink.LatencyHistogram()
    due_us = Schedule(STARTED_US, [Step(1_000, 3)]).due_us(np.arange(3_000))
    for number in (*range(1_000), *range(2_000, 3_000)):
        counted.add(due_us[number : number + 1], int(due_us[number]))
    counted.add(due_us[1_000:2_000], STARTED_US + 2_000_000)
    (tmp_path / "0-1.latency").write_text("".join(counted.lines()))
    notes = latency_sink.read(tmp_path)
    assert [notes.due(range(STARTED_S + second, STARTED_S + second + 1)) for second in range(4)] == [1_000] * 3 + [0]
    stalled = latency_under_load.histogram(notes, range(STARTED_S + 1, STARTED_S + 2))
    assert stalled.get_total_count() == 1_000
    found = latency_under_load.percentiles(stalled)
    assert found["50"] == pytest.approx(500, rel=0.01)
    assert found["99"] == pytest.approx(990, rel=0.01)
    assert found["100"] == pytest.approx(1_000, rel=0.01)
    whole = latency_under_load.histogram(notes, range(STARTED_S, STARTED_S + 3))
    assert latency_under_load.percentiles(whole)["50"] == 0.0


def test_rows_that_never_came_count_as_later_than_was_waited(tmp_path: Path) -> None:
    (tmp_path / "0-1.latency").write_text("5 5 1000 60\n")
    notes = latency_sink.read(tmp_path)
    found = latency_under_load.percentiles(latency_under_load.histogram(notes, range(5, 6), missing=40))
    assert found["50"] == pytest.approx(1.0, rel=0.01)
    assert found["90"] == pytest.approx(latency_under_load.LIMIT_S * 1_000, rel=0.01)
    assert latency_under_load.percentiles(latency_under_load.histogram(notes, range(9, 10), missing=1))["50"] > 59_000


def test_rows_are_counted_by_when_they_were_due_and_by_when_they_arrived(tmp_path: Path) -> None:
    writer = latency_sink.LatencySink({"path": str(tmp_path)}).streamWriter(StructType(), overwrite=False)
    now_s = time.time_ns() // 1_000_000_000
    long_ago = np.array([now_s - 9, now_s - 9, now_s - 7]) * 1_000_000
    writer.write(iter([pa.RecordBatch.from_pydict({"due_us": part}) for part in (long_ago, long_ago[:0], long_ago)]))
    writer.write(iter([]))
    notes = latency_sink.read(tmp_path)
    assert (notes.due(range(now_s - 9, now_s - 8)), notes.due(range(now_s - 8, now_s))) == (4, 2)
    assert (notes.arrived(range(now_s - 9, now_s)), notes.arrived(range(now_s, now_s + 5))) == (0, 6)
    assert next(iter(notes.last_s.values())) in range(now_s, now_s + 5)
    assert len(notes.last_s) == 1, "one writer, two files"


def test_the_folder_may_be_empty_yet(tmp_path: Path) -> None:
    notes = latency_sink.read(tmp_path)
    assert (notes.due(range(9)), notes.last_s) == (0, {})


def test_rows_from_the_future_are_not_late() -> None:
    counted = latency_sink.LatencyHistogram()
    counted.add(np.array([STARTED_US + 5]), STARTED_US)
    assert list(counted.lines()) == [f"{STARTED_S} {STARTED_S} 0 1\n"]


# -- what is made of it -----------------------------------------------------------------------------------------------


def test_the_measured_seconds_are_the_last_ones_of_each_load() -> None:
    schedule, windows = latency_under_load.plan(1_000.0, STARTED_S, Lengths(warm_up=4, most=1, load=3))
    rates = {
        load: {_rate(schedule, second) for second in (*window, window.start - 1)} for load, window in windows.items()
    }
    assert rates == {10: {100}, 50: {500}, 90: {900}}
    assert {len(window) for window in windows.values()} == {3}
    assert _rate(schedule, windows[10].start - latency_under_load.SETTLE_S - 1) == 500, "the warm-up"
    assert _rate(schedule, STARTED_S) == 100, "while the job starts"
    assert _rate(schedule, windows[90].stop) == 100, "so that who is behind gets to the rest"


def _rate(schedule: Schedule, second: int) -> int:
    return schedule.rows_due((second + 1) * 1_000_000 - 1) - schedule.rows_due(second * 1_000_000 - 1)


def test_the_rate_is_of_what_arrived_and_only_once_every_writer_has_noted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_under_load, "LIMIT_S", 0.1)
    (tmp_path / "0-1.latency").write_text("5 10 100 7\n5 11 100 70\n11 12 100 700\n")
    (tmp_path / "1-1.latency").write_text("9 10 100 9000\n9 12 1 1\n")
    assert latency_under_load.noted_rate(tmp_path, range(10, 12)) == (7 + 70 + 9000) / 2
    (tmp_path / "1-1.latency").write_text("9 10 100 9000\n9 11 1 1\n")
    with pytest.raises(TimeoutError, match="notes"):
        latency_under_load.noted_rate(tmp_path, range(10, 12))


def test_sparks_rate_is_that_of_the_micro_batches_that_ran_in_the_window() -> None:
    def batch(second: float, rows: int, took_ms: int) -> dict[str, Any]:
        timestamp = f"2023-11-14T22:13:{20 + second:06.3f}Z"
        return {"timestamp": timestamp, "numInputRows": rows, "durationMs": {"triggerExecution": took_ms}}

    progress = [batch(0, 999, 900), batch(0.9, 400, 500), batch(1.4, 600, 1_500), batch(3, 999, 1)]
    assert latency_under_load.batch_rate(progress, range(STARTED_S + 1, STARTED_S + 3)) == 500.0


def cell(latencies_us: list[int], achieved: float = 1.0, missing: int = 0) -> dict[str, Any]:
    found = HdrHistogram(1, latency_sink.MOST_US, latency_sink.DIGITS)
    for latency_us in latencies_us:
        found.record_value(latency_us)
    return {
        "target_rows_per_second": 2_000_000,
        "achieved_rows_per_second": 2_000_000 * achieved,
        "missing_rows": missing,
        "checkpoints": 5,
        **latency_under_load.told(found),
    }


def result(**cells: list[dict[str, Any]]) -> dict[str, Any]:
    names = {"penstock": "Penstock", "unaligned": "Penstock, unaligned", "flink": "Flink", "spark": "Spark"}
    rounds = {
        names[form]: [{"most_rows_per_second": 4e6, "loads": {"50": one}} for one in found]
        for form, found in cells.items()
    }
    table = {form: {"50": latency_under_load.of_all(found, "50")} for form, found in rounds.items()}
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    made = {"keys": 10_000, "rounds": rounds, "ms": table, "ratios": latency_under_load.ratios(table)}
    return {"flink": "2.3.0", "machine": facts, **made}


def test_the_figures_are_over_the_rows_of_all_rounds_and_the_ratios_of_those_figures() -> None:
    made = result(
        penstock=[cell([100] * 98 + [50_000] * 3), cell([100] * 98 + [200])],
        unaligned=[cell([50])],
        flink=[cell([200])],
        spark=[cell([1_000])],
    )
    assert made["ms"]["Penstock"]["50"]["50"] == pytest.approx(0.1)
    assert made["ms"]["Penstock"]["50"]["100"] == pytest.approx(50, rel=0.008)
    assert made["ratios"]["Penstock"]["50"]["Flink"]["50"] == pytest.approx(0.5)
    assert made["ratios"]["Penstock, unaligned"]["50"]["Spark"]["99"] == pytest.approx(0.05, rel=0.01)
    assert set(made["ratios"]["Penstock"]["50"]) == {"Flink", "Spark"}, "what was measured"


def test_an_engines_first_run_does_not_count_and_rounds_go_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = ["Penstock", "Penstock, unaligned", "Flink", "Spark"]
    ran: list[str] = []

    def most(start: Any, lengths: Lengths) -> float:
        ran.append(start)
        return float(len(ran))

    monkeypatch.setattr(latency_under_load, "most", most)
    monkeypatch.setattr(
        latency_under_load,
        "under_load",
        lambda start, most_rows, lengths: {str(load): cell([100]) for load in latency_under_load.LOADS},
    )
    found: Any = latency_under_load.measured({form: form for form in forms}, quick=False)  # type: ignore[dict-item]
    assert ran == ["Penstock", "Flink", "Spark", *forms, *reversed(forms)]
    rates = {form: [one["most_rows_per_second"] for one in rounds] for form, rounds in found["rounds"].items()}
    assert rates == {"Penstock": [4, 11], "Penstock, unaligned": [5, 10], "Flink": [6, 9], "Spark": [7, 8]}


def test_the_report_says_who_is_behind() -> None:
    page = report_load.latency_under_load(
        result(
            penstock=[cell([100]), cell([100], achieved=0.96)],
            unaligned=[cell([100], achieved=0.94)],
            flink=[cell([100], missing=1_234)],
            spark=[cell([100])],
        )
    )
    assert "| Penstock | 4.00 (4.00 to 4.00) | 50 % | 2.00 | 100% / 96% | 0.1 | 0.1 | **0.1** (0.1 / 0.1) |" in page
    assert "| Penstock, unaligned | 4.00 (once) | 50 % | 2.00 | 94%; BEHIND |" in page
    assert "| 100%; BEHIND: 1,234 rows never came |" in page


def test_the_chart_goes_from_the_median_to_the_worst_thousandth() -> None:
    made = result(
        penstock=[cell([1_000] * 500 + [1_500] * 400 + [2_000] * 90 + [4_000] * 9 + [8_000])],
        unaligned=[cell([9])],
        spark=[cell([9])],
    )
    ((name, rows),) = charts.latency_under_load(made).groups
    assert name == "50 % of the most"
    ms = made["ms"]["Penstock"]["50"]
    assert rows[0] == Row("Penstock", "Penstock", ms["50"], ms["99"], ms["99.9"], ms["100"], ", p50 1")
    assert ms["50"] < ms["99"] < ms["99.9"] < ms["100"]
    assert rows[1].engine == "Penstock"


# -- Flink's form of it -----------------------------------------------------------------------------------------------


def java(name: str) -> str:
    return (Path(flink.__file__).parent / "job" / f"{name}.java").read_text()


def test_the_arguments_are_those_that_the_job_reads() -> None:
    settings = LoadSettings(STARTED_US, "100:5,200:5", Path("notes"), unaligned=True, buffer_timeout_ms=10)
    arguments = settings.arguments()
    for name in arguments[::2]:
        assert f'("{name.removeprefix("--")}"' in java("LatencyUnderLoad"), f"the job does not read {name}"
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert (given["--steps"], given["--unaligned"], given["--bufferTimeoutMs"]) == ("100:5,200:5", "true", "10")
    assert "--steps" not in LoadSettings(0, "", Path("notes")).arguments()
    assert settings.main_class == "penstock.peer.LatencyUnderLoad"


def test_flinks_sink_counts_with_the_same_buckets() -> None:
    source = java("LatencySink")
    assert f"int EXACT_BITS = {latency_sink.EXACT_BITS};" in source
    assert "long MOST_MICROS = (1L << 32) - 1;" in source
    assert latency_sink.MOST_US == (1 << 32) - 1
