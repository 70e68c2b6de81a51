"""Comebacks: what is read from which notes, what Spark's loop notes, and what is told. Without Flink and Spark."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from benchmarks.lib import row_log
from benchmarks.lib.row_log import RowLog
from benchmarks.peers import spark_restarts
from benchmarks.peers.flink.checkpoints import external_path, savepoint
from benchmarks.peers.flink.installation import FlinkError
from benchmarks.reports import recovery_peers as report_recovery_peers
from benchmarks.suites import recovery_peers
from benchmarks.suites.recovery_peers import KILL, Comeback

# -- what is read -----------------------------------------------------------------------------------------------------


def notes(*commits_s: float) -> RowLog:
    """Two subtasks that were there before 10 s, and two that took their first rows at 11 and 13 s."""
    processed = [[(1.0, 1), (20.0, 900)], [(2.0, 1)], [(11.0, 1)], [(13.0, 1)]]
    return RowLog(processed, [[(at_s, 1) for at_s in commits_s]])


def test_it_is_back_when_the_last_of_its_subtasks_has_a_row_and_a_checkpoint_behind_that_is_complete() -> None:
    assert recovery_peers.comeback(notes(9.0, 12.0, 13.5, 14.0), 10.0, 2, None) == Comeback(None, 3.0, 0.5)
    assert recovery_peers.comeback(notes(9.0, 12.0, 13.5), 10.0, 1, 0.7) == Comeback(0.7, 1.0, 1.0)


def test_it_is_not_back_before_both() -> None:
    assert recovery_peers.comeback(notes(9.0, 12.0), 10.0, 2, None) is None
    assert recovery_peers.comeback(notes(14.0), 10.0, 3, None) is None


def test_flinks_answers_say_where_checkpoints_and_savepoints_lie_or_why_there_is_none() -> None:
    history = [{"id": 8, "external_path": "file:/eight"}, {"id": 7, "external_path": "file:/seven"}]
    assert external_path({"history": history}, 7) == "file:/seven"
    assert savepoint({"operation": {"location": "file:/here"}}) == "file:/here"
    with pytest.raises(FlinkError, match="CheckpointException: declined"):
        savepoint({"operation": {"failure-cause": {"class": "X", "stack-trace": "CheckpointException: declined"}}})


# -- Spark's loop -----------------------------------------------------------------------------------------------------


class Query:
    """Spark query that has committed these micro-batches, and then fails or continues."""

    def __init__(self, batches: list[int], fails: bool) -> None:
        self.recentProgress = [
            {
                "batchId": number,
                "timestamp": f"1970-01-01T00:00:{number:02d}.000Z",
                "durationMs": {"triggerExecution": 500},
                "numInputRows": 10,
            }
            for number in batches
        ]
        self.fails = fails
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - PySpark's name
        if self.fails:
            raise StreamingQueryException("asked to fail")
        time.sleep(0.01)
        return False

    def stop(self) -> None:
        self.stopped = True


def test_the_loop_begins_a_failed_query_again_and_notes_every_micro_batch_once(tmp_path: Path) -> None:
    queries = [Query([0, 1], fails=True), Query([1, 2], fails=True), Query([3], fails=False)]
    starts = iter(queries)
    with spark_restarts.Loop(lambda: next(starts), tmp_path, delay_ms=1) as loop:  # type: ignore[arg-type,return-value]
        until = time.monotonic() + 10
        while loop.micro_batches < 4 and time.monotonic() < until:
            time.sleep(0.01)
    assert row_log.read(tmp_path).committed == [[(0.5, 10), (1.5, 20), (2.5, 30), (3.5, 40)]]
    assert [query.stopped for query in queries] == [False, False, True]


def test_each_task_of_spark_counts_for_itself_all_its_rows_and_what_it_is_given_comes_in_slices(tmp_path: Path) -> None:
    rows = pa.RecordBatch.from_pydict({"n": list(range(50))})
    stage = spark_restarts.last_stage(str(tmp_path), 0.0)
    for _ in range(2):
        assert [len(batch) for batch in stage(iter([rows, rows]))] == [20, 20, 10] * 2
    assert [one[-1][1] for one in row_log.read(tmp_path).processed] == [100, 100]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_who_is_killed_ran_the_newest_task(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    assert not spark_restarts.kill_worker(tmp_path)
    with subprocess.Popen(["true"]) as older:
        older.wait(10)
    (tmp_path / f"1000-{older.pid}.processed").touch()
    (tmp_path / f"2000-{sleeper.pid}.processed").touch()
    assert spark_restarts.kill_worker(tmp_path)
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not spark_restarts.kill_worker(tmp_path)


# -- what is told -----------------------------------------------------------------------------------------------------


def test_the_report_has_the_spread_and_who_is_within_the_target() -> None:
    kills = [Comeback(None, 0.5, 0.9), Comeback(None, 1.5, 0.9), Comeback(None, 0.7, 1.1)]
    rescales = [Comeback(2.0, 2.5, 0.4)]
    deeds = {KILL: [asdict(one) for one in kills], "rescale to 1": [asdict(one) for one in rescales]}
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    result: dict[str, Any] = {"flink": "2.3.0", "machine": facts, "engines": {"Penstock": deeds}}
    page = report_recovery_peers.recovery_peers(result)
    assert "| Penstock | kill -9 | 3 |  | **0.70 (0.50 to 1.50)** | 0.90 (0.90 to 1.10) | 1 of 3 |" in page
    assert "| Penstock | rescale to 1 | 1 | 2.00 (once) | **2.50 (once)** | 0.40 (once) | 1 of 1 |" in page
