"""Aggregate functions: the supported Catalyst classes, and the parts of each that become a call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, elements, kind
from penstock.functions import Expression, Literal
from penstock.functions.core.nested import MakeStruct
from penstock.functions.logic.logic import And, CaseWhen, IsNull
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.plan_registry import eval_mode
from penstock.operators.aggregate.accumulators.count_sketch import CountTable
from penstock.operators.aggregate.accumulators.distinct_sketch import SketchTables
from penstock.operators.aggregate.accumulators.listagg import Direction
from penstock.operators.aggregate.calls import AggregateCall
from penstock.planner import unsupported
from penstock.planner.scope import Scope

_LEAST_PRECISION, _MOST_PRECISION = 4, 18
"""Bounds of a sketch's precision. Spark has no tables for other values."""

Column = Callable[[str, Expression], int]
"""Function that adds an expression as a column of the aggregation's input and returns the column's position."""


@dataclass(frozen=True)
class _Function:
    """Conversion of a Catalyst node to a call.

    Attributes:
        name: the name of the ``AggregateCall``.
        arguments: number of the node's first children that are columns.
        parameters: reads the parameters, which are not columns.
        columns: returns the trees that are columns if they are not the first children.
    """

    name: str
    arguments: int = 1
    parameters: Callable[[JavaTree], tuple[object, ...]] = lambda _: ()
    columns: Callable[[JavaTree], list[JavaTree]] | None = None

    def arguments_of(self, function: JavaTree) -> list[JavaTree]:
        return children(function)[: self.arguments] if self.columns is None else self.columns(function)


def _null_on_zero(function: JavaTree) -> tuple[object, ...]:
    return (bool(function.nullOnDivideByZero()),)


def _ignore_nulls(function: JavaTree) -> tuple[object, ...]:
    return (bool(function.ignoreNulls()),)


def _percentages(function: JavaTree) -> tuple[float, ...]:
    """Return the percentages. Spark's analyzer has checked that they are constants."""
    value = function.percentageExpression().eval(None)
    if not pa.types.is_list(arrow_type(function.percentageExpression())):
        return (float(str(value)),)
    return tuple(float(value.getDouble(index)) for index in range(value.numElements()))


def _approximate(function: JavaTree) -> tuple[object, ...]:
    return _percentages(function), int(function.accuracyExpression().eval(None))


def _continuous(function: JavaTree) -> tuple[object, ...]:
    return _percentages(function), bool(function.reverse()), "between"


def _discrete(function: JavaTree) -> tuple[object, ...]:
    between = "last" if function.legacyCalculation() else "next"
    return _percentages(function), bool(function.reverse()), between


def _with_frequency(function: JavaTree) -> list[JavaTree]:
    """Return the arguments of ``percentile``; the frequency is left out if it is the default, 1."""
    frequency = function.frequencyExpression()
    is_default = kind(frequency) == "Literal" and frequency.value() == 1
    return [function.child()] if is_default else [function.child(), frequency]


def _least(function: JavaTree) -> tuple[object, ...]:
    """Return the parameters of ``mode``."""
    if function.reverseOpt().isEmpty():
        raise unsupported.MODE_OF_SEVERAL.error(function.toString())
    return (bool(function.reverseOpt().get()),)


def _delimiter(function: JavaTree) -> tuple[object, ...]:
    """Return the parameters of ``listagg``: the delimiter and the order of the values."""
    value = function.delimiter().eval(None)
    if pa.types.is_binary(arrow_type(function)):
        between: str | bytes = b"" if value is None else bytes(value)
    else:
        between = "" if value is None else str(value)
    directions = tuple(
        Direction(bool(order.isAscending()), str(order.nullOrdering().sql()) == "NULLS FIRST")
        for order in elements(function.orderExpressions())
    )
    return between, directions


def _ordered_values(function: JavaTree) -> list[JavaTree]:
    """Return the arguments of ``listagg``: the value, and the values that it is ordered by if they differ from it."""
    orders = elements(function.orderExpressions()) if function.needSaveOrderValue() else []
    return [function.child(), *(order.child() for order in orders)]


def _how_many(function: JavaTree) -> tuple[object, ...]:
    """Return the number of values of ``max_by`` and ``min_by``."""
    return (int(function.k()),)


def _sketch(function: JavaTree) -> tuple[object, ...]:
    """Return the parameters of a sketch, with the tables of measured values read from Spark."""
    jvm_class = (
        function.getClass().getClassLoader().loadClass("org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper")
    )
    helper = {
        name: jvm_class.getMethod(name, None).invoke(None, None)
        for name in ("THRESHOLDS", "RAW_ESTIMATE_DATA", "BIAS_DATA")
    }
    precision = _precision(float(function.relativeSD()))
    row = precision - _LEAST_PRECISION
    if not _LEAST_PRECISION <= precision <= _MOST_PRECISION:
        raise unsupported.SKETCH_ERROR.error(function.toString())
    estimates, biases = (tuple(map(float, helper[name][row])) for name in ("RAW_ESTIMATE_DATA", "BIAS_DATA"))
    return (SketchTables(precision, float(helper["THRESHOLDS"][row]), estimates, biases),)


def _count_table(function: JavaTree) -> tuple[object, ...]:
    """Return the parameters of ``count_min_sketch``, read from an empty sketch of Spark's."""
    return (CountTable.of(bytes(function.createAggregationBuffer().toByteArray())),)


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
    "ApproximatePercentile": _Function("percentile_approx", 1, _approximate),
    "Percentile": _Function("percentile", 1, _continuous, _with_frequency),
    "PercentileDisc": _Function("percentile", 1, _discrete),
    "Mode": _Function("mode", 1, _least),
    "ListAgg": _Function("listagg", 1, _delimiter, _ordered_values),
    "MaxMinByK": _Function("max_by_k", 2, _how_many),
    "CollectUnion": _Function("collect_union", 1, _ignore_nulls),
    "BitmapConstructAgg": _Function("bitmap_construct_agg"),
    "BitmapOrAgg": _Function("bitmap_or_agg"),
    "BitmapAndAgg": _Function("bitmap_and_agg"),
    "CountMinSketchAgg": _Function("count_min_sketch", 1, _count_table),
    "RegrReplacement": _Function("regr_sxx", 1, lambda _: (True,)),
    "RegrSXY": _Function("regr_sxy", 2),
    "RegrSlope": _Function("regr_slope", 2),
    "RegrIntercept": _Function("regr_intercept", 2),
    "RegrR2": _Function("regr_r2", 2),
}
"""Supported aggregate functions by Catalyst class."""


def translate_call(scope: Scope, column: Column, aggregate: JavaTree, keeps_distinct: bool = False) -> AggregateCall:
    """Return the call for one aggregate function. Its arguments become columns.

    Args:
        scope: resolves the attributes.
        column: adds a column.
        aggregate: the ``AggregateExpression``.
        keeps_distinct: True if a DISTINCT function stores its distinct arguments itself, because no operator in front
            of it marks the first row of each value.

    Raises:
        NotSupported: the function is not supported, or not for arguments of these types.
    """
    function = aggregate.aggregateFunction()
    definition = _definition_of(function)
    condition = scope.translate(aggregate.filter().get()) if aggregate.filter().isDefined() else None
    result = arrow_type(function)
    distinct = keeps_distinct and bool(aggregate.isDistinct())
    call = _counted_rows(function, result) if definition.name == "count" and not distinct else None
    if call is None:
        arguments = _arguments(scope, function, definition, condition, distinct)
        call = replace(_call(function, definition, arguments, column, result), distinct=distinct)
    return call if condition is None else replace(call, condition=column("__condition", condition))


def distinct_arguments(scope: Scope, column: Column, aggregate: JavaTree) -> tuple[int, ...]:
    """Return the columns of a DISTINCT function's arguments, whose combined values count once."""
    function = aggregate.aggregateFunction()
    definition = _definition_of(function)
    trees = children(function) if definition.name == "count" else definition.arguments_of(function)
    return tuple(column("__argument", scope.translate(tree)) for tree in trees)


def _definition_of(function: JavaTree) -> _Function:
    definition = FUNCTIONS.get(kind(function))
    if definition is None:
        raise unsupported.AGGREGATE_FUNCTION.error(f"aggregate {function.toString()} ({kind(function)})")
    if kind(function) == "MaxMinByK" and function.reverse():
        return replace(definition, name="min_by_k")
    return definition


def _counted_rows(function: JavaTree, result: pa.DataType) -> AggregateCall | None:
    """Return the call for ``count(*)`` or a count of constants that are not null; None for other functions."""
    if all(kind(argument) == "Literal" and not argument.nullable() for argument in children(function)):
        return AggregateCall("count_star", -1, pa.null(), result)
    return None


def _arguments(
    scope: Scope, function: JavaTree, definition: _Function, condition: Expression | None, distinct: bool
) -> list[Expression]:
    """Return the argument columns. With a condition, they are computed only for the rows that meet it.

    Args:
        distinct: distinct values are counted, so the columns have the values and not only a mark per counted row.
    """
    trees = children(function) if definition.name == "count" else definition.arguments_of(function)
    arguments = [scope.translate(tree) for tree in trees]
    if len(arguments) > 1 and definition.name == "listagg":
        arguments = [arguments[0], _packed(arguments[1:])]
    if len(arguments) > 1 and definition.name == "count":
        not_null: Sequence[Expression] = [IsNull(argument, negated=True) for argument in arguments]
        counted = _packed(arguments) if distinct else Literal(True, pa.bool_())
        arguments = [CaseWhen([(reduce(And, not_null), counted)], None, counted.data_type)]
    if condition is not None:
        arguments = [CaseWhen([(condition, argument)], None, argument.data_type) for argument in arguments]
    return arguments


def _packed(arguments: Sequence[Expression]) -> Expression:
    """Return one struct expression for several columns."""
    fields = [pa.field(f"key{number}", argument.data_type) for number, argument in enumerate(arguments)]
    return MakeStruct(arguments, pa.struct(fields))


def _call(
    function: JavaTree, definition: _Function, arguments: Sequence[Expression], column: Column, result: pa.DataType
) -> AggregateCall:
    first, *more = arguments
    mode = eval_mode(function) if definition.name in ("sum", "avg") else EvalMode.LEGACY
    name = definition.name
    if mode is EvalMode.TRY and name == "sum" and pa.types.is_integer(first.data_type):
        name = "try_sum"
    if pa.types.is_duration(first.data_type) and name in ("sum", "avg"):
        if mode is EvalMode.TRY:
            raise unsupported.TRY_AGGREGATE.error(function.toString())
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
        parameters=definition.parameters(function),
        sql_name=str(function.prettyName()),
    )


def _precision(error: float) -> int:
    """Return the precision that ``HyperLogLogPlusPlusHelper`` chooses for a relative error."""
    return math.ceil(2.0 * math.log(1.106 / error) / math.log(2.0))
