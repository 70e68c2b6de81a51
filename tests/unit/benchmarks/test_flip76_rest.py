"""Other queues, skew, and snapshots of what changed: what is asked for, and what is told. Without Flink and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.flink import job
from benchmarks.reports import flip76 as report_flip76
from benchmarks.reports import incremental_peers as report_incremental_peers
from benchmarks.suites import flip76, queues_and_skew
from benchmarks.suites.incremental_peers import Lines

FACTS = {"date": "2026-01-01", "cores": 2, "python": "3.11", "pyspark": "4.3", "pyarrow": "18"}
JOBS = Path(job.__file__).parent / "job"


# -- queues and skew --------------------------------------------------------------------------------------------------


def test_each_engine_has_as_many_queues_as_the_other_and_what_is_alike_is_there() -> None:
    assert len(queues_and_skew.FLINK_QUEUES) == len(queues_and_skew.PENSTOCK_QUEUES)
    assert queues_and_skew.FLINK_QUEUES[queues_and_skew.AS_SHIPPED] == {}
    assert queues_and_skew.PENSTOCK_QUEUES[queues_and_skew.ALIKE] == flip76.GATES["Penstock, queues as Flink's"]


def test_only_a_hot_key_changes_what_flink_is_asked_for() -> None:
    def given(hot_percent: int) -> dict[str, str]:
        arguments = job.Settings(1.0, hot_percent=hot_percent).arguments()
        return dict(zip(arguments[::2], arguments[1::2], strict=True))

    assert given(90) == given(0) | {"--hotPercent": "90"}


def test_the_report_tells_queues_as_each_engine_does_and_what_was_given_up() -> None:
    one = {"inflight_bytes": 3e6, "written_bytes": 5e5, "raw_write_ms": 5.0, "start_delay_ms": 4.0, "duration_ms": 60.0}
    engines = {
        "Flink": {
            "debloated": {"unaligned": {"queued_rows": 26_000, "checkpoints": [one | {"duration_ms": 9.0}, one]}}
        },
        "Penstock": {"gates of 8 MB": {"aligned": {"queued_bytes": 4e7, "checkpoints": [], "over_ms": 40_000.0}}},
    }
    page = report_flip76.queues_and_skew({"flink": "2.3.0", "machine": FACTS, "engines": engines})
    assert (
        "| Flink | debloated | unaligned | 26,000 rows | 3.0 MB | 0.50 MB | 9 | 60 / 60 / 60 | 5 / 5 / 5 | 4 |" in page
    )
    assert "| Penstock | gates of 8 MB | aligned | 40.0 MB |  |  |  | over 40000 (given up) |  |  |" in page


# -- snapshots of what changed ----------------------------------------------------------------------------------------


def test_the_arguments_are_those_that_the_job_of_large_state_reads() -> None:
    source = (JOBS / "LargeState.java").read_text()
    given = job.StateSettings(Path("in"), 11, "rocksdb")
    for name in given.arguments()[::2]:
        assert f'("{name.removeprefix("--")}"' in source, f"the job does not read {name}"
    for each in (given, job.Settings(1.0)):
        assert f"class {each.main_class.rpartition('.')[2]} {{" in "".join(p.read_text() for p in JOBS.glob("*.java"))


def test_flinks_files_have_a_line_for_each_key_and_appear_whole(tmp_path: Path) -> None:
    inbox = Lines(tmp_path, 100)
    inbox.add_all()
    lines = [line.split(" ") for path in inbox.path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(int(key) for key, _ in lines) == [7_919 * number for number in range(100)]
    assert inbox.add_some(0.05) == 5
    assert list(tmp_path.glob("*.txt")) == []


def test_the_time_of_what_changed_is_told_beside_that_of_the_quickest_full_one() -> None:
    def taken(*ms: float) -> list[dict[str, float]]:
        return [{"ms": each, "bytes": 2e6, "raw_ms": 3.0} for each in ms]

    full = {"savepoint, native": taken(400.0), "savepoint, canonical": taken(900.0)}
    found: dict[str, Any] = {"first": taken(500.0)[0], "changed": taken(90.0, 100.0, 130.0), "full": full}
    sizes = {"1000000": {"Flink, hashmap": found}, "40000000": {"Flink, rocksdb": found}}
    result = {"flink": "2.3.0", "values": 11, "changed": 0.01, "machine": FACTS, "keys": sizes}
    page = report_incremental_peers.incremental_peers(result)
    assert "| 1,000,000 | Flink, hashmap | changed | 100 (90 to 130) | 2.0 | 3 | 0.25 |" in page
    assert "| 1,000,000 | Flink, hashmap | first | 500 (once) | 2.0 | 3 |  |" in page
    assert "\nOf 40,000,000 keys Flink's heap is not measured" in page
    assert "\nOf 1,000,000 keys" not in page
    assert "one after 1% of" in page
