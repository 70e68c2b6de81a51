"""The way back: Spark's engine is really started where Penstock stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import LocationError, NotSupported
from tests.support.spark_import.counting_sources import Counter, Simple
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, on_penstock

pytestmark = pytest.mark.slow


def of_some(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "10 seconds").where("amount % 2 = 0").select("user", "amount")


def test_spark_reads_the_files_that_penstock_has_not_read(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in put %")
    df = of_some(arrivals.stream(spark))
    arrivals.add((1, "a", 2), (20, "a", 3))
    arrivals.add((31, "b", 4), (33, None, 6))
    before = on_penstock(df, tmp_path / "location", "append")
    written = penstock.exportSparkOffsets(df, str(tmp_path / "location"), str(tmp_path / "spark"))
    assert written.files == 2
    assert json.loads((tmp_path / "spark/commits/0").read_text().split("\n")[1]) == {"nextBatchWatermarkMs": 23_000}
    arrivals.add((50, "c", 8), (51, "c", 9))
    arrivals.add((52, "d", 10))
    on_spark = OnSpark(tmp_path / "spark", "append")
    after = on_spark.run(df)
    assert sorted(amount for _, amount in before + after) == [2, 4, 6, 8, 10]
    assert sorted(amount for _, amount in after) == [8, 10]
    # and back again: what Spark has committed by then counts
    penstock.importSparkCheckpoint(df, str(on_spark.checkpoint), str(tmp_path / "again"), parallelism=1)
    arrivals.add((53, "e", 12))
    assert on_penstock(df, tmp_path / "again", "append") == [("e", 12)]


@pytest.mark.parametrize("name", ["counter", "simple"])
def test_python_sources_go_to_penstock_and_back(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Ranges with partitions, and a simple reader; each engine reads a part, and every row comes once."""
    spark.dataSource.register(Counter)
    spark.dataSource.register(Simple)
    end = tmp_path / "end"

    def numbers(until: int) -> DataFrame:
        end.write_text(str(until))
        df = spark.readStream.format(name).option("end", until).option("file", str(end)).load()
        return df.where("n % 3 != 1").select("n")

    def rows(*bounds: int) -> list[tuple[int]]:
        return [(n,) for n in range(*bounds) if n % 3 != 1]

    assert sorted(OnSpark(tmp_path / "spark", "append").run(numbers(7))) == rows(7)
    penstock.importSparkCheckpoint(numbers(7), str(tmp_path / "spark"), str(tmp_path / "moved"), parallelism=2)
    assert sorted(on_penstock(numbers(13), tmp_path / "moved", "append")) == rows(7, 13)
    written = penstock.exportSparkOffsets(numbers(13), str(tmp_path / "moved"), str(tmp_path / "back"))
    assert (list(written.position.values()), written.files) == ([13], None)
    assert sorted(OnSpark(tmp_path / "back", "append").run(numbers(20))) == rows(13, 20)


def test_state_does_not_go_back_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).groupBy("user").agg(F.sum("amount"))
    arrivals.add((1, "a", 2))
    on_penstock(df, tmp_path / "location", "update")
    with pytest.raises(NotSupported) as refused:
        penstock.exportSparkOffsets(df, str(tmp_path / "location"), str(tmp_path / "spark"), outputMode="update")
    assert "only Spark itself can write its state stores" in str(refused.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "location"]


def test_a_query_that_runs_or_has_newer_output_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = of_some(arrivals.stream(spark))
    arrivals.add((1, "a", 2))
    location, directory = str(tmp_path / "location"), str(tmp_path / "spark")
    query = penstock.writeStream(df).format("noop").start(checkpointLocation=location, parallelism=1)
    query.snapshot(label="first")
    with pytest.raises(NotSupported, match="it may be reading on"):
        penstock.exportSparkOffsets(df, location, directory)
    arrivals.add((2, "a", 4))
    query.processAllAvailable()
    query.stop(snapshot=True)
    with pytest.raises(NotSupported, match=r"output behind it is visible already.*export the newest one"):
        penstock.exportSparkOffsets(df, location, directory, snapshot="first")
    with pytest.raises(LocationError, match="does not fit"):
        penstock.exportSparkOffsets(spark.readStream.format("rate").load(), location, directory)
    assert not Path(directory).exists()


def test_the_commands(spark: SparkSession, tmp_path: Path) -> None:
    """``import`` and ``export --to spark-offsets``, with a file that builds the DataFrame."""
    arrivals = Arrivals(tmp_path / "in")
    arrivals.add((1, "a", 2))
    job = tmp_path / "moving_job.py"
    job.write_text(
        "def build(spark):\n"
        f"    return spark.readStream.schema('at timestamp, amount bigint').parquet({str(tmp_path / 'in')!r})\n"
        "def broken(spark):\n    raise ValueError('no\\nluck')\n"
        "def other():\n    return 7\n"
    )
    OnSpark(tmp_path / "spark", "append").run(
        spark.readStream.schema("at timestamp, amount bigint").parquet(str(tmp_path / "in"))
    )
    runner = CliRunner()

    def told(code: int, *arguments: str) -> str:
        result = runner.invoke(app, ["snapshot", *arguments])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    moving = ["import", str(tmp_path / "spark"), str(tmp_path / "moved"), "--query"]
    for place, message in (
        ("build", "write FILE.py:FUNCTION or MODULE:FUNCTION"),
        ("nowhere_at_all:build", "cannot be imported"),
        (f"{tmp_path}/none.py:build", "there is no such Python file"),
        (f"{job}:absent", "has no function absent"),
        (f"{job}:broken", "it raised ValueError: no"),
        (f"{job}:other", "it returned a int; it must return a DataFrame"),
    ):
        assert message in told(2, *moving, place)
    taken = json.loads(told(0, *moving, f"{job}:build", "--parallelism", "1", "--json"))
    assert (taken["snapshot"], taken["batch"], taken["state_rows"]) == ("chk-1", 0, 0)
    assert "exists and is not an empty folder" in told(1, *moving, f"{job}:build")
    df = spark.readStream.schema("at timestamp, amount bigint").parquet(str(tmp_path / "in"))
    arrivals.add((2, "b", 3))
    assert len(on_penstock(df, tmp_path / "moved", "append", parallelism=1)) == 1
    [newest, *_] = json.loads(told(0, "list", str(tmp_path / "moved"), "--json"))["snapshots"][-1:]
    export = ["export", str(tmp_path / "moved"), newest["id"], str(tmp_path / "back"), "--to", "spark-offsets"]
    assert "needs --query" in told(2, *export)
    assert "2 files" in told(0, *export, "--query", f"{job}:build")
    assert (tmp_path / "back/sources/0/0").read_text().count("file:///") == 2
