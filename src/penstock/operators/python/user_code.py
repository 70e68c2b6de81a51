"""Environment of user functions: Spark's conversion settings, and conversion of user errors to ``FunctionError``."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.errors import EvaluationError, FunctionError, PenstockError
from penstock.state.arrays import plain_type

Converted = TypeVar("Converted")


@dataclass(frozen=True)
class PythonSettings:
    """Session settings that affect the values that user functions see. The defaults are Spark's, except ``batch_rows``.

    Attributes:
        time_zone: ``spark.sql.session.timeZone``.
        safe_cast: ``spark.sql.execution.pandas.convertToArrowArraySafely``.
        columns_by_name: ``spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName``.
        int_to_decimal: ``spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled``.
        int_extension_types: ``spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype``.
        binary_as_bytes: ``spark.sql.execution.pyspark.binaryAsBytes``.
        batch_rows: maximum number of rows that a function gets at once. If the session sets
            ``spark.sql.execution.arrow.maxRecordsPerBatch``, it is this value. The default is larger than Spark's,
            because each call has a fixed cost, and the duration of a step limits the number of rows anyway.
    """

    time_zone: str = "UTC"
    safe_cast: bool = False
    columns_by_name: bool = True
    int_to_decimal: bool = False
    int_extension_types: bool = False
    binary_as_bytes: bool = True
    batch_rows: int = 65_536


@contextmanager
def user_errors(operator: str) -> Iterator[None]:
    """Convert errors of user code to ``FunctionError``. Penstock's own errors are passed on.

    ``StopIteration`` is an error, as in Spark's workers, because it would silently end the loop around the call.
    ``SystemExit`` is also an error: a function may end its own call but not the worker.
    """
    try:
        yield
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:
        raise function_error(operator, error) from error


def function_error(operator: str, error: BaseException) -> FunctionError:
    """Return a ``FunctionError`` with the user's traceback. ``operator``: "id (name)" of the operator."""
    trace = "".join(traceback.format_exception(error))
    return FunctionError(operator, f"{type(error).__name__}: {error}", trace)


def convert_for_user(
    convert: Callable[[pa.RecordBatch], Converted], batch: pa.RecordBatch, what: str = "column"
) -> Converted:
    """Return ``convert(batch)``, which converts columns for user code. ``what``: kind of the columns in error messages.

    Raises:
        EvaluationError: a column has a date or time that Python or pandas cannot represent.
    """
    try:
        return convert(batch)
    except (OverflowError, ValueError):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if plain_type(column.type) != column.type:
                _check_times(convert, f"{what} {name}", pa.RecordBatch.from_arrays([column], [name]))
        raise


def _check_times(convert: Callable[[pa.RecordBatch], Any], what: str, column: pa.RecordBatch) -> None:
    try:
        convert(column)
    except (OverflowError, ValueError) as error:
        raise EvaluationError(
            f"{what} holds a date or time that cannot be handed to a Python function ({error}): Python's end with the "
            "year 9999, those of pandas may with 2262. Filter such rows out in front of the function, or hand it a "
            "string, or a number made by unix_micros or unix_date"
        ) from error


def to_session_zone(array: pa.Array, time_zone: str) -> pa.Array:
    """Relabel timestamps with time zone, also nested ones, from UTC to the session's zone, as for Spark's workers."""
    kind = with_zone(array.type, time_zone)
    return array if kind == array.type else array.cast(kind)


def with_zone(kind: pa.DataType, time_zone: str) -> pa.DataType:
    """Return the type with every timestamp with time zone in it replaced by ``timestamp[us, tz=time_zone]``."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp("us", time_zone)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_zone(field.type, time_zone)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(with_zone(kind.value_type, time_zone)))
    if pa.types.is_map(kind):
        return pa.map_(with_zone(kind.key_type, time_zone), with_zone(kind.item_type, time_zone))
    return kind
