"""Checks before compilation: the DataFrame, Spark's own rules, repeatable expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import JavaTree, children, elements, kind, plan_line
from penstock.errors import NotSupported
from penstock.planner import unsupported
from penstock.planner.undistinct import without_distinct
from penstock.spark.errors import UnsupportedPlan, WrongPlan, WrongSetting, wrong_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTPUT_MODES = ("append", "update", "complete")

_CURRENT_TIME = ("CurrentTimestamp", "CurrentDate", "CurrentTime", "Now", "LocalTimestamp")
_SUBQUERIES = ("ScalarSubquery", "ListQuery", "InSubquery", "Exists", "LateralSubquery")


def check_dataframe(df: Any) -> None:
    """Refuse everything but a classic streaming DataFrame.

    Raises:
        ArgumentTypeError: ``df`` is not a DataFrame.
        WrongPlan: ``df`` is a batch DataFrame.
        NotSupported: ``df`` is a Spark Connect DataFrame.
    """
    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "a Spark Connect session keeps its plans on the server, where Penstock cannot read them; "
            "start a classic session: SparkSession.builder.master(...) without remote()"
        )
    if not hasattr(df, "_jdf"):
        raise wrong_type("df", df, "a streaming DataFrame")
    if not df.isStreaming:
        raise WrongPlan(
            "this DataFrame is a batch one; penstock runs streaming DataFrames: start from spark.readStream",
            "WRITE_STREAM_NOT_ALLOWED",
            {},
        )


def check_output_mode(output_mode: str) -> str:
    """Return the output mode in lower case.

    Raises:
        WrongSetting: Spark has no such mode.
    """
    mode = output_mode.strip().lower()
    if mode not in OUTPUT_MODES:
        raise WrongSetting(
            f"output mode {output_mode!r} is unknown; choose {', '.join(OUTPUT_MODES)}",
            "STREAMING_OUTPUT_MODE.INVALID",
            {"outputMode": output_mode},
        )
    return mode


def check_by_spark(spark: SparkSession, analyzed: JavaTree, output_mode: str) -> None:
    """Run the check that ``DataStreamWriter.start`` runs, and raise its message as a Penstock error.

    Penstock supports distinct aggregates and Spark's engine does not, so the check gets a plan without DISTINCT.

    Raises:
        UnsupportedPlan: Spark refuses the plan in this mode.
    """
    modes = java_class(spark, "org.apache.spark.sql.streaming.OutputMode")
    mode = getattr(modes, output_mode.capitalize())()
    checker = java_class(spark, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
    try:
        checker.checkForStreaming(without_distinct(spark, analyzed), mode)
    except AnalysisException as error:
        reason, _, plan = str(error).partition(";\n")
        condition = error.getCondition()
        reason = " ".join(reason.split()).removeprefix(f"[{condition}] ")
        text = f"Spark itself refuses to stream this plan in {output_mode} mode: {reason}"
        if str(condition).startswith("STREAMING_OUTPUT_MODE"):
            text += "; group by the watermark's column or a window over it, or use output mode update"
        line = plan.splitlines()[0] if plan else plan_line(analyzed)
        message = f"{text}\n  in the plan: {line}"
        raise UnsupportedPlan(message, condition, error.getMessageParameters()) from None


def check_expressions(spark: SparkSession, analyzed: JavaTree) -> None:
    """Refuse expressions whose results a restart could not repeat.

    The analyzed plan is checked, because the optimizer replaces ``current_timestamp()`` by a literal. Python functions
    that are declared nondeterministic are allowed: the user is responsible for them.

    Raises:
        NotSupported: the message names the expression and its plan line.
    """
    if not _is_repeatable(spark, analyzed):
        _check_node(analyzed)


def _is_repeatable(spark: SparkSession, analyzed: JavaTree) -> bool:
    """Return True if the whole plan is deterministic and has no current time and no subquery.

    Catalyst itself knows this, so most plans need not be walked.
    """
    patterns = java_class(spark, "org.apache.spark.sql.catalyst.trees.TreePattern")
    suspects = (patterns.CURRENT_LIKE(), patterns.PLAN_EXPRESSION())
    return analyzed.deterministic() and not any(analyzed.containsPattern(suspect) for suspect in suspects)


def _check_node(analyzed: JavaTree) -> None:
    if not analyzed.isStreaming():
        return
    with unsupported.at_node(analyzed):
        for expression in elements(analyzed.expressions()):
            _check_expression(expression)
    for child in children(analyzed):
        _check_node(child)


def _check_expression(expression: JavaTree) -> None:
    name = kind(expression)
    if name == "AttributeReference":
        return
    below = children(expression)
    if name in _CURRENT_TIME:
        raise unsupported.CURRENT_TIME.error(expression.toString())
    if name in _SUBQUERIES:
        raise unsupported.SUBQUERY.error(expression.toString())
    if name == "AggregateExpression":
        function, *condition = below  # ``first`` is not deterministic; the aggregation refuses it, not this check
        below = [*children(function), *condition]
    elif name != "PythonUDF" and not expression.deterministic() and all(child.deterministic() for child in below):
        raise unsupported.NOT_DETERMINISTIC.error(expression.toString())
    for child in below:
        _check_expression(child)
