"""Spark's order of values of any type, as numbers: equal values have equal ranks, and greater values greater ones.

Null comes first, then numbers with -0.0 equal to 0.0 and NaN equal to NaN behind infinity; strings and binaries go by
their bytes; structs by their first field that differs, arrays by their first element that differs, and a shorter array
before its continuations.
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
"""Type of a rank as bytes that sort as the rank does."""


def ranks(array: pa.Array) -> Ranks:
    """One rank per value, comparable within this array alone: 0 for null, then without gaps."""
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
    """The ranks of two arrays of one type, comparable with each other."""
    ranked = ranks(pa.concat_arrays([left, as_type(right, left.type)]))
    return ranked[: len(left)], ranked[len(left) :]


def among(values: Ranks, others: Ranks) -> npt.NDArray[np.bool_]:
    """Return a mask of the values that are among the others.

    ``np.isin`` hashes, and takes fifty times as long for numbers like these.
    """
    if not len(others):
        return np.zeros(len(values), np.bool_)
    ordered = np.sort(others)
    positions = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[positions] == values)


def sort_keys(array: pa.Array) -> Vector:
    """Integers in the order of an array's numbers, dates or instants; arbitrary at nulls."""
    values = to_vector(array)
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    plain = np.where(np.isnan(values), np.nan, values.astype(np.float64) + 0.0)
    return total_order(plain)


def total_order(values: npt.NDArray[np.float64]) -> Ranks:
    """Java's ``Double.compare`` as integers: -0.0 before 0.0, NaN last."""
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
    """Rank texts of so many words each."""
    width = np.dtype(_WORD).itemsize
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes * width, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    return _ranks_of_texts(pa.Array.from_buffers(pa.binary(), len(sizes), buffers))
