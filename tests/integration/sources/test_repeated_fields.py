"""Structs with several fields of one name, as ``arrays_zip(w, w)`` makes them: Spark says which rows come out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import expr

import penstock
from penstock.errors import NotSupported
from tests.support.queries.query_running import Inbox, Start, eventually

pytestmark = pytest.mark.spark

ROWS = [(1, 10, 0.5), (2, 20, 1.5), (3, 30, 2.5), (4, 10, 3.5)]
COLUMNS = [
    "named_struct('w', key, 'w', string(value)) AS k",
    "CASE WHEN key <> 2 THEN array(named_struct('w', key, 'x', 1, 'w', -key), NULL) END AS z",
    "map('m', named_struct('i', named_struct('w', value, 'w', key), 'W', key, 'w', nullif(key, 3))) AS m",
]


def repeated(spark: SparkSession, inbox: Inbox) -> DataFrame:
    inbox.add(ROWS)
    return inbox.stream(spark).selectExpr(*COLUMNS)


def as_spark_has_them(spark: SparkSession, inbox: Inbox) -> list[str]:
    return sorted(map(shown, spark.read.parquet(str(inbox.directory)).selectExpr(*COLUMNS).collect()))


def shown(row: Row) -> str:
    """Return rows with every field's name: rows with equal values are equal."""

    def named(value: Any) -> Any:
        if isinstance(value, Row):
            return [value.__fields__, [named(one) for one in value]]
        if isinstance(value, dict):
            return {name: named(one) for name, one in value.items()}
        return [named(one) for one in value] if isinstance(value, list) else value

    return json.dumps(named(row))


register_pickle_by_value(sys.modules[__name__])  # slots cannot import test modules


@pytest.fixture
def distinguished(spark_conf: Callable[[str, str], None]) -> None:
    spark_conf("spark.sql.caseSensitive", "true")


@pytest.mark.usefixtures("distinguished")
def test_memory_has_the_rows_of_spark(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    query = start(repeated(spark, inbox), format="memory", queryName="repeated")
    query.processAllAvailable()
    table = spark.table("repeated")
    assert sorted(map(shown, table.collect())) == as_spark_has_them(spark, inbox)
    rows = spark.read.parquet(str(inbox.directory)).selectExpr(*COLUMNS)
    assert table.schema.simpleString() == rows.schema.simpleString()


@pytest.mark.usefixtures("distinguished")
def test_foreach_batch_has_the_rows_of_spark(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start
) -> None:
    got: list[str] = []
    writer = penstock.writeStream(repeated(spark, inbox)).option("checkpointLocation", str(tmp_path / "c"))
    query = start_writer(writer.foreachBatch(lambda rows, batch: got.extend(map(shown, rows.collect()))))
    query.processAllAvailable()
    assert sorted(got) == as_spark_has_them(spark, inbox)


@pytest.mark.usefixtures("distinguished")
def test_foreach_has_the_rows_of_spark(spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start) -> None:
    told = tmp_path / "told"

    def tell(row: Row) -> None:
        with told.open("a") as file:
            file.write(shown(row) + "\n")

    writer = penstock.writeStream(repeated(spark, inbox)).option("checkpointLocation", str(tmp_path / "c"))
    start_writer(writer.foreach(tell)).processAllAvailable()
    assert sorted(told.read_text().splitlines()) == as_spark_has_them(spark, inbox)


@pytest.mark.usefixtures("distinguished")
def test_console_shows_what_spark_shows(
    spark: SparkSession, inbox: Inbox, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    query = start(repeated(spark, inbox), format="console", truncate="false")
    query.processAllAvailable()
    eventually(lambda: "{3, 30}" in capsys.readouterr().out, "the rows")


def test_groups_and_states_go_by_all_fields(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    """The state is restored, too."""
    inbox.add([(1, 10, 0.5), (1, 20, 0.5), (1, 10, 0.5)])
    df = inbox.stream(spark).groupBy(expr("named_struct('w', key, 'w', value) AS k")).count()
    for count in (2, 3):
        query = start(df, format="memory", queryName="groups", outputMode="complete")
        query.processAllAvailable()
        found = sorted((tuple(row.k), row["count"]) for row in spark.table("groups").collect())
        assert found == [((1, 10), count), ((1, 20), 1)]
        query.stop()
        inbox.add([(1, 10, 0.5)])


def test_a_static_side_has_such_structs(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add([(1, 10, 0.5), (2, 20, 0.5)])
    static = spark.range(2, 4).selectExpr("id AS key", "named_struct('w', id, 'w', -id) AS s")
    query = start(inbox.stream(spark).join(static, "key").select("s"), format="memory", queryName="joined")
    query.processAllAvailable()
    assert [tuple(row.s) for row in spark.table("joined").collect()] == [(2, -2)]


@pytest.mark.parametrize("to", ["parquet", "json", "table", "foreachBatch"])
def test_what_spark_could_not_read_again_is_refused_by_name(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, to: str
) -> None:
    """Names that differ in case only are equal where the session says so."""
    inbox.add(ROWS)
    fields = "named_struct('w', key, 'W', key)" if to == "foreachBatch" else "named_struct('w', key, 'w', key)"
    df = inbox.stream(spark).selectExpr(f"array({fields}) AS k")
    writer = penstock.writeStream(df).option("checkpointLocation", str(tmp_path / "c"))
    started = {
        "table": lambda: writer.toTable("repeated_fields"),
        "foreachBatch": lambda: writer.foreachBatch(lambda rows, batch: None).start(),
    }
    with pytest.raises(NotSupported, match=r"column k\.element is a struct with more than one field [wW]"):
        started.get(to, lambda: writer.format(to).start(str(out)))()
    assert not out.exists()
    if to in ("parquet", "json"):
        rows = spark.read.parquet(str(inbox.directory)).selectExpr(f"array({fields}) AS k")
        rows.write.format(to).save(str(out))
        with pytest.raises(PySparkException, match="COLUMN_ALREADY_EXISTS"):
            spark.read.schema(rows.schema).format(to).load(str(out)).collect()


@pytest.mark.parametrize(
    "expression",
    ["to_json(named_struct('w', key, 'w', value))", "from_json(string(key), 'w INT, n STRUCT<x: INT, x: INT>')"],
)
def test_records_of_repeated_names_are_refused(
    spark: SparkSession, inbox: Inbox, start: Start, expression: str
) -> None:
    with pytest.raises(NotSupported, match=r"more than one field [wx]"):
        start(inbox.stream(spark).selectExpr(f"{expression} AS r"), format="noop")
