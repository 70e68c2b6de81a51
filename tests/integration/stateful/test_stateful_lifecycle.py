"""A user's state through the life of its snapshots: what changed, in which keys; and a repaired key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from tests.support.queries.query_running import Inbox, Start, rows_of
from tests.support.stateful.counting_processors import Line, counted, expected_rows, expected_state

pytestmark = pytest.mark.spark

TABLES = ("total", "values", "minutes", "__timers")
OPERATOR = "transform-with-state-0"
BEFORE: list[Line] = [(1, 10, 600.0), (2, 20, 601.0), (3, 30, 602.0)]
LATER: list[Line] = [(2, 21, 640.0), (4, 40, 650.0), (3, 31, 665.0)]
"""The second file opens minutes 10 and 11; the third one closes minute 10 for all."""
MUCH_LATER: list[Line] = [(2, 22, 700.0)]
Rows = list[dict[str, Any]]


def test_a_diff_names_the_keys_of_every_kind_of_state(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    """Added, changed and removed, in value, list and map state and among the timers; key 1 has only its timer's minute
    less."""
    query = start(counted(inbox.stream(spark), "rows"), parallelism=2)
    taken = []
    for lines in (BEFORE, LATER, MUCH_LATER):
        inbox.add(lines)
        query.processAllAvailable()
        taken.append(query.snapshot().id)
    query.stop()
    location = str(tmp_path / "checkpoint")
    assert changes(location, taken[0], taken[1]) == {
        "total": [
            ("added", {"key": 4}, None, {"rows": 1, "value": 40}),
            ("changed", {"key": 2}, {"rows": 1, "value": 20}, {"rows": 2, "value": 41}),
            ("changed", {"key": 3}, {"rows": 1, "value": 30}, {"rows": 2, "value": 61}),
        ],
        "values": [
            ("added", {"key": 2, "__position": 1}, None, {"value": 21}),
            ("added", {"key": 3, "__position": 1}, None, {"value": 31}),
            ("added", {"key": 4, "__position": 0}, None, {"value": 40}),
        ],
        "minutes": [
            ("added", {"key": 3, "minute": 11}, None, {"rows": 1}),
            ("added", {"key": 4, "minute": 10}, None, {"rows": 1}),
            ("changed", {"key": 2, "minute": 10}, {"rows": 1}, {"rows": 2}),
        ],
        "__timers": [
            ("added", {"key": 3, "__expires_ms": 720_000}, None, {}),
            ("added", {"key": 4, "__expires_ms": 660_000}, None, {}),
        ],
    }
    closed = changes(location, taken[1], taken[2])
    assert closed["total"] == [("changed", {"key": 2}, {"rows": 2, "value": 41}, {"rows": 3, "value": 63})]
    assert closed["minutes"] == [
        ("added", {"key": 2, "minute": 11}, None, {"rows": 1}),
        *(("removed", {"key": key, "minute": 10}, {"rows": 2 if key == 2 else 1}, None) for key in (1, 2, 3, 4)),
    ]
    assert closed["__timers"] == [
        ("added", {"key": 2, "__expires_ms": 720_000}, None, {}),
        *(("removed", {"key": key, "__expires_ms": 660_000}, {}, None) for key in (1, 2, 3, 4)),
    ]
    assert rows_of(out) == expected_rows([*BEFORE, *LATER, *MUCH_LATER])


def changes(location: str, before: str, after: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return changes by table, sorted: kind, key, and the values before and after."""
    told = CliRunner().invoke(app, ["snapshot", "diff", location, before, after, "--json", "--rows", "20"])
    assert told.exit_code == 0, told.output
    tables = [table for table in json.loads(told.stdout)["tables"] if table["operator_id"] == OPERATOR]
    found = {
        table["table"]: sorted(
            ((row["change"], row["key"], row["before"], row["after"]) for row in table["examples"]), key=repr
        )
        for table in tables
    }
    return {name: found[name] for name in TABLES}


def test_a_query_goes_on_from_a_repaired_key(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    """The value, a list element and a map entry of one key are changed; the state of other keys stays as it is."""
    inbox.add(BEFORE)
    query = start(counted(inbox.stream(spark), "pandas"), parallelism=2)
    query.processAllAvailable()
    taken = query.stop(snapshot=True)
    assert taken is not None
    location = str(tmp_path / "checkpoint")
    state = {name: stored(spark, location, name) for name in TABLES}
    mine = F.col("key") == 2
    repaired = {
        "total": state["total"].withColumn("rows", F.when(mine, 1000).otherwise(F.col("rows"))),
        "values": state["values"].withColumn("value", F.when(mine, -5).otherwise(F.col("value"))),
        "minutes": state["minutes"].withColumn("rows", F.when(mine, 70).otherwise(F.col("rows"))),
    }
    writer = penstock.SnapshotWriter.from_snapshot(location, taken.id)
    for name, rows in repaired.items():
        writer.with_state(f"{OPERATOR}/{name}", rows)
    writer.write(str(tmp_path / "repaired"))
    inbox.add([*LATER, *MUCH_LATER])
    query = start(
        counted(inbox.stream(spark), "pandas"),
        checkpointLocation=str(tmp_path / "repaired"),
        path=str(tmp_path / "second"),
        parallelism=3,
    )
    query.processAllAvailable()
    query.stop()
    lines = [*BEFORE, *LATER, *MUCH_LATER]
    before = set(expected_rows(BEFORE))
    usual = [row for row in expected_rows(lines) if row not in before]
    change = {(2, "row", 0, 2): (2, "row", 0, 1001), (2, "row", 0, 3): (2, "row", 0, 1002),
              (2, "minute", 660_000, 2): (2, "minute", 660_000, 71)}  # fmt: skip
    assert rows_of(tmp_path / "second") == sorted((change.get(row, row) for row in usual), key=repr)
    kept = expected_state(lines)
    found = {name: stored(spark, str(tmp_path / "repaired"), name) for name in ("total", "values")}
    assert sorted(map(tuple, found["total"].drop("key_group").collect())) == [
        (2, 1002, 63) if row[0] == 2 else row for row in kept["total"]
    ]
    elements = found["values"].where(mine).orderBy("__position").collect()
    assert [row.value for row in elements] == [-5, 21, 22]


def stored(spark: SparkSession, location: str, name: str) -> Any:
    return spark.read.format("penstock").option("state", f"{OPERATOR}/{name}").load(location)
