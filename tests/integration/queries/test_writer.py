"""Writer: options, triggers and PySpark's methods that are refused. No query is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.api import writer as writer_module
from penstock.api.sinks import SinkRequest
from penstock.api.start import OutputRequest, QueryRequest, session_options
from penstock.api.triggers import Trigger
from penstock.errors import ConfigError, LocationError, NotSupported, NotYet, ResourceError

pytestmark = pytest.mark.spark


Requested = list[tuple[SinkRequest, QueryRequest]]


@pytest.fixture
def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> Requested:
    """Catches what ``start`` asks for."""
    caught: Requested = []

    def start_query(outputs: list[OutputRequest], request: QueryRequest) -> None:
        caught.append((outputs[0].sink, request))

    monkeypatch.setattr(writer_module, "start_query", start_query)
    return caught


def test_public_names() -> None:
    assert all(hasattr(penstock, name) for name in penstock.__all__)
    with pytest.raises(AttributeError, match="no attribute 'writestream'"):
        _ = penstock.writestream  # type: ignore[attr-defined]


def test_options_go_to_penstock_the_location_or_the_sink(rate: DataFrame, requested: Requested) -> None:
    writer = penstock.writeStream(rate).format("parquet").outputMode("append").queryName("q")
    writer.option("spark.penstock.checkpoint.interval", "2s").option("Exchange.MemoryPerGate", "1m")
    writer.option("CheckpointLocation", "/c").options(compression="zstd", parallelism=2, ignored=None)
    writer.start("/out", exact=True)
    [(sink, request)] = requested
    assert request.engine_options == {
        "checkpoint.interval": "2s",
        "exchange.memorypergate": "1m",
        "parallelism": "2",
    }
    assert request.checkpoint_location == "/c"
    assert sink.options == {"compression": "zstd", "exact": "true", "path": "/out"}
    assert (sink.format, sink.output_mode, sink.query_name) == ("parquet", "append", "q")


def test_starts_arguments_win(rate: DataFrame, requested: Requested) -> None:
    penstock.writeStream(rate).format("parquet").start(format="memory", outputMode="update", queryName="other")
    [(sink, _)] = requested
    assert (sink.format, sink.output_mode, sink.query_name) == ("memory", "update", "other")


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("5 seconds", "5000ms"),
        ("200 milliseconds", "200ms"),
        ("0 seconds", "10ms"),
        ("10 milliseconds", "10ms"),
        ("10s", "10000ms"),
    ],
)
def test_processing_time_is_the_checkpoint_interval(
    rate: DataFrame, requested: Requested, text: str, interval: str
) -> None:
    penstock.writeStream(rate).trigger(processingTime=text).start()
    assert requested[0][1].trigger == Trigger(interval=interval)


def test_an_interval_that_leaves_no_time_for_rows_is_refused(rate: DataFrame) -> None:
    for text in ("1 millisecond", "9ms"):
        with pytest.raises(ConfigError, match=f"processingTime='{text}'.*10 milliseconds or longer"):
            penstock.writeStream(rate).trigger(processingTime=text)


@pytest.mark.parametrize("name", ["once", "availableNow"])
def test_a_run_until_what_is_available_is_read(rate: DataFrame, requested: Requested, name: str) -> None:
    penstock.writeStream(rate).trigger(**{name: True}).start()
    assert requested[0][1].trigger == Trigger(until_available=True)
    with pytest.raises(ConfigError, match="only True"):
        penstock.writeStream(rate).trigger(**{name: False})


@pytest.mark.parametrize("triggers", [{}, {"processingTime": "1 second", "once": True}, {"never": True}])
def test_exactly_one_known_trigger(rate: DataFrame, triggers: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="exactly one trigger"):
        penstock.writeStream(rate).trigger(**triggers)


@pytest.mark.parametrize(("method", "arguments"), [("clusterBy", ["a"])])
def test_what_is_not_yet_is_refused_by_name(rate: DataFrame, tmp_path: Path, method: str, arguments: list[Any]) -> None:
    writer = penstock.writeStream(rate).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(NotYet, match=method):
        getattr(writer, method)(*arguments).start(str(tmp_path / "out"))


def refusal(df: DataFrame, error: type[Exception], tmp_path: Path, **changes: Any) -> str:
    writer = penstock.writeStream(df).option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(error) as caught:
        writer.start(**{"format": "noop", **changes})
    assert not (tmp_path / "c").exists(), "a refusal leaves nothing behind"
    return str(caught.value)


def test_bad_input_is_named(spark: SparkSession, rate: DataFrame, tmp_path: Path) -> None:
    assert "spark.penstock.checkpoint.intervall" in refusal(
        rate, ConfigError, tmp_path, **{"spark.penstock.checkpoint.intervall": "1s"}
    )
    assert "checkpoint.interval='soon'" in refusal(rate, ConfigError, tmp_path, **{"checkpoint.interval": "soon"})
    assert "unknown option wrong. Options of the noop sink: none" in refusal(rate, ConfigError, tmp_path, wrong="1")
    misspelled = refusal(rate, ConfigError, tmp_path, format="console", numRow="1")
    assert "unknown option numrow; did you mean numRows? Options of the console sink: numRows, truncate" in misspelled
    assert "format 'nothing' is unknown" in refusal(rate, ConfigError, tmp_path, format="nothing")
    assert "format 'kafka' is not written yet" in refusal(rate, NotYet, tmp_path, format="kafka")
    assert "needs a directory" in refusal(rate, ConfigError, tmp_path, format="parquet")
    assert "give a name with queryName" in refusal(rate, ConfigError, tmp_path, format="memory")
    assert "update" in refusal(rate, NotSupported, tmp_path, format="parquet", path="/out", outputMode="update")
    assert "complete" in refusal(rate, NotSupported, tmp_path, outputMode="complete")
    with pytest.raises(ConfigError, match="batch"):
        penstock.writeStream(spark.range(3))
    assert "above maxParallelism 1" in refusal(rate, ConfigError, tmp_path, parallelism=2, maxParallelism=1)
    assert "free" in refusal(rate, ResourceError, tmp_path, parallelism=100)


@pytest.mark.parametrize("name", ["processingTime", "continuous", "realTime"])
@pytest.mark.parametrize("value", [5, "", "  ", "soon", "5 parsecs", "5 seconds and more", "-5 seconds", "1.5 hours"])
def test_a_trigger_that_is_no_interval_is_refused(rate: DataFrame, name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=r"5 seconds|5m|must not be negative"):
        penstock.writeStream(rate).trigger(**{name: value})


def test_a_sink_that_keeps_rows_needs_a_location(rate: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(LocationError, match="checkpointLocation must be specified"):
        penstock.writeStream(rate).start(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_session_settings_lie_below_the_writers(spark: SparkSession, spark_conf: Any) -> None:
    spark_conf("spark.penstock.checkpoint.Interval", "7s")
    assert session_options(spark) == {"checkpoint.interval": "7s"}


def test_spark_connect_is_refused() -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(NotSupported, match="Spark Connect"):
        penstock.writeStream(connect()).format("noop").start()
