"""Random DataFrames, interrupted at will, give what Spark's batch gives; `make oracle N=...` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from tests.oracle.late_plans import KEPT as PACERS
from tests.oracle.late_plans import LateData
from tests.oracle.oracle_plans import Data, Plan, Step, plans
from tests.oracle.oracle_runs import run, run_late

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]

KEPT = (
    Plan(
        Data(rows=400, files=4, keys=3, skew=0.8, holes=0.15, seed=5),
        (
            Step("select", ("ts", "k", "d", "cast(m as int) as c0")),
            Step("group", ("sum(c0)", "min(d)"), ("window(ts, '2 minutes', '15 seconds')", "k")),
        ),
        parallelisms=(1, 3),
        alignment="unaligned",
        kills=True,
        backend="rocksdb",
    ),
    # The names of operators below several unions and joins had too many parts to be read again.
    Plan(
        Data(rows=20, files=2, keys=1, skew=0.0, holes=0.0, seed=0),
        (Step("union", ("b", "b")), Step("union", ("b", "b")), Step("join", ("left_semi",), ("k",))),
        parallelisms=(1, 2),
        alignment="auto",
        kills=False,
        backend="memory",
    ),
    # The sides of the join define attributes by each other.
    Plan(
        Data(rows=20, files=2, keys=40, skew=0.0, holes=0.0, seed=1008),
        (
            Step("union", ("b", "b")),
            Step("select", ("ts", "k", "l", "d", "b", "l as c8_0")),
            Step("join", ("full_outer",), ("k", "b")),
        ),
        parallelisms=(3, 1),
        alignment="aligned",
        kills=False,
        backend="memory",
    ),
)
"""One of much at once; and plans that failed once, as small as they got."""
KEPT_LATE = (
    Plan(
        LateData(rows=200, files=4, keys=3, skew=0.0, holes=0.15, seed=8),
        (
            Step("where", (f"n > -50 or {PACERS}",)),
            Step("group", ("count(*)", "max_by(k, ts)"), ("session_window(ts, '20 seconds')", "k", "b")),
        ),
        parallelisms=(1, 1),
        kills=True,
    ),
)
IN_CI = 1


@pytest.fixture
def legacy(spark: SparkSession) -> SparkSession:
    """Overflow and such give null or wrap."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", "true")


@pytest.mark.parametrize("plan", KEPT)
def test_plans_that_are_kept_equal_the_batch(legacy: SparkSession, tmp_path: Path, plan: Plan) -> None:
    run(legacy, plan, tmp_path)


@pytest.mark.parametrize("plan", KEPT_LATE)
def test_late_rows_are_those_of_structured_streaming(legacy: SparkSession, tmp_path: Path, plan: Plan) -> None:
    assert run_late(legacy, plan, tmp_path) > 0


def test_random_plans_equal_the_batch(legacy: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    @settings(
        max_examples=IN_CI,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(plans())
    def check(plan: Plan) -> None:
        run(legacy, plan, tmp_path_factory.mktemp("oracle"))

    check()


def test_a_wrong_result_is_noticed(legacy: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream filters what the batch does not."""
    plan = Plan(Data(60, 2, 3, 0.0, 0.0, 1), (Step("select", ("k", "n")),))

    def lossy(step: Step, df: object) -> object:
        rows = applied(step, df)
        return rows.where("n > 0") if rows.isStreaming else rows

    applied = Step.apply
    monkeypatch.setattr(Step, "apply", lossy)
    with pytest.raises(AssertionError, match=r"too many: \[\]; missing: \[\(\("):
        run(legacy, plan, tmp_path)
