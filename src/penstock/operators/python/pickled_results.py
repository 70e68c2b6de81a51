"""Conversion of results of plain Python UDFs by the rules of Spark's JVM (``EvaluatePython.makeFromJava``).

A value that does not have the declared type becomes null. Integers are truncated to their width. Decimals are rounded
HALF_UP. Any value can be converted to a string.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import types as spark

from penstock.errors import NotSupported

Convert = Callable[[Any], Any]

UNCHANGED: dict[type[spark.DataType], type] = {
    spark.BooleanType: bool,
    spark.IntegerType: int,
    spark.LongType: int,
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.StringType: str,
    spark.BinaryType: bytes,
}
"""Declared types whose results are unchanged if they have exactly this Python type, and for integers if they fit."""

_INTEGER_BITS: dict[type[spark.DataType], int] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
_DECIMAL = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


def result_converter(kind: spark.DataType, time_zone: str) -> Convert:
    """Return a function that converts a user's result to a value that ``pa.array`` accepts for the declared type.

    Raises:
        NotSupported: plain UDFs with this declared type are not supported.
    """
    convert = _converter(kind, time_zone)
    return lambda value: None if value is None else convert(value)


def _converter(kind: spark.DataType, time_zone: str) -> Convert:
    if type(kind) in _INTEGER_BITS:
        bits = _INTEGER_BITS[type(kind)]
        return lambda value: _integer(value, bits)
    if isinstance(kind, spark.DecimalType):
        return lambda value: _decimal(value, kind)
    if isinstance(kind, spark.TimestampType):
        zone = ZoneInfo(time_zone)
        return lambda value: value if value.tzinfo is not None else value.replace(tzinfo=zone)
    if isinstance(kind, spark.ArrayType):
        element = result_converter(kind.elementType, time_zone)
        return lambda values: [element(value) for value in values]
    if isinstance(kind, spark.MapType):
        key, item = result_converter(kind.keyType, time_zone), result_converter(kind.valueType, time_zone)
        return lambda values: [(key(k), item(v)) for k, v in values.items()]
    if isinstance(kind, spark.StructType):
        return _struct(kind, time_zone)
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise NotSupported(f"a plain Python UDF that returns {kind.simpleString()} is not supported")
    return simple


def _integer(value: Any, bits: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        return None  # beyond a long, Spark receives a BigInteger, which it does not accept as an integer
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


def _decimal(value: Any, kind: spark.DecimalType) -> decimal.Decimal | None:
    if not isinstance(value, decimal.Decimal) or not value.is_finite():
        return None
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_DECIMAL)
    if len(rounded.as_tuple().digits) > kind.precision:
        raise OverflowError(f"the result {value} has more digits than {kind.simpleString()}")
    return rounded


def _struct(kind: spark.StructType, time_zone: str) -> Convert:
    names = kind.names
    fields = [result_converter(field.dataType, time_zone) for field in kind.fields]

    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple | list):
            if len(value) != len(names):
                raise ValueError(f"the result has {len(value)} fields, declared are {len(names)}")
            values = list(value)
        else:
            mapping = value if isinstance(value, dict) else value.__dict__
            values = [mapping.get(name) for name in names]
        return {name: field(item) for name, field, item in zip(names, fields, values, strict=True)}

    return convert


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _binary(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _date(value: Any) -> datetime.date:
    return datetime.date.fromordinal(value.toordinal())  # a datetime gives its date; other types have no toordinal


_SIMPLE: dict[type[spark.DataType], Convert] = {
    spark.BooleanType: lambda value: value if isinstance(value, bool) else None,
    spark.FloatType: lambda value: value if isinstance(value, float) else None,
    spark.DoubleType: lambda value: value if isinstance(value, float) else None,
    spark.StringType: _string,
    spark.BinaryType: _binary,
    spark.DateType: _date,
    spark.TimestampNTZType: lambda value: value,
    spark.NullType: lambda value: None,
}
