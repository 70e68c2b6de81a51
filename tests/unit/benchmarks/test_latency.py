"""The arithmetic of the latency benchmark: each row is due once, at its time, and how results are summarized."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lib.fixed_rate_source import FixedRateReader, Schedule
from benchmarks.lib.harness import quantiles
from benchmarks.reports.user_python import ratio_to
from benchmarks.suites.latency import batches, in_window, of_window

STARTED_US = 1_700_000_000_123_457
OPTIONS = {"startedUs": str(STARTED_US), "keys": "7", "partitions": "3"}


@given(st.integers(1, 2_000_000), st.integers(-5, 3_000_000))
def test_a_row_is_there_from_the_moment_on_that_it_is_due(rows_per_second: int, elapsed_us: int) -> None:
    schedule = Schedule(STARTED_US, rows_per_second)
    now_us = STARTED_US + elapsed_us
    count = schedule.rows_due(now_us)
    if count:
        assert schedule.due_us(np.array([count - 1]))[0] <= now_us
    assert schedule.due_us(np.array([count]))[0] > now_us


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_ranges_one_behind_the_other_hold_every_row_once(lengths: list[int]) -> None:
    reader = FixedRateReader({**OPTIONS, "rowsPerSecond": "1000"})
    start, due = 0, []
    for length in lengths:
        for partition in reader.partitions({"rows": start}, {"rows": start + length}):
            for batch in reader.read(partition):
                due += batch["due_us"].to_pylist()
        start += length
    assert sorted(due) == [STARTED_US + 1_000 * number for number in range(start)]


def test_a_rows_key_is_the_same_in_any_range_and_all_keys_are_about_as_frequent() -> None:
    reader = FixedRateReader({**OPTIONS, "rowsPerSecond": "1000"})

    def keys(start: int, stop: int) -> dict[int, int]:
        batches = [batch for part in reader.partitions({"rows": start}, {"rows": stop}) for batch in reader.read(part)]
        return {
            due: key for batch in batches for key, due in zip(*map(pa.Array.to_pylist, batch.columns[::2]), strict=True)
        }

    whole = keys(0, 7_000)
    assert whole == keys(0, 1_234) | keys(1_234, 7_000)
    frequencies = Counter(whole.values())
    assert sorted(frequencies) == list(range(7))
    assert all(800 < count < 1_200 for count in frequencies.values())


def test_the_window_is_of_rows_by_when_they_were_due() -> None:
    schedule = Schedule(STARTED_US, 3)
    due_us = schedule.due_us(np.arange(12))
    assert np.flatnonzero(in_window(due_us, schedule, range(4, 9))).tolist() == [4, 5, 6, 7, 8]
    with pytest.raises(AssertionError, match="4 of 5 rows"):
        of_window(np.zeros(4), range(4, 9))


def test_a_micro_batch_is_written_when_the_commit_of_its_offsets_begins() -> None:
    source = {"startOffset": None, "endOffset": '{"rows": 40}'}
    one = {
        "timestamp": "2026-01-02T03:04:05.250Z",
        "numInputRows": 40,
        "durationMs": {"triggerExecution": 900, "commitOffsets": 100, "addBatch": 700},
        "sources": [source],
    }
    idle = {**one, "numInputRows": 0, "sources": [{"startOffset": '{"rows": 40}', "endOffset": '{"rows": 40}'}]}
    moment_us = 1_767_323_045_250_000 + 800_000
    assert batches([one, idle]) == [(0, 40, moment_us)]


def test_quantiles_and_ratios_of_rounds() -> None:
    figures = quantiles([float(number) for number in range(1_000, 0, -1)])
    assert (figures["min"], figures["median"], figures["p99"], figures["max"]) == (1.0, 500.5, 990.0, 1_000.0)
    rounds = [{"p99": value} for value in (1.0, 8.0, 3.0)]
    assert ratio_to([{"p99": 10.0}] * 3, rounds, "p99") == pytest.approx(0.3)
