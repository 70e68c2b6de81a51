"""Set operations on arrays. Equality is Spark's; null is an element like any other."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from penstock.functions.collections.lists import concatenated
from penstock.functions.core.base import Mask
from penstock.functions.core.ragged import Ragged, as_type, is_null, plain_floats, ragged
from penstock.functions.core.ranks import Ranks, among, ranks
from penstock.functions.core.vectors import from_vector, select, to_vector
from penstock.functions.logic.comparison import compare

Arrays = list[pa.Array]


def _codes(*parts: Ragged) -> list[Ranks]:
    """Return a number per value. Within a row, equal values have the same number in all parts."""
    values = pa.concat_arrays([as_type(part.values, parts[0].values.type) for part in parts])
    order = ranks(values)
    row_of = np.concatenate([part.row_of for part in parts])
    codes = row_of * (order.max(initial=0) + 1) + order
    return np.split(codes, np.cumsum([len(part.values) for part in parts])[:-1])


def _plain(lists: Ragged) -> Ragged:
    """Return the lists with 0.0 in place of -0.0 and with one form of NaN, as Spark's hash sets do."""
    return Ragged(lists.sizes, plain_floats(lists.values))


def _first_of_each(codes: Ranks) -> Mask:
    chosen = np.zeros(len(codes), np.bool_)
    chosen[np.unique(codes, return_index=True)[1]] = True
    return chosen


def distinct(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_distinct``, with the first of equal elements."""
    lists = _plain(ragged(arrays[0], rows))
    return lists.keep(_first_of_each(_codes(lists)[0])).array(data_type, rows)


def union(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_union``."""
    lists = _plain(concatenated([ragged(array, rows) for array in arrays], data_type.value_type))
    return lists.keep(_first_of_each(_codes(lists)[0])).array(data_type, rows)


def select_common(common: bool, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_intersect`` (``common`` is True) or ``array_except`` (False)."""
    left, right = (_plain(ragged(array, rows)) for array in arrays)
    left_codes, right_codes = _codes(left, right)
    chosen = _first_of_each(left_codes) & (among(left_codes, right_codes) == common)
    return left.keep(chosen).array(data_type, rows)


intersect = partial(select_common, True)
except_ = partial(select_common, False)


def remove(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_remove``. Nulls stay."""
    lists = ragged(arrays[0], rows)
    equal = compare("=", lists.values, as_type(lists.expand_rows(arrays[1]), lists.values.type))
    return lists.keep(~to_vector(equal)).array(data_type, rows)


def overlap(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``arrays_overlap``: null where no element is shared, both arrays have elements, and either has a null."""
    left, right = (ragged(array, rows) for array in arrays)
    left_codes, right_codes = _codes(left, right)
    found = left.any(among(left_codes, right_codes) & ~is_null(left.values))
    null = left.any(is_null(left.values)) | right.any(is_null(right.values))
    unknown = null & (left.sizes > 0) & (right.sizes > 0) & ~found
    return from_vector(found, data_type, select(rows, ~unknown))
