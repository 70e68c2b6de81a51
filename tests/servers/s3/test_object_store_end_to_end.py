"""A Spark query with its checkpoints in a bucket: killed, restored, looked at and managed from outside."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import ConfigError, LocationError, NotSupported
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of
from tests.support.s3_server import KEY, SECRET, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

Cli = Callable[..., Any]


@pytest.fixture
def keys(s3: S3Server) -> dict[str, str]:
    """Return credentials as writer's options: neither the driver's environment nor the workers' has any."""
    said = {"endpoint": s3.endpoint, "region": "us-east-1", "accessKey": KEY, "secretKey": SECRET, "allowHttp": "true"}
    return {f"spark.penstock.s3.{name}": text for name, text in said.items()}


@pytest.fixture
def cli(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """``cli(verb, ...)``: what it says as JSON; it goes by its environment."""

    def call(*arguments: str) -> Any:
        environment = {**s3.environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        result = CliRunner().invoke(app, ["snapshot", *arguments, "--json"], env=environment)
        assert result.exit_code == 0, result.output
        assert SECRET not in result.output
        return json.loads(result.stdout)

    return call


def totals(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "key").agg(F.sum("value"))


def test_a_query_in_a_bucket_is_killed_managed_and_moved_on(
    spark: SparkSession,
    inbox: Inbox,
    out: Path,
    tmp_path: Path,
    start: Start,
    s3: S3Server,
    keys: dict[str, str],
    cli: Cli,
) -> None:
    location = s3.location()
    settings = {"checkpointLocation": f"{location}/", "parallelism": 2, "snapshots.retained": 5, **keys}
    result = totals(inbox.stream(spark)).select("key", "sum(value)")
    inbox.add([(second % 3, second, float(second)) for second in range(25)])
    query = start(result, **settings)
    query.processAllAvailable()
    for _ in range(2):
        generation = query.generation
        os.kill(query._execution.view().slots[1].pid, signal.SIGKILL)
        eventually(lambda before=generation: query.generation > before, "the next Generation")  # type: ignore[misc]
        inbox.add([(0, 0, 26.0)])
        query.processAllAvailable()
    taken = cli("take", location, "--label", "by hand")["snapshot"]
    portable = query.snapshot(label="portable", format="portable")
    listed = cli("list", location)["snapshots"]
    assert {line["label"] for line in listed if line["kind"] == "requested"} == {"by hand", "portable"}
    assert all(line["bytes"] >= line["exclusive_bytes"] > 0 for line in listed if line["label"])
    assert cli("show", location, "by hand", "--rows")["snapshot"]["id"] == taken
    assert cli("diff", location, taken, portable.id)["tables"]
    assert cli("delete", location, "by hand")["files"] > 0
    assert cli("verify", location)["damage"] == []
    query.stop()
    assert cli("gc", location)["dry_run"] is False
    verified = cli("verify", location)
    assert (verified["damage"], verified["unsettled"], verified["orphans"]) == ([], [], [])
    _goes_on_elsewhere(spark, inbox, out, tmp_path, start, s3, settings, cli)


def _goes_on_elsewhere(
    spark: SparkSession,
    inbox: Inbox,
    out: Path,
    tmp_path: Path,
    start: Start,
    s3: S3Server,
    settings: dict[str, Any],
    cli: Cli,
) -> None:
    """Restarted where it was; forked into another place; and converted into a third one."""
    location, result = settings["checkpointLocation"], totals(inbox.stream(spark)).select("key", "sum(value)")
    inbox.add([(second % 3, second, float(second)) for second in range(27, 45)])
    again = start(result, **settings | {"parallelism": None})
    again.processAllAvailable()
    again.stop()
    batch = spark.read.schema(SCHEMA).parquet(str(inbox.directory))
    expected = totals(batch).where("unix_timestamp(window.start) < 40")
    assert rows_of(out) == sorted(
        (tuple(row.values()) for row in expected.select("key", "sum(value)").toArrow().to_pylist()), key=repr
    )
    cli("export", location, "portable", str(tmp_path / "portable"))
    converted = s3.location()
    assert cli("convert", str(tmp_path / "portable"), converted)["location"] == converted
    origins = (
        {"startFrom": f"{location}#portable", "checkpointLocation": s3.location()},
        {"checkpointLocation": converted},
    )
    for number, origin in enumerate(origins):
        fork = start(result, **settings | origin | {"path": str(tmp_path / f"fork-{number}")})
        fork.processAllAvailable()
        fork.stop()
        assert set(rows_of(tmp_path / f"fork-{number}")) <= set(rows_of(out))
        assert rows_of(tmp_path / f"fork-{number}")
    assert rows_of(tmp_path / "fork-0") == rows_of(tmp_path / "fork-1")


def test_sessions_say_where_and_how_too(
    spark: SparkSession,
    inbox: Inbox,
    s3: S3Server,
    keys: dict[str, str],
    spark_conf: Callable[[str, str], None],
    cli: Cli,
) -> None:
    base = s3.location()
    for name, value in {**keys, "spark.sql.streaming.checkpointLocation": base}.items():
        spark_conf(name, value)
    inbox.add([(1, 2, 3.0)])
    query = (
        penstock.writeStream(inbox.stream(spark).select("key"))
        .queryName("in_memory")
        .start(format="memory", parallelism=1)
    )
    try:
        query.processAllAvailable()
        assert [tuple(row) for row in spark.table("in_memory").collect()] == [(1,)]
    finally:
        query.stop()
    assert cli("list", f"{base}/in_memory")["snapshots"]


def test_what_cannot_be_is_refused_before_anything_is_there(
    spark: SparkSession, inbox: Inbox, start: Start, s3: S3Server, keys: dict[str, str]
) -> None:
    rows = inbox.stream(spark)
    settings = {"checkpointLocation": s3.location(), **keys}
    with pytest.raises(LocationError, match=r"there is no store for gs; give"):
        start(rows, checkpointLocation="gs://bucket/x")
    with pytest.raises(ConfigError, match=r"unknown option spark\.penstock\.s3\.secret; .*s3\.secretKey") as unknown:
        start(rows, **settings, **{"spark.penstock.s3.secret": SECRET})
    with pytest.raises(ConfigError, match="belong together") as half:
        start(rows, **settings | {"spark.penstock.s3.secretKey": None})
    writer = penstock.writeStream(rows).foreachBatch(lambda df, epoch: None)
    with pytest.raises(NotSupported, match=r"keeps files at the checkpoint location.*s3://"):
        writer.start(**settings, parallelism=1)
    outputs = [penstock.writeStream(rows).options(**settings).queryName(f"q{n}").format("memory") for n in range(2)]
    outputs[1].option("spark.penstock.s3.secretKey", "another")
    with pytest.raises(ConfigError, match=r"disagree about s3\.secretkey") as both:
        penstock.start(outputs)
    for caught in (unknown, half, both):
        assert SECRET not in str(caught.value)
        assert "another" not in str(caught.value)
