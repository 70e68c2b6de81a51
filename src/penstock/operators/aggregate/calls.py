"""Aggregate calls, and the columns that carry their partial results over the exchange."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import pyarrow as pa

from penstock.errors import NotSupported
from penstock.state.arrays import storage_dtype

_MAX_PRECISION = 38
_SUM_EXTRA_DIGITS = 10
_EXACT_DOUBLE_DIGITS = 15
_NOTHING = pa.null()


class Family(Enum):
    """Family of functions that share an accumulator class."""

    COUNT = auto()
    EXTREME = auto()
    SUM = auto()
    MOMENTS = auto()
    COVARIANCE = auto()
    FIRST = auto()
    MIN_MAX_BY = auto()
    BITS = auto()
    LISTS = auto()
    DISTINCT_SKETCH = auto()
    QUANTILES = auto()
    PERCENTILE = auto()
    MODE = auto()
    LISTAGG = auto()
    MIN_MAX_BY_K = auto()
    BITMAPS = auto()
    COUNT_SKETCH = auto()


FUNCTIONS = {
    "count": Family.COUNT,
    "count_star": Family.COUNT,
    "sum": Family.SUM,
    "try_sum": Family.SUM,
    "avg": Family.SUM,
    "min": Family.EXTREME,
    "max": Family.EXTREME,
    "variance_samp": Family.MOMENTS,
    "variance_pop": Family.MOMENTS,
    "stddev_samp": Family.MOMENTS,
    "stddev_pop": Family.MOMENTS,
    "skewness": Family.MOMENTS,
    "kurtosis": Family.MOMENTS,
    "covar_samp": Family.COVARIANCE,
    "covar_pop": Family.COVARIANCE,
    "corr": Family.COVARIANCE,
    "first": Family.FIRST,
    "last": Family.FIRST,
    "min_by": Family.MIN_MAX_BY,
    "max_by": Family.MIN_MAX_BY,
    "bit_and": Family.BITS,
    "bit_or": Family.BITS,
    "bit_xor": Family.BITS,
    "collect_list": Family.LISTS,
    "collect_set": Family.LISTS,
    "approx_count_distinct": Family.DISTINCT_SKETCH,
    "percentile_approx": Family.QUANTILES,
    "regr_sxx": Family.MOMENTS,
    "regr_sxy": Family.COVARIANCE,
    "regr_slope": Family.COVARIANCE,
    "regr_intercept": Family.COVARIANCE,
    "regr_r2": Family.COVARIANCE,
    "percentile": Family.PERCENTILE,
    "mode": Family.MODE,
    "listagg": Family.LISTAGG,
    "min_by_k": Family.MIN_MAX_BY_K,
    "max_by_k": Family.MIN_MAX_BY_K,
    "collect_union": Family.LISTS,
    "bitmap_construct_agg": Family.BITMAPS,
    "bitmap_or_agg": Family.BITMAPS,
    "bitmap_and_agg": Family.BITMAPS,
    "count_min_sketch": Family.COUNT_SKETCH,
}

_MOMENTS = {"skewness": ("m2", "m3"), "kurtosis": ("m2", "m3", "m4")}
_PRODUCTS = dict.fromkeys(("corr", "regr_slope", "regr_intercept", "regr_r2"), ("ck", "x_mk", "y_mk"))


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function over one or two input columns.

    Attributes:
        function: one of ``FUNCTIONS``.
        ordinal: position of the argument in the partial aggregation's input; ignored for ``count_star``.
        input_type: type of the argument (``pa.null()`` for ``count_star``).
        result_type: Spark's type of the result.
        ansi: True if overflow raises Spark's error. Otherwise long sums wrap and decimal results become null.
        second, second_type: position and type of the second argument; the position is -1 if there is none.
        condition: position of the boolean column of ``FILTER (WHERE ...)``: only rows where it is true count. -1 if
            there is none.
        parameters: further parameters of the function; see its accumulator.
        distinct: True if each combination of arguments counts once. The group then stores a list of them.
        sql_name: the function's name in SQL, for error messages.
    """

    function: str
    ordinal: int
    input_type: pa.DataType
    result_type: pa.DataType
    ansi: bool = True
    second: int = -1
    second_type: pa.DataType = _NOTHING
    condition: int = -1
    parameters: tuple[Any, ...] = ()
    distinct: bool = False
    sql_name: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise NotSupported(
                f"aggregate function {self.function} is not supported; supported: {', '.join(FUNCTIONS)}"
            )
        why = _unsupported_reason(self)
        if why is not None:
            raise NotSupported(f"{self.sql_name or self.function} over {self.input_type} is not supported{why}")

    @property
    def arguments(self) -> list[int]:
        """Positions of the argument columns."""
        return [] if self.function == "count_star" else [self.ordinal, self.second][: 2 if self.second >= 0 else 1]

    def remapped(self, position_of: Callable[[int], int]) -> AggregateCall:
        """Return the call with new column positions. ``position_of`` is called only for columns that the call reads."""
        ordinal, second, condition = (
            position_of(position) if position >= 0 and position in (*self.arguments, self.condition) else position
            for position in (self.ordinal, self.second, self.condition)
        )
        return replace(self, ordinal=ordinal, second=second, condition=condition)

    @property
    def sum_type(self) -> pa.DataType:
        """Type of the running sum of ``sum`` and ``avg``, as in Catalyst's ``Sum`` and ``Average``."""
        if pa.types.is_decimal128(self.input_type):
            precision = min(self.input_type.precision + _SUM_EXTRA_DIGITS, _MAX_PRECISION)
            return pa.decimal128(precision, self.input_type.scale)
        if pa.types.is_duration(self.input_type):
            return self.input_type
        if self.function != "avg" and pa.types.is_integer(self.input_type):
            return pa.int64()
        return pa.float64()

    def buffer_fields(self, position: int) -> list[pa.Field]:
        """Return the buffer columns of this call, which is call number ``position`` of its aggregation.

        A null ``sum`` with ``seen`` (or a ``count`` above zero) is a sum that overflowed. It stays null.
        """
        return [pa.field(f"__a{position}_{name}", kind) for name, kind in _buffers(self)]


def _buffers(call: AggregateCall) -> list[tuple[str, pa.DataType]]:
    if call.distinct:
        kinds = [call.input_type, *([call.second_type] if call.second >= 0 else [])]
        return [(f"values{index}", pa.list_(kind)) for index, kind in enumerate(kinds)]
    match FUNCTIONS[call.function]:
        case Family.COUNT:
            return [("count", pa.int64())]
        case Family.EXTREME | Family.BITS:
            return [(call.function, call.input_type)]
        case Family.SUM:
            companion = ("count", pa.int64()) if call.function == "avg" else ("seen", pa.bool_())
            return [("sum", call.sum_type), companion]
        case Family.MOMENTS:
            names = ("n", "avg", *_MOMENTS.get(call.function, ("m2",)))
            return [(name, pa.float64()) for name in names]
        case Family.COVARIANCE:
            names = ("n", "x_avg", "y_avg", *_PRODUCTS.get(call.function, ("ck",)))
            return [(name, pa.float64()) for name in names]
        case Family.FIRST:
            return [(call.function, call.input_type), ("seen", pa.bool_())]
        case Family.MIN_MAX_BY:
            return [("value", call.input_type), ("by", call.second_type)]
        case Family.LISTS:
            return [("values", call.input_type if call.function == "collect_union" else pa.list_(call.input_type))]
        case Family.DISTINCT_SKETCH:
            return [("registers", pa.binary())]
        case Family.QUANTILES:
            return [("values", pa.list_(pa.float64())), ("widths", pa.list_(pa.int64())),
                    ("slacks", pa.list_(pa.int64()))]  # fmt: skip
        case Family.PERCENTILE | Family.MODE:
            return [("values", pa.list_(call.input_type)), ("counts", pa.list_(pa.int64()))]
        case Family.LISTAGG:
            keys = [("keys", pa.list_(call.second_type))] if call.second >= 0 else []
            return [("values", pa.list_(call.input_type)), *keys]
        case Family.MIN_MAX_BY_K:
            return [("values", pa.list_(call.input_type)), ("by", pa.list_(call.second_type))]
        case Family.BITMAPS:
            return [("bits", pa.binary())]
        case Family.COUNT_SKETCH:
            return [("counts", pa.binary())]


def _unsupported_reason(call: AggregateCall) -> str | None:
    """Return the reason why the function does not support these argument types; None if it does."""
    kind = call.input_type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    fixed = storage_dtype(kind) is not None
    match FUNCTIONS[call.function]:
        case Family.SUM:
            runs = numeric or pa.types.is_decimal128(kind) or pa.types.is_duration(kind)
            return None if runs else "; cast it to a number"
        case Family.EXTREME | Family.MODE:
            return None if is_orderable(kind) else ""
        case Family.LISTAGG:
            return None if call.second < 0 or is_orderable(call.second_type) else f", ordered by {call.second_type}"
        case Family.PERCENTILE:
            runs = numeric or pa.types.is_decimal128(kind) or pa.types.is_duration(kind)
            return None if runs else "; cast it to a number"
        case Family.MIN_MAX_BY_K if pa.types.is_null(kind):
            return "; cast it to the type that is meant"
        case Family.MIN_MAX_BY | Family.MIN_MAX_BY_K:
            return None if is_orderable(call.second_type) else f", judged by {call.second_type}"
        case Family.MOMENTS | Family.COVARIANCE:
            return None if kind == pa.float64() else "; cast it to a double"
        case Family.BITS:
            return None if pa.types.is_integer(kind) else "; cast it to an integer"
        case Family.QUANTILES:
            exact = pa.types.is_decimal128(kind) and kind.precision <= _EXACT_DOUBLE_DIGITS
            return None if fixed or exact else "; cast it to a double"
        case Family.LISTS | Family.FIRST | Family.DISTINCT_SKETCH:
            return None if _distinct_names(kind) else ": two fields of a struct have one name; rename one of them"
        case _:
            return None


def _distinct_names(kind: pa.DataType) -> bool:
    """Return True if the fields of structs in the type have distinct names."""
    if pa.types.is_struct(kind):
        return len({field.name for field in kind}) == len(list(kind)) and all(_distinct_names(f.type) for f in kind)
    return not pa.types.is_nested(kind) or all(
        _distinct_names(kind.field(position).type) for position in range(kind.num_fields)
    )


def is_orderable(kind: pa.DataType) -> bool:
    """Return True for types that can be ordered: all except maps, and types that contain maps.

    A struct with duplicate field names is not supported either.
    """
    if pa.types.is_struct(kind):
        return _distinct_names(kind) and all(is_orderable(field.type) for field in kind)
    if pa.types.is_list(kind):
        return is_orderable(kind.value_type)
    return not pa.types.is_nested(kind)


def partial_schema(input_schema: pa.Schema, key_columns: Sequence[int], calls: Sequence[AggregateCall]) -> pa.Schema:
    """Return the schema of partial rows: the key columns, then the buffer columns of every call.

    The exchange partitions them by the columns ``0 .. len(key_columns) - 1``.
    """
    keys = [input_schema.field(position) for position in key_columns]
    return pa.schema([*keys, *buffer_fields(calls)])


def buffer_fields(calls: Sequence[AggregateCall]) -> list[pa.Field]:
    """Return the buffer columns of all calls, in order."""
    return [field for position, call in enumerate(calls) for field in call.buffer_fields(position)]
