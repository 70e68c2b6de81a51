"""What is read from the session."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from penstock.frontend import session_conf
from penstock.frontend.conf import python_settings
from penstock.operators.expressions import SessionConf
from penstock.operators.user_code import PythonSettings

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
