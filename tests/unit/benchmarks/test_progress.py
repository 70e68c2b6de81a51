"""Progress under failures: what is counted, and from which notes. Without Flink and without Spark's JVM."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from benchmarks.lib import row_log, stages
from benchmarks.lib.row_log import RowLog
from benchmarks.reports import progress as report_progress
from benchmarks.suites import progress
from benchmarks.suites.progress import Cycle

TWICE = RowLog(
    processed=[
        [(0.0, 1), (10.0, 100)],
        [(0.0, 1), (10.0, 110)],
        [(11.0, 1), (20.0, 90)],
        [(12.0, 1), (20.0, 80)],
        [(23.0, 1), (30.0, 70)],
    ],
    committed=[[(9.0, 90), (13.5, 115), (19.0, 170)], [(9.0, 100), (19.0, 165), (29.0, 200)]],
)
"""Two failures, at 10 s and at 20 s; after the second only one of two subtasks has come back by 30 s."""


def test_cycles_count_what_was_committed_from_a_failure_to_the_next() -> None:
    first, second = progress.cycles(TWICE, [10.0, 20.0, 30.0])
    assert first == Cycle(seconds=10.0, rows=335 - 190, again=210 - 190, recovery_s=2.0, next_checkpoint_s=1.5)
    assert (second.rows, second.again) == (370 - 335, (210 + 170 - 335) - 20)
    assert second.recovery_s is None
    assert second.next_checkpoint_s is None


def test_a_checkpoint_that_completes_after_the_next_failure_is_none_of_the_cycle() -> None:
    notes = RowLog(processed=[[(11.0, 1)], [(12.0, 1)]], committed=[[(25.0, 5)]])
    (cycle,) = progress.cycles(notes, [10.0, 20.0])
    assert (cycle.rows, cycle.recovery_s, cycle.next_checkpoint_s) == (0, 2.0, None)


def test_kills_come_last_and_the_undisturbed_rates_are_around_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def undisturbed(*_: object) -> float:
        order.append("undisturbed")
        return 1.0

    def disturbed(_: object, __: Path, trouble: progress.Trouble) -> list[Cycle]:
        order.append("kill" if trouble.kill else f"every {trouble.every_s:.0f} s")
        return []

    monkeypatch.setattr(progress, "undisturbed", undisturbed)
    monkeypatch.setattr(progress, "disturbed", disturbed)
    cells = progress.measured({"one": lambda _: nullcontext()}, "unaligned", progress.TROUBLES, 1.0)  # type: ignore[dict-item, return-value]
    assert order == ["undisturbed", "every 20 s", "every 5 s", "undisturbed", "kill"]
    assert cells == {"one": {"undisturbed": [1.0, 1.0], "troubles": {name: [] for name in progress.TROUBLES}}}


def test_flink_runs_with_and_without_flip_547_where_checkpoints_are_unaligned(tmp_path: Path) -> None:
    engines = {mode: list(progress.starts_of(None, None, mode)) for mode in progress.MODES}  # type: ignore[arg-type]
    both = ["Flink", progress.FLIP_547, progress.QUEUES]
    assert engines == {
        "aligned": ["Flink", progress.QUEUES],
        "unaligned": [*both, "Spark"],
        "100 ms time-out": both,
    }
    for engine, during_recovery in (("Flink", "false"), (progress.FLIP_547, "true")):
        arguments = progress.flink_settings("unaligned", tmp_path, engine).arguments()
        assert arguments[arguments.index("--duringRecovery") + 1] == during_recovery


def test_each_start_of_a_subtask_has_notes_of_its_own_and_a_torn_line_does_not_count(tmp_path: Path) -> None:
    def subtask() -> None:
        row_log.add(str(tmp_path), 3)
        row_log.add(str(tmp_path), 4)  # too soon to be noted

    for _ in range(2):
        thread = threading.Thread(target=subtask)
        thread.start()
        thread.join()
    (tmp_path / "0.committed").write_text("1000 5\n2500 8\n3000 1")
    (tmp_path / "empty.processed").touch()
    notes = row_log.read(tmp_path)
    assert [[rows for _, rows in one] for one in notes.processed] == [[3], [3]]
    assert notes.committed == [[(1.0, 5), (2.5, 8)]]
    assert [notes.rows_committed(at_s) for at_s in (0.9, 1.0, 2.4, 9.0)] == [0, 5, 5, 8]


def test_the_sink_notes_committed_rows_once_for_a_batch(tmp_path: Path) -> None:
    writer = row_log.RowLogSink({"path": str(tmp_path)}).streamWriter(StructType(), overwrite=False)
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3]})
    message = writer.write(iter([rows, rows]))
    for batch in (0, 0, 1):
        writer.commit([message, None], batch)
    assert [rows for _, rows in row_log.read(tmp_path).committed[0]] == [6, 12]


def test_an_exception_comes_once_for_each_time_it_is_asked_for(tmp_path: Path) -> None:
    stages.throw_if_requested(str(tmp_path))
    (tmp_path / stages.FAIL_FILE).write_text("7")
    with pytest.raises(RuntimeError, match="asked to fail, number 7"):
        stages.throw_if_requested(str(tmp_path))
    stages.throw_if_requested(str(tmp_path))


def test_the_report_has_the_share_over_all_cycles_and_says_where_nothing_came_back() -> None:
    cycles = [Cycle(20.0, 36_000, 900, 0.5, 1.0), Cycle(20.0, 30_000, 1_100, 0.7, None)]
    cell: dict[str, Any] = {
        "undisturbed": [1_900.0, 2_100.0],
        "troubles": {"exception every 20 s": [asdict(cycle) for cycle in cycles]},
    }
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    page = report_progress.progress({"flink": "2.3.0", "machine": facts, "engines": {"Flink": {"unaligned": cell}}})
    shown = "| 1,900 / 2,100 | **0.82** (0.75 to 0.90) | 0.90 | 0.60 / 0.70 | 1.00 / 1.00; none in 1 of 2 | 1,000 |"
    assert f"| Flink, unaligned | exception every 20 s {shown}" in page


def test_every_trouble_has_a_target() -> None:
    assert set(report_progress.TARGETS) == set(progress.TROUBLES)
