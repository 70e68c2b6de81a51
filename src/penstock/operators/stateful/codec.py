"""Codec that converts the user's tuples to stored state values and back, by the rules of PySpark 4.3.

Stored values are those of Arrow's ``to_pylist``: dicts for structs, lists of pairs for maps, aware datetimes. Mutable
objects are converted when they are read and written, as by Spark's pickling, so that they are never shared with the
user.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.conversion import ArrowTableToRowsConversion, LocalDataToArrowConversion
from pyspark.sql.streaming import stateful_processor_api_client as spark_client
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    Row,
    ShortType,
    StructType,
)

from penstock.operators.stateful.variables import Fields
from penstock.state.vector import Rows, Vector

StoredTuple = tuple[Any, ...]

_INTEGERS = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}


class TupleCodec:
    """Codec of one declared schema."""

    def __init__(self, fields: Fields) -> None:
        self.columns = fields.columns
        self._type = StructType.fromJson(json.loads(fields.spark_json))
        self._in = [_encoder(field.name, field.dataType) for field in self._type]
        self._out = [
            ArrowTableToRowsConversion._create_converter(field.dataType, none_on_identity=True) for field in self._type
        ]
        self._plain = not any(self._out)
        self._row = Row(*self._type.names)
        spark_client._load_numpy()

    def encode(self, value: Any) -> StoredTuple:
        """Check a value from the user and convert it to its stored form.

        Raises:
            TypeError: the value is not a tuple, list or dict, or a field does not have the declared type.
            ValueError: the number of fields is not the declared one.
        """
        if isinstance(value, dict):
            value = tuple(value.get(name) for name in self._type.names)
        if not isinstance(value, tuple | list):
            raise TypeError(f"a state value is a tuple of {len(self._in)} fields, not {type(value).__name__}")
        if len(value) != len(self._in):
            raise ValueError(
                f"a state value of {len(value)} fields was given, declared are {len(self._in)}: {self._type.names}"
            )
        return tuple([convert(field) for convert, field in zip(self._in, value, strict=True)])

    def decode(self, stored: StoredTuple) -> tuple[Any, ...]:
        """Convert a stored value for the user."""
        if self._plain:
            return stored
        return tuple(
            [field if convert is None else convert(field) for convert, field in zip(self._out, stored, strict=True)]
        )

    def decode_row(self, stored: StoredTuple) -> Row:
        """Convert a stored value to a Row for the user."""
        row: Row = self._row(*self.decode(stored))
        return row

    def to_columns(self, stored: Sequence[StoredTuple]) -> list[pa.Array]:
        """Convert stored tuples to one column per field."""
        columns = list(zip(*stored, strict=True)) if stored else [()] * len(self.columns)
        return [pa.array(column, field.type) for column, field in zip(columns, self.columns, strict=True)]


def stored_tuples(columns: Sequence[pa.Array], count: int) -> list[StoredTuple]:
    """Convert columns to stored tuples."""
    if not columns:
        return [()] * count
    return list(zip(*[ArrowTableToRowsConversion._to_pylist(column) for column in columns], strict=True))


def stored_tuples_at(vectors: Sequence[Vector], rows: Rows) -> list[StoredTuple]:
    """Convert these rows of a table's value columns to stored tuples."""
    if not vectors:
        return [()] * len(rows)
    return list(zip(*[_values(vector, rows) for vector in vectors], strict=True))


def _values(vector: Vector, rows: Rows) -> list[Any]:
    kind = vector.kind
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        return list(ArrowTableToRowsConversion._to_pylist(vector.to_arrow(rows)))
    data, valid = vector.read()
    values: list[Any] = data[rows].tolist()
    known = valid[rows]
    if not known.all():
        for position in np.flatnonzero(~known).tolist():
            values[position] = None
    return values


def _encoder(name: str, kind: DataType) -> Callable[[Any], Any]:
    """Return a function that checks and converts one field. It unwraps values of numpy and pandas."""
    bits = _INTEGERS.get(type(kind))
    if bits is not None:
        convert = _integers(kind, bits)
    elif isinstance(kind, FloatType | DoubleType):
        convert = _one_of(kind, (float, int), float)
    elif isinstance(kind, BooleanType):
        convert = _one_of(kind, (bool,), bool)
    elif isinstance(kind, DateType):
        convert = _one_of(kind, (datetime.date,), lambda v: v.date() if isinstance(v, datetime.datetime) else v)
    else:
        convert = LocalDataToArrowConversion._create_converter(kind, int_to_decimal_coercion_enabled=True)

    def encode(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(spark_client._normalize_state_value(value))
        except (AssertionError, TypeError, OverflowError) as error:
            raise TypeError(
                f"field {name} of a state value is declared {kind.simpleString()}, and was given "
                f"{type(value).__name__} {value!r:.100}" + (f": {error}" if str(error) else "")
            ) from None

    return encode


def _integers(kind: DataType, bits: int) -> Callable[[Any], Any]:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def convert(value: Any) -> Any:
        if type(value) is not int:
            raise TypeError("it is no integer")
        if not low <= value <= high:
            raise OverflowError("it does not fit")
        return value

    return convert


def _one_of(kind: DataType, types: tuple[type, ...], convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise TypeError
        return convert(value)

    return checked


def hashable(value: Any) -> Any:
    """Return a hashable value that is equal for keys that Spark considers equal: NaN equals NaN, -0.0 equals 0.0."""
    if isinstance(value, tuple | list):
        return tuple([hashable(item) for item in value])
    if isinstance(value, dict):
        return tuple([hashable(item) for item in value.values()])
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
