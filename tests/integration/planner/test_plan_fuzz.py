"""Random DataFrames: each that Spark analyses runs to its end or is refused by name (many: ``make fuzz-plans``).

Ones that once did neither are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from penstock.operators.filter import FilterOperator
from tests.fuzz.fuzz_plans import Finding, Inputs, fuzz, judge, told

pytestmark = pytest.mark.spark

IN_CI = range(20_000, 20_010)
"""Seeds: the same plans in every run."""
KEPT = {
    "s.repartition(3).union(t.repartition('k'))": "equals the batch",  # nothing between an exchange and the union
    "s.groupBy().count().drop('count')": "equals the batch",  # a row without columns
    "s.groupBy('k').agg(F.expr('percentile(n, 0.5, cast(null as int))'))": "equals the batch",  # of no frequency
    "s.selectExpr('char(\"2024-03-31\")', 'n')": "refused",  # a constant that ANSI mode forbids
}
"""Plans that failed once, as small as they got, and what becomes of them under ANSI mode."""


@pytest.fixture(scope="module")
def inputs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inputs]:
    """``SQLQueryContextLogger`` prints all that the analyser refuses."""
    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    for logger in loggers:
        logger.disabled = True
    time_type = spark.conf.get("spark.sql.timeType.enabled")
    yield Inputs(spark, tmp_path_factory.mktemp("fuzz"))
    spark.conf.set("spark.sql.timeType.enabled", time_type)
    for logger in loggers:
        logger.disabled = False


def test_random_plans_run_or_are_refused(inputs: Inputs, spark_conf: Callable[[str, str], None]) -> None:
    spark_conf("spark.sql.ansi.enabled", "true")
    outcomes, findings = fuzz(inputs, IN_CI)
    assert not findings, "\n".join(told(*finding) for finding in findings)
    assert outcomes["refused"] > 0
    assert outcomes["equals the batch"] > 0


@pytest.mark.parametrize("plan", KEPT)
def test_what_failed_once_does_so_no_more(inputs: Inputs, plan: str) -> None:
    assert judge(inputs, plan) == KEPT[plan]


def test_a_failure_is_found(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(FilterOperator, "process", broken)
    with pytest.raises(Finding, match="run in append mode"):
        judge(inputs, "s.where('n > 0')")
