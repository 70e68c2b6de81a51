"""Everyday edits: the query goes on from its location, with its state, under the new plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError, PlanChanged
from tests.support.queries.query_running import Inbox, Start, rows_of

pytestmark = pytest.mark.spark

Edit = Callable[[DataFrame], DataFrame]


def totals(df: DataFrame, name: str = "") -> DataFrame:
    grouped = df.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "key")
    sums = grouped.agg(F.sum("value").alias("total"))
    return penstock.named(sums, name) if name else sums


def results(df: DataFrame) -> DataFrame:
    return df.select("key", "total")


def times(factor: int) -> Edit:
    return lambda df: df.withColumn("value", F.udf(lambda value: value * factor, "bigint")("value"))


EDITS: dict[str, tuple[Edit, Edit, list[tuple[object, ...]]]] = {
    "a filter in front": (
        lambda df: results(totals(df)),
        lambda df: results(totals(df.where("value != 7"))),
        [(1, 30), (2, 2)],
    ),
    "a filter behind": (
        lambda df: results(totals(df)),
        lambda df: results(totals(df)).where("total > 5"),
        [(1, 37)],
    ),
    "an output column more": (
        lambda df: results(totals(df)),
        lambda df: totals(df).select("key", "total", (F.col("total") + 1).alias("next")),
        [(1, 37, 38), (2, 2, 3)],
    ),
    "a function's body": (
        lambda df: results(totals(times(1)(df))),
        lambda df: results(totals(times(2)(df))),
        [(1, 44), (2, 2)],
    ),
    "a name kept, and a projection more": (
        lambda df: results(totals(df, "by-key")),
        lambda df: results(totals(df.withColumn("value", F.col("value") * 10), "by-key")),
        [(1, 100), (2, 2)],
    ),
}
"""Before, after, and what comes out of (1, 30 + 7) and (2, 2), the 7 and what closes the window read after the edit."""


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_state_is_kept_over_an_edit(spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start, edit: str) -> None:
    before, after, expected = EDITS[edit]
    inbox.add([(1, 10, 1.0), (1, 20, 2.0), (2, 2, 3.0)])
    query = start(before(inbox.stream(spark)), path=str(tmp_path / "before"))
    query.processAllAvailable()
    first_id = query.id
    query.stop()
    inbox.add([(1, 7, 4.0), (9, 0, 20.0)])
    query = start(after(inbox.stream(spark)), path=str(tmp_path / "after"))
    query.processAllAvailable()
    assert query.id == first_id
    assert rows_of(tmp_path / "before") == []
    assert rows_of(tmp_path / "after") == expected


def test_a_name_is_the_operators_id(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    raw = inbox.stream(spark)
    query = start(results(totals(penstock.named(raw, "orders"), "by-key")), format="noop")
    query.processAllAvailable()
    assert query.lastProgress is None
    query.snapshot()
    query.stop()
    with pytest.raises(PlanChanged, match=r"operator by-key: stored Aggregate.*, now absent"):
        start(results(totals(penstock.named(raw, "orders"))), format="noop")


@pytest.mark.parametrize("name", ["", "a b", "x/y", "-x", 7])
def test_names_are_checked(spark: SparkSession, inbox: Inbox, name: str) -> None:
    with pytest.raises(ConfigError, match="no name for an operator"):
        penstock.named(inbox.stream(spark), name)


def test_two_operators_cannot_have_one_name(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    raw = penstock.named(inbox.stream(spark), "twice")
    with pytest.raises(ConfigError, match="two operators are called 'twice'"):
        start(results(totals(raw, "twice")), format="noop")
    with pytest.raises(ConfigError, match="two operators have the id 'project-0'"):
        start(results(totals(inbox.stream(spark).where("value > 1"), "project-0")), format="noop")
    with pytest.raises(ConfigError, match="one operator is called 'b' and 'a'"):
        start(penstock.named(penstock.named(inbox.stream(spark), "a"), "b"), format="noop")


def largest(df: DataFrame, kind: str) -> DataFrame:
    grouped = df.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.max(F.col("value").cast(kind)).alias("largest")).select("key", "largest")


def test_a_column_of_the_state_becomes_wider_and_not_narrower(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add([(1, 30, 1.0), (2, 2, 3.0)])
    query = start(largest(inbox.stream(spark), "int"), path=str(tmp_path / "before"))
    query.processAllAvailable()
    query.stop()
    inbox.add([(2, 1 << 40, 4.0), (9, 0, 20.0)])
    query = start(largest(inbox.stream(spark), "bigint"), path=str(tmp_path / "after"))
    query.processAllAvailable()
    query.stop()
    assert rows_of(tmp_path / "after") == [(1, 30), (2, 1 << 40)]
    with pytest.raises(PlanChanged, match=r"stored .*int64.*now .*int32"):
        start(largest(inbox.stream(spark), "int"), path=str(tmp_path / "back"))


def test_the_state_of_a_removed_aggregation_is_given_up_only_if_that_is_allowed(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add([(1, 30, 1.0)])
    query = start(results(totals(inbox.stream(spark))), path=str(tmp_path / "before"))
    query.processAllAvailable()
    query.snapshot(alignment="aligned")
    query.stop()
    inbox.add([(2, 2, 2.0)])
    plain = inbox.stream(spark).select("key", "value")
    with pytest.raises(PlanChanged, match=r"(?s)operator aggregate-0: .*now absent.*allowDroppedState"):
        start(plain, path=str(tmp_path / "after"))
    query = start(plain, path=str(tmp_path / "after"), **{"snapshots.allowDroppedState": "true"})
    query.processAllAvailable()
    assert rows_of(tmp_path / "after") == [(2, 2)], "what was read before is not read again"
