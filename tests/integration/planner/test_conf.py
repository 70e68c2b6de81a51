"""Settings that are read from the session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from penstock.functions import SessionConf
from penstock.operators.python.user_code import PythonSettings
from penstock.planner import session_conf
from penstock.planner.compiler import compile_plan
from penstock.planner.conf import python_settings

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("flag", ["true", "false"])
def test_settings_are_read_as_they_are_now(
    spark: SparkSession, spark_conf: Callable[[str, str], None], flag: str
) -> None:
    spark_conf("spark.sql.ansi.enabled", flag)
    spark_conf("spark.sql.session.timeZone", "Asia/Tokyo")
    spark_conf("spark.sql.execution.pandas.convertToArrowArraySafely", flag)
    assert session_conf(spark) == SessionConf(ansi=flag == "true", time_zone="Asia/Tokyo")
    assert python_settings(spark) == PythonSettings(time_zone="Asia/Tokyo", safe_cast=flag == "true")
    spark_conf("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    assert python_settings(spark).batch_rows == 10_000


def test_the_optimizer_has_the_settings_of_the_dataframes_own_session(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.readStream.schema("k string, d decimal(5,2)").parquet(str(tmp_path))
    other = spark.newSession()
    other.createDataFrame([(1,)], "a int")
    assert SparkSession.getActiveSession() is other
    try:
        compile_plan(df.groupBy("k").agg(F.sum("d")), "update")  # its sum is one of decimals: a rule is excluded for it
        assert SparkSession.getActiveSession() is other
    finally:
        spark.createDataFrame([(1,)], "a int")
    assert SparkSession.getActiveSession() is spark
