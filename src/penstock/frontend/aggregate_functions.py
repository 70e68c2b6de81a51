"""Aggregate functions: which of Catalyst's classes are run, and what is taken from each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from penstock.frontend import refusals
from penstock.frontend.catalyst import JavaTree, arrow_type, children, kind
from penstock.frontend.expressions_registry import eval_mode
from penstock.frontend.scope import Scope
from penstock.operators.accumulators.distinct_sketch import SketchTables
from penstock.operators.aggregate_calls import AggregateCall
from penstock.operators.expressions import Expression, Literal
from penstock.operators.expressions.arithmetic import EvalMode
from penstock.operators.expressions.logic import And, CaseWhen, IsNull

_LEAST_PRECISION, _MOST_PRECISION = 4, 18
"""Of the sketch: beyond, Spark has no tables."""

Column = Callable[[str, Expression], int]
"""Makes an expression a column of the aggregation's input; its position."""


@dataclass(frozen=True)
class _Function:
    """What of a Catalyst node becomes a call.

    Attributes:
        name: as ``AggregateCall`` has it.
        arguments: how many of the node's children are columns.
        parameters: the others.
    """

    name: str
    arguments: int = 1
    parameters: Callable[[JavaTree], tuple[object, ...]] = lambda _: ()


def _null_on_zero(function: JavaTree) -> tuple[object, ...]:
    return (bool(function.nullOnDivideByZero()),)


def _ignore_nulls(function: JavaTree) -> tuple[object, ...]:
    return (bool(function.ignoreNulls()),)


def _percentages(function: JavaTree) -> tuple[object, ...]:
    """Spark's analysis has seen to it that these are constants."""
    array = arrow_type(function.percentageExpression())
    value = function.percentageExpression().eval(None)
    accuracy = int(function.accuracyExpression().eval(None))
    if not pa.types.is_list(array):
        return (_number(value),), False, accuracy
    return tuple(float(value.getDouble(place)) for place in range(value.numElements())), True, accuracy


def _number(value: JavaTree) -> float:
    return float(str(value))


def _sketch(function: JavaTree) -> tuple[object, ...]:
    """The tables that Spark measured are read from Spark."""
    jvm_class = (
        function.getClass().getClassLoader().loadClass("org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper")
    )
    helper = {
        name: jvm_class.getMethod(name, None).invoke(None, None)
        for name in ("THRESHOLDS", "RAW_ESTIMATE_DATA", "BIAS_DATA")
    }
    precision = _precision(float(function.relativeSD()))
    place = precision - _LEAST_PRECISION
    if not _LEAST_PRECISION <= precision <= _MOST_PRECISION:
        raise refusals.SKETCH_ERROR.error(function.toString())
    estimates, biases = (tuple(map(float, helper[name][place])) for name in ("RAW_ESTIMATE_DATA", "BIAS_DATA"))
    return (SketchTables(precision, float(helper["THRESHOLDS"][place]), estimates, biases),)


FUNCTIONS = {
    "Count": _Function("count"),
    "Sum": _Function("sum"),
    "Average": _Function("avg"),
    "Min": _Function("min"),
    "Max": _Function("max"),
    "VarianceSamp": _Function("variance_samp", 1, _null_on_zero),
    "VariancePop": _Function("variance_pop", 1, _null_on_zero),
    "StddevSamp": _Function("stddev_samp", 1, _null_on_zero),
    "StddevPop": _Function("stddev_pop", 1, _null_on_zero),
    "Skewness": _Function("skewness", 1, _null_on_zero),
    "Kurtosis": _Function("kurtosis", 1, _null_on_zero),
    "CovSample": _Function("covar_samp", 2, _null_on_zero),
    "CovPopulation": _Function("covar_pop", 2, _null_on_zero),
    "Corr": _Function("corr", 2, _null_on_zero),
    "First": _Function("first", 1, _ignore_nulls),
    "Last": _Function("last", 1, _ignore_nulls),
    "MinBy": _Function("min_by", 2),
    "MaxBy": _Function("max_by", 2),
    "BitAndAgg": _Function("bit_and"),
    "BitOrAgg": _Function("bit_or"),
    "BitXorAgg": _Function("bit_xor"),
    "CollectList": _Function("collect_list", 1, _ignore_nulls),
    "CollectSet": _Function("collect_set", 1, _ignore_nulls),
    "HyperLogLogPlusPlus": _Function("approx_count_distinct", 1, _sketch),
    "ApproximatePercentile": _Function("percentile_approx", 1, _percentages),
}
"""By Catalyst's class."""


def translate_call(scope: Scope, column: Column, aggregate: JavaTree) -> AggregateCall:
    """One aggregate function; what it reads becomes columns.

    Raises:
        NotSupported: the function is not run, or not over arguments of such types.
    """
    function = aggregate.aggregateFunction()
    known = FUNCTIONS.get(kind(function))
    if known is None:
        raise refusals.AGGREGATE_FUNCTION.error(f"aggregate {function.toString()} ({kind(function)})")
    condition = scope.translate(aggregate.filter().get()) if aggregate.filter().isDefined() else None
    result = arrow_type(function)
    call = _counted_rows(function, result) if known.name == "count" else None
    if call is None:
        arguments = _arguments(scope, function, known, condition)
        call = _call(function, known, arguments, column, result)
    return call if condition is None else replace(call, condition=column("__condition", condition))


def distinct_arguments(scope: Scope, column: Column, aggregate: JavaTree) -> tuple[int, ...]:
    """The columns whose combined values a DISTINCT function takes once each."""
    return tuple(column("__argument", scope.translate(child)) for child in children(aggregate.aggregateFunction()))


def _counted_rows(function: JavaTree, result: pa.DataType) -> AggregateCall | None:
    """``count(*)``, of any constants."""
    if all(kind(argument) == "Literal" and not argument.nullable() for argument in children(function)):
        return AggregateCall("count_star", -1, pa.null(), result)
    return None


def _arguments(scope: Scope, function: JavaTree, known: _Function, condition: Expression | None) -> list[Expression]:
    """The argument columns; where there is a condition, they are computed only for the rows that it lets through."""
    trees = children(function)
    arguments = [scope.translate(tree) for tree in (trees if known.name == "count" else trees[: known.arguments])]
    if len(arguments) > 1 and known.name == "count":
        there: Sequence[Expression] = [IsNull(argument, negated=True) for argument in arguments]
        arguments = [CaseWhen([(reduce(And, there), Literal(True, pa.bool_()))], None, pa.bool_())]
    if condition is not None:
        arguments = [CaseWhen([(condition, argument)], None, argument.data_type) for argument in arguments]
    return arguments


def _call(
    function: JavaTree, known: _Function, arguments: Sequence[Expression], column: Column, result: pa.DataType
) -> AggregateCall:
    first, *more = arguments
    mode = eval_mode(function) if known.name in ("sum", "avg") else EvalMode.LEGACY
    name = known.name
    if mode is EvalMode.TRY and name == "sum" and pa.types.is_integer(first.data_type):
        name = "try_sum"
    if pa.types.is_duration(first.data_type) and name in ("sum", "avg"):
        if mode is EvalMode.TRY:
            raise refusals.TRY_AGGREGATE.error(function.toString())
        mode = EvalMode.ANSI  # sums of intervals never wrap
    ordinals = [column("__argument", argument) for argument in arguments]
    return AggregateCall(
        name,
        ordinals[0],
        first.data_type,
        result,
        mode is EvalMode.ANSI,
        ordinals[1] if more else -1,
        more[0].data_type if more else pa.null(),
        parameters=known.parameters(function),
    )


def _precision(error: float) -> int:
    """As ``HyperLogLogPlusPlusHelper`` chooses it."""
    return math.ceil(2.0 * math.log(1.106 / error) / math.log(2.0))
