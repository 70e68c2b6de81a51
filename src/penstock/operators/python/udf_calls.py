"""Calls of scalar user functions: plain and Arrow-optimized Python UDFs, pandas UDFs and Arrow UDFs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, _parse_datatype_json_string

from penstock.functions.core.base import Expression
from penstock.operators.python.pandas_conversion import PandasColumns
from penstock.operators.python.pickled_results import UNCHANGED, result_converter
from penstock.operators.python.user_code import PythonSettings, convert_for_user, to_session_zone


class UdfKind(Enum):
    """Spark's eval types."""

    PYTHON = "python"
    """A plain ``@udf``, called row by row. As in Spark, results that do not have the declared type become null."""
    ARROW_PYTHON = "arrow_python"
    """An Arrow-optimized ``@udf``, called row by row. Results are cast to the declared type; a failure raises."""
    PANDAS = "pandas"
    PANDAS_ITERATOR = "pandas_iterator"
    ARROW = "arrow"
    ARROW_ITERATOR = "arrow_iterator"

    @property
    def is_iterator(self) -> bool:
        return self in (UdfKind.PANDAS_ITERATOR, UdfKind.ARROW_ITERATOR)


@dataclass(frozen=True)
class UdfCall:
    """One call of one user function.

    Attributes:
        kind: how the function is called.
        function: the user's function, unwrapped.
        arguments: expressions over the input's columns and the columns that earlier calls appended.
        return_type: the declared type as an Arrow type (timestamps are ``us``/UTC).
        spark_return_type_json: the declared type as Spark's JSON.
        name: the function's name.
        deterministic: False if the user declared the function as nondeterministic.
        keyword_names: names of the last ``len(keyword_names)`` arguments, which are passed by name.
    """

    kind: UdfKind
    function: Callable[..., Any]
    arguments: tuple[Expression, ...]
    return_type: pa.DataType
    spark_return_type_json: str
    name: str
    deterministic: bool = True
    keyword_names: tuple[str, ...] = ()

    @property
    def spark_return_type(self) -> DataType:
        return _parse_datatype_json_string(self.spark_return_type_json)


BatchFunction = Callable[[list[pa.Array], int], pa.Array]
"""Function of the argument columns and their length that returns the result column."""


def batch_function(call: UdfCall, settings: PythonSettings) -> BatchFunction:
    """Return a function over complete columns that calls a user function. Its kind must not be an iterator kind.

    The returned function raises the exceptions of the user function, and TypeError or ValueError for a result with the
    wrong type or length.
    """
    if call.kind in (UdfKind.PYTHON, UdfKind.ARROW_PYTHON):
        return _row_function(call, settings)
    to_user, from_user = user_columns(call, settings)
    function = _bound(call)

    def evaluate(columns: list[pa.Array], rows: int) -> pa.Array:
        result = from_user(function(*to_user(columns)))
        if len(result) != rows:
            raise ValueError(f"the function returned {len(result)} rows for {rows}")
        return result

    return evaluate


def user_columns(
    call: UdfCall, settings: PythonSettings
) -> tuple[Callable[[list[pa.Array]], list[Any]], Callable[[Any], pa.Array]]:
    """Return two functions for a pandas or Arrow function: they convert its argument columns, and its result."""
    if call.kind in (UdfKind.PANDAS, UdfKind.PANDAS_ITERATOR):
        pandas = PandasColumns(settings)
        back = partial(pandas.from_series, spark_type=call.spark_return_type, arrow_type=call.return_type)
        return pandas.to_series, back
    return partial(_localized, settings=settings), partial(_from_arrow, call=call)


def _localized(columns: list[pa.Array], settings: PythonSettings) -> list[pa.Array]:
    return [to_session_zone(column, settings.time_zone) for column in columns]


def _from_arrow(result: object, call: UdfCall) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        raise TypeError(f"the function must return pyarrow.Array, not {type(result).__name__}")
    return result.cast(call.return_type)


def _bound(call: UdfCall) -> Callable[..., Any]:
    """Return the user function as a function that takes all arguments by position."""
    if not call.keyword_names:
        return call.function
    positional = len(call.arguments) - len(call.keyword_names)

    def by_name(*arguments: Any) -> Any:
        named = dict(zip(call.keyword_names, arguments[positional:], strict=True))
        return call.function(*arguments[:positional], **named)

    return by_name


def _row_function(call: UdfCall, settings: PythonSettings) -> BatchFunction:
    function = _bound(call)
    inputs = [
        _to_python(argument.data_type, settings, f"_{position}") for position, argument in enumerate(call.arguments)
    ]
    convert = _from_python(call, settings)

    def evaluate(columns: list[pa.Array], rows: int) -> pa.Array:
        if not columns:
            return convert([function() for _ in range(rows)])
        values = [to_python(column) for to_python, column in zip(inputs, columns, strict=True)]
        if len(values) == 1:
            return convert([function(value) for value in values[0]])
        return convert([function(*row) for row in zip(*values, strict=True)])

    return evaluate


def _to_python(kind: pa.DataType, settings: PythonSettings, name: str) -> Callable[[pa.Array], Iterable[Any]]:
    """Return a function that converts a column to a UDF's objects: dates, naive local datetimes, Decimals, Rows."""
    convert = ArrowTableToRowsConversion._create_converter(
        from_arrow_type(kind), none_on_identity=True, binary_as_bytes=settings.binary_as_bytes
    )

    def to_python(column: pa.Array) -> list[Any]:
        values = convert_for_user(
            partial(_objects, settings.time_zone), pa.RecordBatch.from_arrays([column], [name]), "argument"
        )
        return values if convert is None else [convert(value) for value in values]

    def numbers(column: pa.Array) -> Iterable[Any]:
        """Return an iterable that creates Python numbers one by one, which takes less memory."""
        return to_python(column) if column.null_count else memoryview(column.to_numpy())

    return numbers if pa.types.is_integer(kind) or pa.types.is_floating(kind) else to_python


def _objects(time_zone: str, column: pa.RecordBatch) -> list[Any]:
    objects: list[Any] = ArrowTableToRowsConversion._to_pylist(to_session_zone(column.column(0), time_zone))
    return objects


def _from_python(call: UdfCall, settings: PythonSettings) -> Callable[[list[Any]], pa.Array]:
    if call.kind is UdfKind.PYTHON:
        return partial(_from_pickled, call, result_converter(call.spark_return_type, settings.time_zone))
    convert = LocalDataToArrowConversion._create_converter(
        call.spark_return_type, none_on_identity=True, int_to_decimal_coercion_enabled=settings.int_to_decimal
    )

    def from_python(results: list[Any]) -> pa.Array:
        converted = results if convert is None else [convert(result) for result in results]
        try:
            return pa.array(converted, call.return_type)
        except pa.ArrowInvalid:  # like Spark's worker: infer the type, then cast
            return pa.array(converted).cast(call.return_type, safe=settings.safe_cast)

    return from_python


def _from_pickled(call: UdfCall, convert: Callable[[Any], Any], results: list[Any]) -> pa.Array:
    unchanged = _unchanged(call, results)
    return pa.array([convert(result) for result in results], call.return_type) if unchanged is None else unchanged


def _unchanged(call: UdfCall, results: list[Any]) -> pa.Array | None:
    """Return the results as an array if none of them needs a conversion; None otherwise."""
    expected = UNCHANGED.get(type(call.spark_return_type))
    if expected is None or not set(map(type, results)) <= {expected, type(None)}:
        return None
    try:
        return pa.array(results, call.return_type)
    except (pa.ArrowInvalid, OverflowError):  # an integer that Spark truncates
        return None


IteratorFunction = Callable[[Iterator[list[pa.Array]]], Iterator[pa.Array]]


def iterator_function(call: UdfCall, settings: PythonSettings) -> IteratorFunction:
    """Return the user's iterator function as a function from argument columns to result columns."""
    to_user, from_user = user_columns(call, settings)

    def evaluate(inputs: Iterator[list[pa.Array]]) -> Iterator[pa.Array]:
        for result in call.function(_arguments(inputs, to_user)):
            yield from_user(result)

    return evaluate


def _arguments(inputs: Iterator[list[pa.Array]], to_user: Callable[[list[pa.Array]], list[Any]]) -> Iterator[Any]:
    for columns in inputs:
        converted = to_user(columns)
        yield converted[0] if len(converted) == 1 else tuple(converted)
