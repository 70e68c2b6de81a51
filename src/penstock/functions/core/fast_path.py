"""Quick paths: what whole columns at once can answer for sure, beside the exact way of each distinct value.

A function of values in Python costs some hundred nanoseconds to tens of microseconds for each of them. A quick path
computes all rows with kernels, and knows the rows that it cannot vouch for; those alone take the exact way. So it may
refuse whatever is rare or hard to decide, but what it vouches for must be what the exact way gives, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import map_distinct, select


class FastResult(NamedTuple):
    """What a quick path found.

    Attributes:
        values: one per row, null where the argument is.
        doubtful: the rows whose values are not known, and arbitrary here; None if there are none.
    """

    values: pa.Array
    fallback: Mask | None = None


FastPath = Callable[..., FastResult | None]
"""The arguments of an expression, the rows at which all of them are wanted and the result's type -> the values. A
module-level function or a partial of one. None: not for these values at all."""

ColumnFunction = Callable[..., FastResult | None]
"""Constants, a column (the only argument that is none) and the rows that are wanted, which are not null -> the values.
It must not raise, whatever the other rows hold. None: not for these values at all."""

_OTHER_LAYOUTS = (pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view())
"""In which texts may come from elsewhere."""


def column_fast_path(function: ColumnFunction, *constants: object) -> FastPath:
    """The function as the quick path of an expression whose first argument is the column, and the others constants."""
    return partial(_on_first_column, partial(function, *constants))


def _on_first_column(function: ColumnFunction, array: pa.Array, *others: Any) -> FastResult | None:
    return None if array.type in _OTHER_LAYOUTS else function(array, others[-2])


def with_exact_rows(
    result: FastResult | None,
    exact: Callable[[list[pa.Array], Mask | None], pa.Array],
    arrays: list[pa.Array],
    rows: Mask | None,
) -> pa.Array:
    """The answer, and at its doubtful rows what ``exact`` gives for columns of them."""
    if result is None:
        return exact(arrays, rows)
    if result.fallback is None:
        return result.values
    fallback = select(rows, result.fallback)
    if not fallback.any():
        return result.values
    chosen = pa.array(fallback)
    found = exact([array.filter(chosen) for array in arrays], None)
    if not pa.types.is_nested(result.values.type):
        return pc.replace_with_mask(result.values, chosen, found)
    places = np.arange(len(fallback))
    places[fallback] = len(fallback) + np.arange(len(found))
    return pa.concat_arrays([result.values, found]).take(pa.array(places))


def with_exact_values(
    result: FastResult | None,
    function: Callable[..., object],
    arrays: list[pa.Array],
    data_type: pa.DataType,
    rows: Mask | None,
) -> pa.Array:
    """As ``with_exact_rows``, by a function of one value of each column; see ``map_distinct``."""
    return with_exact_rows(
        result, lambda columns, wanted: map_distinct(function, columns, data_type, wanted), arrays, rows
    )
