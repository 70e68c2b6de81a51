"""Random DataFrames, interrupted at will, give what Spark's batch gives; `make oracle N=...` runs many."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from oracle_plans import Data, Plan, Step, plans
from oracle_runs import run
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

KEPT: tuple[Plan, ...] = ()
"""Plans that failed once, as small as they got."""
IN_CI = 2


@pytest.fixture
def legacy(spark: SparkSession) -> SparkSession:
    """Overflow and such give null or wrap."""
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.ansi.enabled", "true")


@pytest.mark.parametrize("plan", KEPT)
def test_what_failed_once_does_not_any_more(legacy: SparkSession, tmp_path: Path, plan: Plan) -> None:
    run(legacy, plan, tmp_path)


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
