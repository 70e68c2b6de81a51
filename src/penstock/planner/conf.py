"""Session settings that the planner reads, and a run of Spark's optimizer with the rules that Penstock needs."""

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
    # Sums of short decimals as longs in three expressions: a help for Spark's code generator only.
    "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates",
    # Filters of one side of a join by a subquery over the other: a help for Spark's scans and shuffles only.
    "org.apache.spark.sql.catalyst.optimizer.InjectRuntimeFilter",
    "org.apache.spark.sql.execution.dynamicpruning.PartitionPruning",
)


def session_conf(spark: SparkSession) -> SessionConf:
    """The settings that change what an expression means, as they are now."""
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
    """The settings that decide what Python functions see, as they are now."""

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
    """Return True if several streams use their largest watermark, False if the lowest. Spark has no third value."""
    return str(spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy")).lower() == "max"


@contextmanager
def _excluded(spark: SparkSession, rules: tuple[str, ...]) -> Iterator[None]:
    """Exclude optimizer rules besides those that the user excludes; the session's setting is put back."""
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
    """The optimizer reads the settings of the thread's active session, which may be another one."""
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
    """The optimised logical plan, by the session's own optimizer (extensions included).

    Filters may pass below the watermark, as they do in Structured Streaming: a row that they drop does not advance
    event time there either.

    Raises:
        NotSupported: the optimizer fails, for example to compute a constant that ANSI mode forbids; Spark's own engine
            would fail on the first batch.
    """
    try:
        with _active(spark), _excluded(spark, _RULES_WITHOUT_USE):
            return spark._jsparkSession.sessionState().optimizer().execute(analyzed)
    except (PySparkException, Py4JJavaError) as error:
        message = first_line(error) if isinstance(error, Py4JJavaError) else str(error).splitlines()[0]
        with unsupported.at_node(analyzed):
            raise unsupported.OPTIMIZER_FAILS.error(message) from None
