"""Session settings that the planner reads, and Spark's optimizer with the rules that Penstock needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.catalyst.jvm import SESSION, java_class
from penstock.catalyst.trees import JavaTree
from penstock.functions.core.conf import SessionConf
from penstock.operators.python.user_code import PythonSettings
from penstock.planner import unsupported
from penstock.spark.messages import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"

_RULES_WITHOUT_USE = (
    # Computes sums of short decimals as longs in three expressions. This helps only Spark's code generator.
    "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates",
    # These filter one side of a join by a subquery over the other. This helps only Spark's scans and shuffles.
    "org.apache.spark.sql.catalyst.optimizer.InjectRuntimeFilter",
    "org.apache.spark.sql.execution.dynamicpruning.PartitionPruning",
)


def session_conf(spark: SparkSession) -> SessionConf:
    """Return the current settings that change the meaning of expressions."""
    sql_conf = spark._jsparkSession.sessionState().conf()
    return SessionConf(
        ansi=bool(sql_conf.ansiEnabled()),
        case_sensitive=bool(sql_conf.caseSensitiveAnalysis()),
        time_zone=str(sql_conf.sessionLocalTimeZone()),
        time_parser_policy=str(sql_conf.legacyTimeParserPolicy()).upper(),
        last_key_wins=str(spark.conf.get("spark.sql.mapKeyDedupPolicy")).upper() == "LAST_WIN",
        json_ignores_null_fields=bool(sql_conf.jsonGeneratorIgnoreNullFields()),
        avro_rebase_mode_in_write=str(spark.conf.get("spark.sql.avro.datetimeRebaseModeInWrite")).upper(),
        avro_rebase_mode=str(spark.conf.get("spark.sql.avro.datetimeRebaseModeInRead")).upper(),
    )


def python_settings(spark: SparkSession) -> PythonSettings:
    """Return the current settings that affect the inputs and results of Python functions."""

    def flag(name: str) -> bool:
        return str(spark.conf.get(name)).lower() == "true"

    return PythonSettings(
        time_zone=str(spark.conf.get("spark.sql.session.timeZone")),
        safe_cast=flag("spark.sql.execution.pandas.convertToArrowArraySafely"),
        columns_by_name=flag("spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName"),
        int_to_decimal=flag("spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"),
        int_extension_types=flag("spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype"),
        binary_as_bytes=flag("spark.sql.execution.pyspark.binaryAsBytes"),
        batch_rows=int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", str(PythonSettings.batch_rows))),
    )


def largest_watermark_rules(spark: SparkSession) -> bool:
    """Return True if several streams use the largest of their watermarks, False for the lowest."""
    return str(spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy")).lower() == "max"


@contextmanager
def _excluded(spark: SparkSession, rules: tuple[str, ...]) -> Iterator[None]:
    """Exclude these optimizer rules in addition to the user's. The setting is restored after the block."""
    before = spark.conf.get(EXCLUDED_RULES, None)
    spark.conf.set(EXCLUDED_RULES, ",".join(rules if before is None or not before else (before, *rules)))
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(EXCLUDED_RULES)
        else:
            spark.conf.set(EXCLUDED_RULES, before)


@contextmanager
def _active(spark: SparkSession) -> Iterator[None]:
    """Make the session the thread's active one in the block, because the optimizer reads that session's settings."""
    sessions = java_class(spark, SESSION)
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def optimize(spark: SparkSession, analyzed: JavaTree) -> JavaTree:
    """Return the optimized logical plan, made by the session's own optimizer with its extensions.

    Filters may be moved below the watermark, as in Structured Streaming: rows that they drop do not advance event time
    there either.

    Raises:
        NotSupported: the optimizer fails, for example on a constant that ANSI mode forbids. Spark's own engine would
            fail on the first batch.
    """
    try:
        with _active(spark), _excluded(spark, _RULES_WITHOUT_USE):
            return spark._jsparkSession.sessionState().optimizer().execute(analyzed)
    except (PySparkException, Py4JJavaError) as error:
        message = first_line(error) if isinstance(error, Py4JJavaError) else str(error).splitlines()[0]
        with unsupported.at_node(analyzed):
            raise unsupported.OPTIMIZER_FAILS.error(message) from None
