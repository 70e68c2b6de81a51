"""Percentiles, which are doubles, as values of the type that Spark gives them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.arrays import storage_dtype


def answers(found: Sequence[Sequence[float] | None], result_type: pa.DataType) -> pa.Array:
    """One answer per group: all of its percentiles where the type is an array, or else the only one; None is null."""
    if not pa.types.is_list(result_type):
        return _typed([None if numbers is None else _value(numbers[0], result_type) for numbers in found], result_type)
    kind = result_type.value_type
    offsets = pa.array(np.cumsum([0, *(len(numbers or ()) for numbers in found)]), pa.int32())
    values = _typed([_value(number, kind) for numbers in found for number in numbers or ()], kind)
    mask = pa.array([numbers is None for numbers in found])
    return pa.ListArray.from_arrays(offsets, values, pa.list_(result_type.value_field), mask=mask)


def _value(number: float, kind: pa.DataType) -> Any:
    """A double as the raw value of the result's type."""
    if pa.types.is_decimal128(kind):
        return Decimal(repr(number)).quantize(Decimal(1).scaleb(-kind.scale))
    return number if pa.types.is_floating(kind) else int(number)


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal128(kind) or pa.types.is_floating(kind):
        return pa.array(values, kind)
    dtype = storage_dtype(kind)
    assert dtype is not None
    whole = pa.array(values, pa.from_numpy_dtype(dtype))
    return whole if whole.type == kind else whole.view(kind)
