"""Plans without DISTINCT in their aggregate functions, for checks that would refuse it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.catalyst.jvm import java_seq
from penstock.catalyst.trees import JavaTree, children, elements, kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def without_distinct(spark: SparkSession, plan: JavaTree) -> JavaTree:
    """Return the plan with ``count(x)`` for ``count(distinct x)``; the plan itself if it has none."""
    below = children(plan)
    made = [without_distinct(spark, child) for child in below]
    if any(new is not old for new, old in zip(made, below, strict=True)):
        plan = plan.withNewChildren(java_seq(spark, made))
    if kind(plan) != "Aggregate":
        return plan
    functions = elements(plan.aggregateExpressions())
    plain = [_plain(spark, function) for function in functions]
    if all(new is old for new, old in zip(plain, functions, strict=True)):
        return plan
    return plan.copy(plan.groupingExpressions(), java_seq(spark, plain), plan.child(), plan.hint())


def _plain(spark: SparkSession, expression: JavaTree) -> JavaTree:
    if kind(expression) == "AggregateExpression":
        if not expression.isDistinct():
            return expression
        return expression.copy(
            expression.aggregateFunction(), expression.mode(), False, expression.filter(), expression.resultId()
        )
    below = children(expression)
    made = [_plain(spark, child) for child in below]
    if all(new is old for new, old in zip(made, below, strict=True)):
        return expression
    return expression.withNewChildren(java_seq(spark, made))
