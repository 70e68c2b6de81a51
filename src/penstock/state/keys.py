"""Distinct keys of a batch, exact and vectorized for all key types, and conversion of keys to machine words.

A value of a fixed-width type is one int64 word, and a decimal is two words. If floats are normalized, equal words mean
values that are equal in Spark: NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.arrays import decimal_words, fixed_values, from_fixed, storage_dtype, validity

Words = npt.NDArray[np.int64]

_SAMPLE = 256
"""Number of rows that almost always suffice to find out that a column is not determined by others."""

_DENSE = 4
"""Integers are numbered by a table if their range is at most this many times their number."""


def normalize_floats(array: pa.Array) -> pa.Array:
    """Replace -0.0 by 0.0 and every NaN by the canonical NaN, also in structs and arrays, as in Spark's grouping."""
    if pa.types.is_floating(array.type):
        values = fixed_values(array)
        assert values is not None
        canonical = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
        return from_fixed(canonical, validity(array) if array.null_count else None, array.type)
    if pa.types.is_struct(array.type):
        children = [normalize_floats(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(
            children, fields=list(array.type), mask=array.is_null() if array.null_count else None
        )
    if pa.types.is_list(array.type):
        ends = pa.array(_list_ends(array), pa.int32())
        elements = normalize_floats(array.flatten())
        return pa.ListArray.from_arrays(ends, elements, array.type, mask=array.is_null() if array.null_count else None)
    return array


def _list_ends(array: pa.Array) -> Words:
    """Return the offsets of lists in their flattened elements, followed by the number of elements."""
    lengths = np.where(validity(array), np.diff(np.asarray(array.offsets)), 0)
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def group_rows(columns: Sequence[pa.Array], rows: int) -> tuple[Words, Words]:
    """Assign numbers to the distinct keys of a batch. Their order depends only on the rows.

    Args:
        columns: key columns with normalized floats. Without columns, all rows are one group.
        rows: length of the columns.

    Returns:
        The group number of every row, and the first row of every group.
    """
    return number_distinct([words for column in columns for words in _batch_words(column)], rows)


def number_distinct(words: Sequence[Words], rows: int) -> tuple[Words, Words]:
    """Assign numbers to distinct keys that are given as words; see ``group_rows``."""
    codes = np.zeros(rows, np.int64)
    first = np.zeros(min(rows, 1), np.int64)
    for word in words:
        if _is_determined(word, codes, first):
            continue
        column_codes, distinct = _number(word)
        if len(first) > 1:
            column_codes, distinct = _number(codes * distinct + column_codes)
        codes, first = column_codes, _first_rows(column_codes, distinct)
    return codes, first


def _is_determined(word: Words, codes: Words, first: Words) -> bool:
    """Return True if the current groups determine this word: a constant, or a window's end after its start."""
    if len(first) <= 1:
        return not len(word) or bool(word.min() == word.max())
    expected = word[first]
    return all(np.array_equal(expected[codes[rows]], word[rows]) for rows in (slice(_SAMPLE), slice(_SAMPLE, None)))


def _first_rows(codes: Words, count: int) -> Words:
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last assignment to an index wins: the first row
    return first


def _number(word: Words) -> tuple[Words, int]:
    """Return the code of each value, and the number of distinct values."""
    if len(word):
        low = int(word.min())
        span = int(word.max()) - low + 1
        if span <= _DENSE * len(word):
            return _number_dense(word - low if low else word, span)
    encoded = pa.array(word).dictionary_encode()
    codes = fixed_values(encoded.indices)
    assert codes is not None
    return codes.astype(np.int64), len(encoded.dictionary)


def _number_dense(offsets: Words, span: int) -> tuple[Words, int]:
    """Assign numbers by a table over the range of values. For ids and codes this is many times as fast as hashing."""
    seen = np.zeros(span, np.bool_)
    seen[offsets] = True
    numbers = np.cumsum(seen)
    codes: Words = (numbers - 1)[offsets]
    return codes, int(numbers[-1])


def _batch_words(array: pa.Array) -> Iterator[Words]:
    """Yield words that distinguish the rows of one batch. A word for nulls is present only if there are nulls."""
    valid = validity(array) if array.null_count else None
    if valid is not None:
        yield valid.astype(np.int64)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _batch_words(child)
    elif pa.types.is_list(array.type):
        numbers = _list_codes(array)
        yield numbers if valid is None else np.where(valid, numbers, 0)
    elif storage_dtype(array.type) is None and not pa.types.is_decimal128(array.type):
        codes = fixed_values(array.dictionary_encode().indices)
        assert codes is not None
        yield codes.astype(np.int64) if valid is None else np.where(valid, codes, 0)
    else:
        for word in fixed_words(array):
            yield word if valid is None else np.where(valid, word, 0)


def _list_codes(array: pa.Array) -> Words:
    """Assign numbers to lists, based on numbers of their elements. Equal lists get equal numbers."""
    elements = array.flatten()
    numbers, _ = group_rows([elements], len(elements))
    data = pa.py_buffer(np.ascontiguousarray(numbers, np.int64))
    ends = pa.py_buffer(_list_ends(array) * 8)
    rows = pa.Array.from_buffers(pa.large_binary(), len(array), [None, ends, data])
    codes = fixed_values(rows.dictionary_encode().indices)
    assert codes is not None
    return codes.astype(np.int64)


def fixed_words(array: pa.Array) -> list[Words]:
    """Return the words of a fixed-width or decimal array; arbitrary for null rows."""
    if pa.types.is_decimal128(array.type):
        low, high = decimal_words(array)
        return [low.view(np.int64), high]
    values = fixed_values(array)
    assert values is not None
    if values.dtype.kind == "f":
        values = values.view(np.dtype(f"int{values.dtype.itemsize * 8}"))
    return [values.astype(np.int64, copy=False)]
