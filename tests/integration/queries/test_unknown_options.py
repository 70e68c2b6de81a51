"""The error for an unknown option has the nearest known name, and names no sink that has nothing to do with it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.api import sink_request
from penstock.api.sink_request import WRITER_OPTIONS
from penstock.config import OPTION_NAMES, nearest_name
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("checkpoint.intervall", "checkpoint.interval"),
        ("CHECKPOINT.INTERVALL", "checkpoint.interval"),
        ("spark.penstock.checkpoint.intervall", "checkpoint.interval"),
        ("paralellism", "parallelism"),
        ("checkpointLocaton", "checkpointLocation"),
        ("snapshot.retained", "snapshots.retained"),
        ("rest.prot", "rest.port"),
        ("rest.secret", None),
        ("colour", None),
        ("x", None),
        ("", None),
    ],
)
def test_nearest_name(given: str, nearest: str | None) -> None:
    assert nearest_name(given, WRITER_OPTIONS) == nearest


def test_every_option_is_nearest_to_itself() -> None:
    for name in WRITER_OPTIONS:
        assert nearest_name(name.upper(), WRITER_OPTIONS) == name


@pytest.fixture
def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


WRITERS: dict[str, Any] = {
    "noop": lambda w: w.format("noop"),
    "memory": lambda w: w.format("memory").queryName("m"),
    "console": lambda w: w.format("console"),
    "parquet": lambda w: w.format("parquet").option("path", "out"),
    "csv": lambda w: w.format("csv").option("path", "out"),
    "foreach": lambda w: w.foreach(print),
    "foreachBatch": lambda w: w.foreachBatch(print),
}


@pytest.mark.spark
@pytest.mark.parametrize("name", WRITERS)
def test_an_option_of_penstock_that_is_misspelled_at_a_sink(rate: DataFrame, tmp_path: Path, name: str) -> None:
    writer = WRITERS[name](penstock.writeStream(rate)).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(ConfigError, match="checkpoint") as caught:
        writer.option("checkpoint.Intervall", "1s").start()
    said = str(caught.value)
    assert said.startswith(
        f"unknown option checkpoint.intervall; did you mean checkpoint.interval? Options of the {name} "
    )
    assert not (tmp_path / "c").exists()


@pytest.mark.spark
def test_an_option_of_a_sink_or_a_source_that_is_misspelled(spark: SparkSession, rate: DataFrame) -> None:
    def refused(call: Any) -> str:
        with pytest.raises(ConfigError, match="unknown option") as caught:
            call()
        return str(caught.value)

    said = refused(lambda: penstock.writeStream(rate).format("csv").option("compresion", "gzip").start("out"))
    assert "unknown option compresion; did you mean compression? Options of the csv sink: " in said
    said = refused(lambda: penstock.writeStream(rate).option("spark.penstock.nonsense", "1").format("noop").start())
    assert said == f"unknown option spark.penstock.nonsense. Options of Penstock: {', '.join(OPTION_NAMES)}"
    for source, option, nearest in (
        ("rate", "rowsPerSecund", "rowsPerSecond"),
        ("rate-micro-batch", "rowsPerBach", "rowsPerBatch"),
        ("socket", "includeTimestap", "includeTimestamp"),
    ):
        needed = {"rowsPerBatch": "1", "host": "127.0.0.1", "port": "1"}
        reader = spark.readStream.format(source).option(option, "1")
        for name in {"rate": (), "rate-micro-batch": ("rowsPerBatch",), "socket": ("host", "port")}[source]:
            reader = reader.option(name, needed[name])
        writer = penstock.writeStream(reader.load()).format("noop")
        said = refused(writer.start)
        assert f"unknown option {option.lower()}; did you mean {nearest}? Options of the {source} source: " in said


def test_a_sink_with_options_of_its_own_gets_them_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=sink_request.log.name):
        sink_request.warn_of_misspelled("the table t", {"checkpoint.intervall": "1s", "compression": "x", "topic": "t"})
    assert [record.getMessage() for record in caplog.records] == [
        "option checkpoint.intervall is an option of the table t; did you mean Penstock's option checkpoint.interval?"
    ]
