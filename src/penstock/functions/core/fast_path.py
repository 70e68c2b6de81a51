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


class Answer(NamedTuple):
    """What a quick path found.

    Attributes:
        values: one per row, null where the argument is.
        doubtful: the rows whose values are not known, and arbitrary here; None if there are none.
    """

    values: pa.Array
    doubtful: Mask | None = None


Quick = Callable[..., Answer | None]
"""The arguments of an expression, the rows at which all of them are wanted and the result's type -> the values. A
module-level function or a partial of one. None: not for these values at all."""

OfColumn = Callable[..., Answer | None]
"""Constants, a column (the only argument that is none) and the rows that are wanted, which are not null -> the values.
It must not raise, whatever the other rows hold. None: not for these values at all."""

_OTHER_LAYOUTS = (pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view())
"""In which texts may come from elsewhere."""


def by_column(function: OfColumn, *constants: object) -> Quick:
    """The function as the quick path of an expression whose first argument is the column, and the others constants."""
    return partial(_of_first, partial(function, *constants))


def _of_first(function: OfColumn, array: pa.Array, *others: Any) -> Answer | None:
    return None if array.type in _OTHER_LAYOUTS else function(array, others[-2])


def completed(
    answer: Answer | None,
    exact: Callable[[list[pa.Array], Mask | None], pa.Array],
    arrays: list[pa.Array],
    rows: Mask | None,
) -> pa.Array:
    """The answer, and at its doubtful rows what ``exact`` gives for columns of them."""
    if answer is None:
        return exact(arrays, rows)
    if answer.doubtful is None:
        return answer.values
    doubtful = select(rows, answer.doubtful)
    if not doubtful.any():
        return answer.values
    chosen = pa.array(doubtful)
    found = exact([array.filter(chosen) for array in arrays], None)
    if not pa.types.is_nested(answer.values.type):
        return pc.replace_with_mask(answer.values, chosen, found)
    places = np.arange(len(doubtful))
    places[doubtful] = len(doubtful) + np.arange(len(found))
    return pa.concat_arrays([answer.values, found]).take(pa.array(places))


def settled(
    answer: Answer | None,
    function: Callable[..., object],
    arrays: list[pa.Array],
    data_type: pa.DataType,
    rows: Mask | None,
) -> pa.Array:
    """As ``completed``, by a function of one value of each column; see ``map_distinct``."""
    return completed(answer, lambda columns, wanted: map_distinct(function, columns, data_type, wanted), arrays, rows)
