"""Flink as a peer: what its REST API says is read right, and what the benchmark makes of it. Without Flink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import flink
from benchmarks.peers.flink.checkpoints import Checkpoint, Waiting, completed, requested, waiting
from benchmarks.peers.flink.cluster import free_ports, settings
from benchmarks.peers.flink.installation import FlinkError, installation
from benchmarks.peers.flink.job import Settings
from benchmarks.reports import flip76 as report_flip76
from benchmarks.suites import flip76


def entry(number: int, **other: Any) -> dict[str, Any]:
    """A checkpoint as Flink 2.3's ``/jobs/<id>/checkpoints`` tells of it, as far as it is read."""
    return {
        "className": "completed",
        "id": number,
        "status": "COMPLETED",
        "is_savepoint": False,
        "trigger_timestamp": 1_000 * number,
        "checkpointed_size": 2_985_216,
        "state_size": 2_985_216,
        "end_to_end_duration": 182,
        "persisted_data": 2_598_124,
        "checkpoint_type": "UNALIGNED_CHECKPOINT",
        **other,
    }


def test_completed_checkpoints_are_those_that_were_triggered_since_oldest_first() -> None:
    history = [
        entry(6, checkpoint_type="CHECKPOINT", persisted_data=0),
        {"className": "in_progress", "id": 5, "status": "IN_PROGRESS", "is_savepoint": False},
        {"className": "failed", "id": 4, "status": "FAILED", "is_savepoint": False},
        entry(3, is_savepoint=True),
        entry(2),
        entry(1),
    ]
    found = completed({"history": history}, since_ms=2_000)
    assert found == [
        Checkpoint(2, 2_000, 182.0, 2_598_124, 2_985_216, unaligned=True),
        Checkpoint(6, 6_000, 182.0, 0, 2_985_216, unaligned=False),
    ]


def test_waiting_is_that_of_the_subtask_that_waited_longest() -> None:
    def summary(start_delay: int, alignment: int) -> dict[str, Any]:
        return {
            "start_delay": {"min": 0, "max": start_delay, "avg": 1, "p50": "NaN"},
            "alignment": {"buffered": {"max": 9_999}, "duration": {"min": 0, "max": alignment, "avg": 1}},
        }

    assert waiting([summary(36, 0), summary(52, 27), summary(11, 140)]) == Waiting(52.0, 140.0)


def test_a_checkpoint_that_was_asked_for_and_failed_says_why() -> None:
    assert requested({"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 7}}) == 7
    failed = {"operation": {"failureCause": {"class": "X", "stack-trace": "CheckpointException: declined"}}}
    with pytest.raises(FlinkError, match="CheckpointException: declined"):
        requested(failed)


def test_settings_become_the_jobs_arguments(tmp_path: Path) -> None:
    arguments = Settings(
        0.25, unaligned=True, alignment_timeout_ms=100, fail_file=tmp_path / "fail", row_log=tmp_path
    ).arguments()
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert given["--rowUs"] == "250"
    assert given["--unaligned"] == "true"
    assert given["--alignmentTimeoutMs"] == "100"
    assert given["--failFile"] == str(tmp_path / "fail")
    assert given["--rowLog"] == str(tmp_path)
    assert not {"--failFile", "--rowLog"} & set(Settings(1.0).arguments())


def test_the_arguments_are_those_that_the_job_reads() -> None:
    source = (Path(flink.__file__).parent / "job" / "Backpressure.java").read_text()
    for name in Settings(1.0, fail_file=Path("fail"), row_log=Path("log")).arguments()[::2]:
        assert f'("{name.removeprefix("--")}"' in source, f"the job does not read {name}"


def test_the_cluster_listens_on_loopback_only(tmp_path: Path) -> None:
    rpc_port, rest_port = free_ports(2)
    assert rpc_port != rest_port
    given = settings(tmp_path, rpc_port, rest_port)
    assert {value for key, value in given.items() if key.endswith(("host", "address"))} == {"127.0.0.1"}
    assert given["execution.checkpointing.dir"] == f"file://{tmp_path}/checkpoints"


def test_without_flink_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(FlinkError, match="run make flink"):
        installation(tmp_path)
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    (packages / "apache_flink-2.3.0.dist-info").mkdir(parents=True)
    (packages / "apache_flink_libraries-2.3.0.dist-info").mkdir()
    with pytest.raises(FlinkError, match="run make flink"):
        installation(tmp_path)  # the job was not compiled
    (tmp_path / "peer.jar").touch()
    found = installation(tmp_path)
    assert (found.home, found.version) == (packages / "pyflink", "2.3.0")


# -- what the benchmark makes of it -----------------------------------------------------------------------------------


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flip76, "PAUSE_S", 0.0)


def one_of(durations: list[float | None]) -> Callable[[float], dict[str, Any] | None]:
    given = iter(durations)

    def one(left_s: float) -> dict[str, Any] | None:
        duration = next(given)
        return None if duration is None else {"duration_ms": duration, "written_bytes": 1_000}

    return one


@pytest.mark.usefixtures("no_pauses")
def test_as_many_checkpoints_as_asked_for_and_what_passed_meanwhile() -> None:
    rows = iter((100, 350))
    cell = flip76.take(2, 60.0, one_of([5.0, 6.0, 7.0]), lambda: next(rows))
    assert [one["duration_ms"] for one in cell["checkpoints"]] == [5.0, 6.0]
    assert all(one["raw_write_ms"] > 0 for one in cell["checkpoints"])
    assert cell["rows"] == 250
    assert "over_ms" not in cell


@pytest.mark.usefixtures("no_pauses")
def test_a_checkpoint_over_the_limit_is_a_bound_only_if_it_is_the_first() -> None:
    assert flip76.take(2, 60.0, one_of([None]), lambda: 0)["over_ms"] >= 0
    cell = flip76.take(2, 60.0, one_of([5.0, None]), lambda: 0)
    assert len(cell["checkpoints"]) == 1
    assert "over_ms" not in cell


def cell(*durations: float) -> dict[str, Any]:
    figures = {"inflight_bytes": 3_000_000, "written_bytes": 500_000, "raw_write_ms": 5.0, "start_delay_ms": 4.0}
    return {
        "checkpoints": [{"duration_ms": duration, **figures} for duration in durations],
        "rows": 900,
        "seconds": 0.5,
    }


def test_the_report_leaves_out_first_checkpoints_and_names_the_ratio() -> None:
    engines = {
        "Flink": {
            "aligned": {"checkpoints": [], "over_ms": 30_000.0, "rows": 2_400, "seconds": 2.0},
            "unaligned": cell(900, 60, 80, 70),
        },
        "Penstock": {
            "aligned": cell(16_000),
            "unaligned": cell(300, 30, 28, 31),
            "default": cell(500, 229, 230, 231),
        },
    }
    spark = {"batch_rows": 26_000, "micro_batch_ms": [13_400.0]}
    facts = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
    result = {"flink": "2.3.0", "machine": facts, "row_ms": {"1": {"engines": engines, "spark": spark}}}
    page = report_flip76.flip76(result)
    assert "| Flink | aligned |  |  |  | over 30000 (given up) |  |  |" in page
    assert "| Flink | unaligned | 3.0 MB | 0.50 MB | 900 | 60 / 70 / 80 | 5 / 5 / 5 | 4 |" in page
    assert "| Penstock | aligned | 3.0 MB | 0.50 MB | 16000 | 16000 / 16000 / 16000 |" in page
    assert (
        "Penstock: 0.43 of Flink's median, 2 of 4 within 2 x (raw write + 10 ms); "
        "default 2 of 4 within 200 ms + 2 x (raw write + 10 ms)."
    ) in page
    assert "sink meanwhile: Flink 1,200 to 1,800; Penstock 1,800 to 1,800." in page
    assert "| Spark | micro-batch | 26,000 rows |  |  | 13400 / 13400 / 13400 |" in page
