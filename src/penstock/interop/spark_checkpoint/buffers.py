"""Aggregation buffers: conversion of the buffers in Spark's state store to Penstock's buffer columns.

Spark stores one row per group: the keys and the buffers of the functions, in the order of Catalyst's
``PhysicalAggregation``. Penstock's buffers have the same order, so they correspond by position. Names and types are
compared, as Spark does when it starts a changed query.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from penstock.catalyst.types import to_arrow_schema
from penstock.errors import NotSupported
from penstock.interop.spark_checkpoint.findings import SAME, Finding
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.aggregate.final import FinalAggregateSpec

_READ = ("count", "count_star", "sum", "avg", "min", "max")
"""Functions whose buffers can be converted."""
_LONG_DIGITS, _DOUBLE_DIGITS = 18, 15
_SUM_DIGITS, _AVERAGE_DIGITS = 10, 4
"""Digits that a sum and an average have in addition to those of their argument."""


@dataclass(frozen=True)
class BufferShape:
    """Shape of Spark's buffer of one function.

    Attributes:
        columns: name and type of each column.
        scale: scale of a decimal that is stored as its unscaled number; None: values are stored unchanged.
    """

    columns: tuple[tuple[str, pa.DataType], ...]
    scale: int | None = None

    @property
    def texts(self) -> list[str]:
        return [f"{name} {type_text(kind)}" for name, kind in self.columns]


def possible_shapes(call: AggregateCall) -> list[BufferShape]:
    """Return the possible shapes of a function's buffer, the more likely one first.

    Spark's optimizer sums short decimals as longs and averages them as doubles (``DecimalAggregates``), unless the rule
    is excluded. The limits are those of Spark.
    """
    if call.function in ("count", "count_star"):
        return [BufferShape((("count", pa.int64()),))]
    if call.function in ("min", "max"):
        return [BufferShape(((call.function, call.input_type),))]
    count, is_empty = ("count", pa.int64()), ("isEmpty", pa.bool_())
    if not pa.types.is_decimal(call.input_type):
        total = ("sum", call.sum_type)
        return [BufferShape((total,) if call.function == "sum" else (total, count))]
    exact = BufferShape((("sum", call.sum_type), is_empty if call.function == "sum" else count))
    precision, scale = call.input_type.precision, call.input_type.scale
    if call.function == "sum" and precision + _SUM_DIGITS <= _LONG_DIGITS:
        return [BufferShape((("sum", pa.int64()),), scale), exact]
    if call.function == "avg" and precision + _AVERAGE_DIGITS <= _DOUBLE_DIGITS:
        return [BufferShape((("sum", pa.float64()), count), scale), exact]
    return [exact]


def stored_shapes(calls: Sequence[AggregateCall], stored: Sequence[str]) -> list[BufferShape] | None:
    """Return the shape of each function for stored columns, given as ``name type``; None if these do not fit."""
    found: list[BufferShape] = []
    position = 0
    for call in calls:
        fitting = [
            one for one in possible_shapes(call) if list(stored[position : position + len(one.columns)]) == one.texts
        ]
        if not fitting:
            return None
        found.append(fitting[0])
        position += len(fitting[0].columns)
    return found if position == len(stored) else None


def own_buffers(call: AggregateCall, shape: BufferShape, columns: Sequence[Column]) -> list[Column]:
    """Compute Penstock's buffer columns, in the order of ``AggregateCall.buffer_fields``, from Spark's columns.

    In Penstock the sum of no values is null, with ``seen`` false or a count of 0; in Spark it is 0 for decimals and
    averages. A decimal sum that overflowed is null in both.
    """
    if call.function not in ("sum", "avg"):
        return list(columns)
    total = columns[0] if shape.scale is None else _scaled(columns[0], shape.scale, call.sum_type)
    if call.function == "avg":
        return [F.when(columns[1] > 0, total), columns[1]]
    if len(columns) == 1:
        return [total, columns[0].isNotNull()]
    return [F.when(~columns[1], total), ~columns[1]]


def _scaled(unscaled: Column, scale: int, kind: pa.DataType) -> Column:
    """Convert an unscaled number to a decimal. The result is exact if Spark's double is exact."""
    whole = unscaled.cast("decimal(22,0)")
    shifted = whole * F.lit(Decimal(1).scaleb(-scale)) if scale else whole
    return shifted.cast(f"decimal({kind.precision},{kind.scale})")


def check_columns(spec: FinalAggregateSpec, key: Any, value: Any) -> list[Finding]:
    """Return the reasons why the state does not fit this aggregation; empty if it fits.

    Args:
        key, value: Spark's schemas of the state, as parsed JSON.
    """
    what = f"state of {spec.name}"
    try:
        keys, buffers = to_arrow_schema(key), to_arrow_schema(value)
    except NotSupported as error:
        return [Finding(what, str(error), "start the query anew")]
    findings = []
    expected_keys = [type_text(spec.input_schema.field(position).type) for position in range(spec.key_count)]
    stored_keys = [type_text(field.type) for field in keys]
    if stored_keys != expected_keys:
        findings.append(
            Finding(f"{what}, keys", f"Spark's are {column_list(stored_keys)}, not {column_list(expected_keys)}", SAME)
        )
    unread = [call.function for call in spec.calls if call.function not in _READ]
    if unread:
        what = f"{what}, {column_list(unread)}"
        return [*findings, Finding(what, "what Spark keeps of these is not read", "start the query anew")]
    stored = buffer_texts(buffers)
    if stored_shapes(spec.calls, stored) is None:
        expected = [text for call in spec.calls for text in possible_shapes(call)[0].texts]
        findings.append(
            Finding(f"{what}, buffers", f"Spark's are {column_list(stored)}, not {column_list(expected)}", SAME)
        )
    return findings


def buffer_texts(buffers: pa.Schema) -> list[str]:
    """Return the columns as texts for ``stored_shapes``."""
    return [f"{field.name} {type_text(field.type)}" for field in buffers]


def type_text(kind: pa.DataType) -> str:
    """Return the type as text, without nullability, which stored rows do not depend on."""
    return re.sub(r" not null", "", str(kind))


def column_list(texts: Sequence[str]) -> str:
    """Format columns for a message."""
    return f"({', '.join(texts)})"
