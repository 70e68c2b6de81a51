"""Ranks: integers in Spark's order of the values of any type. Equal values have equal ranks.

Null comes first. In numbers, -0.0 equals 0.0, and NaN equals NaN and is greater than infinity. Strings and binaries are
compared by their bytes, structs by the first field that differs, arrays by the first element that differs. An array
comes before any longer array that starts with it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.ragged import as_type, valid_lists
from penstock.functions.core.vectors import Vector, to_vector, valid_rows

Ranks = npt.NDArray[np.int64]

_WORD = ">u4"
"""Big-endian type of a rank: its bytes sort as the ranks do."""


def ranks(array: pa.Array) -> Ranks:
    """Return one rank per value: 0 for null, then without gaps. Ranks are comparable only within this array."""
    if len(array) == array.null_count:
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(array.type):
        codes = _ranks_of_structs(array)
    elif pa.types.is_list(array.type):
        codes = _ranks_of_lists(array)
    elif _has_dictionary(array.type):
        codes = _ranks_of_texts(array)
    else:
        codes = np.unique(sort_keys(array), return_inverse=True)[1].reshape(-1).astype(np.int64) + 1
    valid = valid_rows(array)
    return codes if valid is None else np.where(valid, codes, 0)


def common_ranks(left: pa.Array, right: pa.Array) -> tuple[Ranks, Ranks]:
    """Return the ranks of two arrays of one type, comparable with each other."""
    ranked = ranks(pa.concat_arrays([left, as_type(right, left.type)]))
    return ranked[: len(left)], ranked[len(left) :]


def among(values: Ranks, others: Ranks) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are in ``others``.

    ``np.isin`` hashes and takes fifty times as long for such ranks.
    """
    if not len(others):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(others)
    positions = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[positions] == values)


def sort_keys(array: pa.Array) -> Vector:
    """Return integers in the order of an array's numbers, dates or instants; arbitrary at nulls."""
    values = to_vector(array)
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    plain = np.where(np.isnan(values), np.nan, values.astype(np.float64) + 0.0)
    return total_order(plain)


def total_order(values: npt.NDArray[np.float64]) -> Ranks:
    """Return integers in the order of Java's ``Double.compare``: -0.0 before 0.0, NaN last."""
    bits = values.view(np.int64)
    return bits ^ ((bits >> np.int64(63)) & np.int64(2**63 - 1))


def _has_dictionary(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type) or pa.types.is_decimal(data_type))


def _ranks_of_texts(array: pa.Array) -> Ranks:
    encoded = array.dictionary_encode()
    order = to_vector(pc.sort_indices(encoded.dictionary).cast(pa.int64()))
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    return np.asarray(rank_of[to_vector(encoded.indices.fill_null(0))] + 1)


def _ranks_of_structs(array: pa.Array) -> Ranks:
    fields = array.flatten()
    words = np.zeros((len(array), len(fields)), _WORD)
    for i, field in enumerate(fields):
        words[:, i] = ranks(field)
    return _ranks_of_bytes(words, np.full(len(array), len(fields)))


def _ranks_of_lists(array: pa.Array) -> Ranks:
    lists = valid_lists(array)
    return _ranks_of_bytes(ranks(lists.values).astype(_WORD), lists.sizes)


def _ranks_of_bytes(words: Vector, sizes: Vector) -> Ranks:
    """Rank sequences of words. ``sizes`` is the number of words in each."""
    width = np.dtype(_WORD).itemsize
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes * width, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    return _ranks_of_texts(pa.Array.from_buffers(pa.binary(), len(sizes), buffers))
