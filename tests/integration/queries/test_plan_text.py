"""``penstock.explain``: the dataflow of a DataFrame before it is started, or why there is none."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError

pytestmark = pytest.mark.spark

Explained = Callable[..., str]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Explained:
    def explain(df: DataFrame, *arguments: object, **named: object) -> str:
        penstock.explain(df, *arguments, **named)  # type: ignore[arg-type]
        return capsys.readouterr().out

    return explain


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema("ts timestamp, k string, v double").parquet(str(tmp_path_factory.mktemp("in")))


def with_times(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 seconds")


def other(df: DataFrame) -> DataFrame:
    return with_times(df).selectExpr("ts as o_ts", "k as o_k")


def counts(df: DataFrame, *keys: object) -> DataFrame:
    return with_times(df).groupBy(*keys).count()  # type: ignore[arg-type]


def test_vertices_edges_and_what_is_kept_for_how_long(explained: Explained, stream: DataFrame) -> None:
    text = explained(counts(stream, F.window("ts", "1 minute"), "k"))
    assert text.startswith("== Penstock dataflow: 2 vertices, append mode ==\n")
    assert "[source-0]" in text
    assert "--hash(window, k)--> vertex 1" in text
    assert "[aggregate-0]\n    keeps a group until the watermark reaches its window.end\n" in text
    assert "state groups" not in text
    assert "state groups: __key_group" in explained(counts(stream, F.window("ts", "1 minute")), extended=True)


@pytest.mark.parametrize(
    ("derive", "mode", "kept"),
    [
        (lambda df: counts(df, "k"), "update", "every group, for ever"),
        (lambda df: counts(df, "ts"), "append", "a group until the watermark reaches its ts"),
        (lambda df: df.dropDuplicates(["k"]), "append", "every key, for ever"),
        (
            lambda df: df.withWatermark("ts", "10 seconds").dropDuplicates(["k", "ts"]),
            "append",
            "a key until the watermark reaches its ts",
        ),
        (
            lambda df: df.withWatermark("ts", "90 seconds").dropDuplicatesWithinWatermark(["k"]),
            "append",
            "a key until the watermark is 90 s past the ts of its first row",
        ),
        (lambda df: df.limit(3), "append", "how many rows have passed"),
        (
            lambda df: with_times(df).groupBy(F.window("ts", "1 minute")).agg(F.countDistinct("k")),
            "append",
            "each distinct value of a group, as long as the group",
        ),
        (
            lambda df: with_times(df).groupBy("k", F.session_window("ts", "1 minute")).count(),
            "append",
            "a group until the watermark reaches its session_window.end",
        ),
        (
            lambda df: with_times(df).join(other(df), F.expr("k = o_k and o_ts >= ts - interval 5 seconds")),
            "append",
            "of the left side every row, for ever; "
            "of the right side a row until the watermark reaches its o_ts +5.001 s",
        ),
    ],
    ids=[
        "groups",
        "event time",
        "keys",
        "keys with event time",
        "keys within the watermark",
        "limit",
        "distinct",
        "sessions",
        "join",
    ],
)
def test_how_long_state_lives(
    explained: Explained, stream: DataFrame, derive: Callable[[DataFrame], DataFrame], mode: str, kept: str
) -> None:
    assert f"\n    keeps {kept}\n" in explained(derive(stream), mode)


def test_a_static_side_is_said_to_be_in_memory(explained: Explained, spark: SparkSession, stream: DataFrame) -> None:
    side = spark.createDataFrame(pd.DataFrame({"k": ["a"], "w": [1]}))
    assert "    keeps the static side, in every subtask's memory" in explained(stream.join(side, "k"))


def test_a_plan_that_is_refused_is_told_with_node_reason_and_way_round(explained: Explained, stream: DataFrame) -> None:
    text = explained(stream.select(F.rand().alias("r")))
    assert text.startswith("== Penstock does not run this plan ==\n")
    assert "its result differs from run to run" in text
    assert "derive the value from columns" in text
    text = explained(counts(stream, "k"))
    assert "Spark itself refuses" in text
    text = explained(stream.coalesce(2))
    assert "set option parallelism" in text
    assert "in the plan: ~Repartition 2" in text


def test_what_is_no_stream_is_an_error(spark: SparkSession, stream: DataFrame) -> None:
    with pytest.raises(ConfigError, match="this DataFrame is a batch one"):
        penstock.explain(spark.range(3))
    with pytest.raises(ConfigError, match="sideways"):
        penstock.explain(stream, "sideways")
