"""Numbers that order as values do in Spark: nulls first, NaN above every number, -0.0 as 0.0, strings by their bytes,
structs field by field, arrays element by element and a beginning before the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.state.arrays import decimal_ints, fixed_values, validity
from penstock.state.vector import Rows

Ranks = npt.NDArray[np.int64]


def ranks(array: pa.Array) -> Ranks:
    """A number per value of the array: smaller for smaller values, the same for equal ones, -1 for nulls."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), -1, np.int64)
    if pa.types.is_struct(kind):
        numbers = _struct_ranks(array)
    elif pa.types.is_list(kind):
        numbers = _list_ranks(array)
    else:
        numbers = _plain_ranks(array)
    return np.where(validity(array), numbers, -1) if array.null_count else numbers


def last_bests(array: pa.Array, owners: Rows, count: int, largest: bool) -> Rows:
    """By owner, the place of its largest (or smallest) value, of equal ones the last; orders as ``ranks`` does.

    Args:
        array: at least one value of each owner; a null is less than any value.
        owners: by value, from 0 to below ``count``.
    """
    places = _bests(array, owners, count, largest)
    lasts = np.zeros(count, np.int64)
    lasts[owners[places]] = places  # of several the last one stays
    return lasts


def _bests(array: pa.Array, owners: Rows, count: int, largest: bool) -> Rows:
    """The places of all values than which their owner has no better one. Structs field by field: the first leaves few
    rows to look at the others of."""
    places = np.arange(len(array))
    if array.null_count:
        places = _extreme(validity(array).astype(np.int64), owners, count, largest)
    if not pa.types.is_struct(array.type):
        numbers = _numbers(_at(array, places))
        return places[_extreme(numbers, owners[places], count, largest)]
    for field in array.flatten():
        if len(places) == count:
            break
        places = places[_bests(_at(field, places), owners[places], count, largest)]
    return places


def _at(array: pa.Array, places: Rows) -> pa.Array:
    return array if len(places) == len(array) else array.take(pa.array(places))


def _numbers(array: pa.Array) -> Ranks:
    """As ``ranks`` among values that are not null, and nulls all alike; integers, dates and times are numbers."""
    values = fixed_values(array)
    if values is None or values.dtype.kind == "f":
        return ranks(array)
    return np.where(validity(array), values, 0) if array.null_count else values.astype(np.int64)


def _extreme(numbers: Ranks, owners: Rows, count: int, largest: bool) -> Rows:
    """The places of the numbers that are their owner's largest, or smallest."""
    bounds = np.iinfo(np.int64)
    best = np.full(count, bounds.min if largest else bounds.max)
    (np.maximum if largest else np.minimum).at(best, owners, numbers)
    return np.flatnonzero(numbers == best[owners])


def _plain_ranks(array: pa.Array) -> Ranks:
    values = fixed_values(array)
    if values is None and pa.types.is_decimal128(array.type):
        values = decimal_ints(array)
        values[~validity(array)] = 0
    if values is None:
        return np.asarray(pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy(), np.int64)
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _struct_ranks(array: pa.Array) -> Ranks:
    fields = [ranks(child) for child in array.flatten()]
    if not fields or not len(array):
        return np.zeros(len(array), np.int64)
    return np.unique(np.stack(fields, 1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _list_ranks(array: pa.Array) -> Ranks:
    lengths = pc.list_value_length(array).fill_null(0).to_numpy()
    elements = ranks(array.flatten()).tolist()
    ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    rows = [tuple(elements[begin:end]) for begin, end in pairwise(ends)]
    places = {row: place for place, row in enumerate(sorted(set(rows)))}
    return np.array([places[row] for row in rows], np.int64)
