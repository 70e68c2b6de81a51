"""Random stateful code, interrupted at will, gives what Spark's engine gives and keeps what it keeps; `make oracle`
runs many."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from penstock.coordinator import generation_slots as attempt
from tests.oracle.processor_plans import ProcessorPlan
from tests.oracle.processor_runs import compared, on_penstock, on_spark
from tests.oracle.scripted_processors import LONG_MS, Change, Shape

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEPT = (
    ProcessorPlan(
        "rows",
        "EventTime",
        "timestamp",
        Shape(
            value=("int", "struct<x:int,y:string>"),
            element=("timestamp", "array<int>"),
            map_key=("string", "date"),
            map_value=("decimal(10,2)", "map<string,int>"),
            echo=("binary", "array<struct<x:int>>"),
        ),
        rows=60,
        files=3,
        keys=3,
        skew=0.0,
        holes=0.15,
        seed=1,
        parallelisms=(2, 1, 3),
        kills=True,
        pause_s=0.003,
        backend="rocksdb",
    ),
    ProcessorPlan(
        "pandas",
        "ProcessingTime",
        "struct<x:int,y:string>",
        Shape(value=("double",), element=("float", "string"), map_key=("boolean",), ttl_ms=LONG_MS),
        rows=60,
        files=3,
        keys=12,
        skew=0.0,
        holes=0.0,
        seed=590,
        parallelisms=(1, 3),
        live=True,
        alignment="unaligned",
    ),
    ProcessorPlan(
        "pandas",
        "EventTime",
        "string",
        Shape(value=("int", "string"), element=("array<int>",), map_key=("string",), map_value=("double",)),
        rows=20,
        files=3,
        keys=12,
        skew=0.0,
        holes=0.15,
        seed=3,
        parallelisms=(2,),
        initial=12,
    ),
    ProcessorPlan(
        "rows",
        "EventTime",
        "string",
        Shape(
            value=("int", "string"),
            element=("float",),
            map_key=("string",),
            map_value=("double", "struct<x:int,y:string>"),
        ),
        rows=20,
        files=3,
        keys=5,
        skew=0.0,
        holes=0.0,
        seed=3,
        parallelisms=(1,),
        change=Change(2, ("string",), ("date", "array<int>"), True, True, ""),
    ),
    ProcessorPlan(
        "groups",
        "EventTime",
        "double",
        Shape(value=("bigint", "string", "date")),
        rows=60,
        files=4,
        keys=12,
        skew=0.0,
        holes=0.15,
        seed=4,
        parallelisms=(1, 2),
    ),
)
"""One of each form, one with an initial state, one that declares more later; the keys of timers were not those of Spark
once."""


@pytest.fixture(autouse=True)
def quick_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("google.protobuf", reason="Spark's own transformWithState needs it")
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("plan", KEPT, ids=lambda plan: f"{plan.form}-{plan.seed}-{plan.initial}")
def test_processors_that_are_kept_equal_sparks(spark: SparkSession, tmp_path: Path, plan: ProcessorPlan) -> None:
    """The last one also shows that a difference is noticed: its output and its state are told from other values'."""
    expected = on_spark(spark, plan, tmp_path)
    assert expected["output"].total() > 15
    assert sum(rows.total() for rows in expected.values()) > expected["output"].total(), "there is state"
    compared(on_penstock(spark, plan, tmp_path, expected["output"]), expected)
    if plan.form == "groups":
        other = replace(plan, shape=replace(plan.shape, value=("bigint", "date", "string")))
        again = tmp_path / "other"
        again.mkdir()
        assert other.schema == plan.schema
        found = on_penstock(spark, other, again, expected["output"])
        for table in ("output", "state"):
            with pytest.raises(AssertionError, match=rf"{table}: too many: \[\(\(.*missing: \[\(\("):
                compared({**expected, table: found[table]}, expected)


def test_values_of_both_declarations_are_compared_as_tuples() -> None:
    """A part of a Row is a tuple, so a Row would differ from the same fields under an earlier declaration."""
    shape = Shape(value=("int",))
    changed = replace(shape, change=Change(2, (), ("int",), False, False, ""))
    for one, stored in ((shape, Row(7)), (changed, Row(7)), (replace(changed, early=True), Row(7, 8))):
        found = one.looked_at(stored)
        assert (type(found), found) == (tuple, (7,))
    assert shape.looked_at(None) is None


def test_a_row_more_is_a_difference() -> None:
    rows: dict[str, Counter[Any]] = {"output": Counter([("a", 1), ("a", 1)])}
    with pytest.raises(AssertionError, match=r"too many: \[\(\('a', 1\), 1\)\]; missing: \[\]"):
        compared({"output": Counter([("a", 1)] * 3)}, rows)
