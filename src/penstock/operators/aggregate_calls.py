"""What an aggregation computes, and the columns that carry its partial results over the exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import NotSupported
from penstock.state.arrays import storage_dtype

FUNCTIONS = ("count", "count_star", "sum", "min", "max", "avg")
_MAX_PRECISION = 38
_SUM_EXTRA_DIGITS = 10


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function over one input column.

    Attributes:
        function: one of ``FUNCTIONS``.
        ordinal: position of the argument in the partial aggregation's input; ignored for ``count_star``.
        input_type: the argument's type (``pa.null()`` for ``count_star``).
        result_type: the type Spark gives the result.
        ansi: whether overflow raises Spark's error; otherwise long sums wrap and decimal results become null.
    """

    function: str
    ordinal: int
    input_type: pa.DataType
    result_type: pa.DataType
    ansi: bool = True

    def __post_init__(self) -> None:
        numeric = pa.types.is_integer(self.input_type) or pa.types.is_floating(self.input_type)
        decimal = pa.types.is_decimal128(self.input_type)
        if self.function not in FUNCTIONS:
            raise NotSupported(
                f"aggregate function {self.function} is not supported; supported: {', '.join(FUNCTIONS)}"
            )
        if self.function in ("sum", "avg") and not (numeric or decimal):
            raise NotSupported(f"{self.function} over {self.input_type} is not supported; cast it to a number")
        if self.function in ("min", "max") and not (decimal or is_orderable(self.input_type)):
            raise NotSupported(f"{self.function} over {self.input_type} is not supported")

    @property
    def sum_type(self) -> pa.DataType:
        """The type of the running sum of ``sum`` and ``avg``, as Catalyst's Sum and Average choose it."""
        if pa.types.is_decimal128(self.input_type):
            precision = min(self.input_type.precision + _SUM_EXTRA_DIGITS, _MAX_PRECISION)
            return pa.decimal128(precision, self.input_type.scale)
        if self.function == "sum" and pa.types.is_integer(self.input_type):
            return pa.int64()
        return pa.float64()

    def buffer_fields(self, position: int) -> list[pa.Field]:
        """The partial result's columns: what crosses the exchange and what the state keeps.

        A null ``sum`` with ``seen`` (or a ``count`` above zero) is a decimal sum that overflowed, for good.
        """
        prefix = f"__a{position}_"
        if self.function in ("count", "count_star"):
            return [pa.field(f"{prefix}count", pa.int64())]
        if self.function in ("min", "max"):
            return [pa.field(f"{prefix}{self.function}", self.input_type)]
        companion = ("seen", pa.bool_()) if self.function == "sum" else ("count", pa.int64())
        return [pa.field(f"{prefix}sum", self.sum_type), pa.field(f"{prefix}{companion[0]}", companion[1])]


def is_orderable(kind: pa.DataType) -> bool:
    """Types of which min and max are known: fixed-width ones, strings and binaries."""
    return storage_dtype(kind) is not None or pa.types.is_string(kind) or pa.types.is_binary(kind)


def partial_schema(input_schema: pa.Schema, key_columns: Sequence[int], calls: Sequence[AggregateCall]) -> pa.Schema:
    """What ``PartialAggregateSpec`` yields and ``FinalAggregateSpec`` takes: the key columns, then every call's
    buffer columns. The exchange hashes by positions ``0 .. len(key_columns) - 1``."""
    keys = [input_schema.field(position) for position in key_columns]
    return pa.schema([*keys, *buffer_fields(calls)])


def buffer_fields(calls: Sequence[AggregateCall]) -> list[pa.Field]:
    """Every call's buffer columns in order."""
    return [field for position, call in enumerate(calls) for field in call.buffer_fields(position)]
