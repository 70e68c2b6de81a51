"""The demo's parts: real flights, arriving files, the comparison, the verdict and the report."""

from __future__ import annotations

import itertools
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.demo.compare import Verdict, compare
from penstock.cli.demo.data import COLUMNS, load_flights, write_files
from penstock.cli.demo.feeder import Feeder
from penstock.cli.demo.job_file import load_job
from penstock.cli.demo.report import write_report
from penstock.cli.demo.results import DemoResults
from penstock.errors import ConfigError, ResourceError


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights()


def test_these_are_the_flights_of_2013(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    assert flights.schema == pa.schema(list(COLUMNS.items()))
    assert flights["tailnum"].null_count == 2_512
    assert flights["dep_delay"].null_count == 8_255
    assert sum(flights["distance"].to_pylist()) == 350_217_607


def test_files_are_in_order_of_event_time_and_hold_every_row(flights: pa.Table, tmp_path: Path) -> None:
    prepared = write_files(flights, tmp_path / "staging")
    tables = [pq.read_table(file) for file in prepared.files]
    assert list(prepared.files) == sorted(prepared.files)
    assert sum(table.num_rows for table in tables) == prepared.rows == 336_776
    ends = [(table["time_hour"][0].as_py(), table["time_hour"][-1].as_py()) for table in tables]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))
    assert prepared.max_event_time_us == ends[-1][1].timestamp() * 1_000_000


def test_the_small_run_takes_two_months(flights: pa.Table) -> None:
    small = load_flights(small=True)
    assert 50_000 < small.num_rows < 60_000
    assert small.equals(flights.slice(0, small.num_rows))


def test_the_feeder_stops_at_its_goal(tmp_path: Path) -> None:
    files = [tmp_path / f"f{number}" for number in range(10)]
    for file in files:
        file.write_text("x")
    feeder = Feeder(files, tmp_path / "inbox", seconds_per_file=0.0)
    feeder.feed_until(0.4)
    deadline = time.monotonic() + 10
    while not feeder.arrived and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert sorted(path.name for path in (tmp_path / "inbox").iterdir()) == ["f0", "f1", "f2", "f3"]
    feeder.feed_until(1.0)
    while not feeder.arrived and time.monotonic() < deadline:
        time.sleep(0.01)
    feeder.stop()
    assert feeder.fed == feeder.total == 10


TABLE = pa.table(
    {
        "k": ["b", "a", None],
        "n": [2, 1, None],
        "d": [Decimal("1.50"), None, Decimal("0.10")],
        "x": [0.1 + 0.2, None, 1e9],
    }
)


def test_order_and_the_last_bit_of_a_double_do_not_matter() -> None:
    other = TABLE.take([2, 0, 1]).set_column(3, "x", pa.array([1e9, 0.3, None]))
    verdict = compare(TABLE, other.select(["x", "d", "n", "k"]))
    assert verdict == Verdict(3, 3, ())
    assert verdict.identical


@pytest.mark.parametrize(
    ("column", "values", "word"),
    [
        ("n", [2, 2, None], "where Spark has"),
        ("n", [2, None, None], "where Spark has"),
        ("k", ["b", "a", "c"], "where Spark has"),
        ("d", [Decimal("1.51"), None, Decimal("0.10")], "where Spark has"),
        ("x", [0.3000001, None, 1e9], "where Spark has"),
        ("x", [0.3, 0.0, 1e9], "where Spark has"),
    ],
)
def test_a_difference_is_found(column: str, values: list[object], word: str) -> None:
    position = TABLE.column_names.index(column)
    other = TABLE.set_column(position, column, pa.array(values, TABLE.schema.field(column).type))
    verdict = compare(other, TABLE)
    assert not verdict.identical
    assert word in verdict.differences[0]


def test_missing_rows_columns_and_other_types_are_differences() -> None:
    assert compare(TABLE.slice(1), TABLE).differences == ("2 rows, Spark has 3",)
    assert "columns" in compare(TABLE.select(["k"]), TABLE).differences[0]
    assert not compare(TABLE.select(["k"]), TABLE.select(["k"]).rename_columns(["n"])).identical


def test_doubled_rows_are_a_difference_though_the_set_is_equal() -> None:
    doubled = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(0, 1), TABLE.slice(1, 1)])
    assert not compare(doubled, TABLE).identical


def passed(run: Path) -> DemoResults:
    return DemoResults(
        rows=10, run=run, job=run / "job.py", source="def delays(): ...", kills=1, generations=(1, 2), windows=10,
        inflight_bytes_at_kill=5, unaligned_bytes=5, restored_rows=3, windows_before_end=9, verdict=Verdict(4, 4, ()),
        timeline=[(1.0, "[green]unaligned: 12 ms[/], 5 MB")], inflight=[(0.0, 0), (1.0, 5)], max_inflight_bytes=5,
    )  # fmt: skip


def test_a_run_passes_only_with_a_kill_data_in_flight_and_equal_rows(tmp_path: Path) -> None:
    assert passed(tmp_path).shortcomings() == []
    for name, value in {
        "kills": 0,
        "generations": (1, 1),
        "inflight_bytes_at_kill": 0,
        "unaligned_bytes": 0,
        "restored_rows": 0,
        "dropped_late": 1,
        "verdict": None,
    }.items():
        results = passed(tmp_path)
        setattr(results, name, value)
        assert len(results.shortcomings()) == 1, name
    for verdict in (Verdict(3, 4, ("3 rows, Spark has 4",)), Verdict(0, 0, ())):
        results = passed(tmp_path)
        results.verdict = verdict
        assert len(results.shortcomings()) == 1


def test_the_report_is_one_page_that_says_how_it_went(tmp_path: Path) -> None:
    results = passed(tmp_path)
    write_report(results)
    page = results.report.read_text()
    assert "4 = 4 rows, identical" in page
    assert "unaligned: 12 ms, 5 MB" in page
    assert "[green]" not in page
    assert "0.0,160.0 760.0,8.0" in page
    assert "http" not in page
    results.kills = 0
    write_report(results)
    assert "no worker was killed" in results.report.read_text()


def test_the_repositorys_job_is_six_lines() -> None:
    job = load_job()
    assert job.source.startswith("def delays(")
    assert len(job.source.strip().splitlines()) == 1 + 6
    assert (job.delay, job.window_end) == ("1 hour", "end")


def test_a_missing_or_unfit_job_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"nothing\.py is missing"):
        load_job(tmp_path / "nothing.py")
    (tmp_path / "job.py").write_text("SCHEMA = 'a int'\n")
    with pytest.raises(ConfigError, match="must define delays, DELAY, WINDOW_END"):
        load_job(tmp_path / "job.py")
