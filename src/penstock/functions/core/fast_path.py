"""Fast paths: kernels over whole columns. Rows that they leave out take the exact path.

A Python function of single values takes from some hundred nanoseconds to tens of microseconds per value. A fast path
computes all rows with kernels and returns a mask of the rows that fall back to the exact path. It may leave out rare or
difficult values. Its other results must equal those of the exact path, bit for bit.
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
    """Result of a fast path.

    Attributes:
        values: one value per row, null where the argument is null.
        fallback: the rows whose values here are arbitrary, so that the exact path must compute them; None if there are
            none.
    """

    values: pa.Array
    fallback: Mask | None = None


FastPath = Callable[..., FastResult | None]
"""Function of an expression's arguments, the selected rows and the result's type. Returns None if it cannot compute
these values at all. Must be a module-level function or a partial of one."""

ColumnFunction = Callable[..., FastResult | None]
"""Function of constants, a column and the selected rows, which are not null. Returns None if it cannot compute these
values at all. Must not raise for any values in the other rows."""

_OTHER_LAYOUTS = (pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view())
"""Layouts of strings and binaries that the fast paths do not read."""


def column_fast_path(function: ColumnFunction, *constants: object) -> FastPath:
    """Return the fast path of an expression whose first argument is a column and whose others are constants."""
    return partial(_on_first_column, partial(function, *constants))


def _on_first_column(function: ColumnFunction, array: pa.Array, *others: Any) -> FastResult | None:
    return None if array.type in _OTHER_LAYOUTS else function(array, others[-2])


def with_exact_rows(
    result: FastResult | None,
    exact: Callable[[list[pa.Array], Mask | None], pa.Array],
    arrays: list[pa.Array],
    rows: Mask | None,
) -> pa.Array:
    """Return the values of the fast path, with those of the exact path at the rows that fall back."""
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
    sources = np.arange(len(fallback))
    sources[fallback] = len(fallback) + np.arange(len(found))
    return pa.concat_arrays([result.values, found]).take(pa.array(sources))


def with_exact_values(
    result: FastResult | None,
    function: Callable[..., object],
    arrays: list[pa.Array],
    data_type: pa.DataType,
    rows: Mask | None,
) -> pa.Array:
    """Return ``with_exact_rows`` with an exact path that is a function of single values; see ``map_distinct``."""
    return with_exact_rows(
        result, lambda columns, selected: map_distinct(function, columns, data_type, selected), arrays, rows
    )
