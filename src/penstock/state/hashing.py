"""Hash function of key groups: Spark's ``xxhash64`` of the key columns with seed 42, modulo ``max_parallelism``.

Spark chains hashes: the hash of column k is the seed for column k + 1, a null does not change the seed, and the parts
of structs and arrays are hashed in order (``HashExpression`` and ``XXH64`` in Catalyst). -0.0 has the hash of 0.0, and
all NaNs have the same hash. A Spark job can therefore compute a key group in SQL: ``pmod(xxhash64(cols), 128)``. Tests
check the values, because a change would make every stored snapshot unusable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from penstock.errors import NotSupported
from penstock.state.arrays import decimal_ints, decimal_words, fixed_values, validity
from penstock.state.texts import Texts, is_text

SEED = 42

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
LONG_DECIMAL_PRECISION = 18
"""Largest precision of decimals that Catalyst hashes as unscaled longs. It hashes others as bytes of big integers."""

FEW_LISTS = 32
"""Number of longest lists whose remaining elements are hashed list by list. Hashing all lists together takes one pass
per element position, which would take half a minute for one list of a million values."""

U64 = npt.NDArray[np.uint64]
Words = npt.NDArray[Any]
"""Hashes of any width."""


@dataclass(frozen=True)
class HashFunction:
    """One of Spark's hash functions.

    Attributes:
        leaf: hashes an array of values that are not nested, with one seed per row; null rows keep their seeds.
        value: hashes one value, as bytes (see ``_values``), with one seed.
    """

    leaf: Callable[[pa.Array, Words], Words]
    value: Callable[[bytes, int], int]


def key_groups(batch: pa.RecordBatch, columns: Sequence[int], max_parallelism: int) -> npt.NDArray[np.int16]:
    """Return the key group of each row: ``pmod(xxhash64(columns), max_parallelism)``.

    Args:
        batch: any batch.
        columns: positions of the key columns, in key order. Without columns every row hashes to the seed.
        max_parallelism: the number of key groups, at most 32,767.

    Returns:
        One int16 in ``[0, max_parallelism)`` per row.
    """
    return groups_of([batch.column(position) for position in columns], batch.num_rows, max_parallelism)


def groups_of(columns: Sequence[pa.Array], rows: int, max_parallelism: int) -> npt.NDArray[np.int16]:
    """Return the key groups for columns of length ``rows``, see ``key_groups``."""
    hashes = hash_columns(columns, rows)
    if max_parallelism & (max_parallelism - 1) == 0:  # as for the default of 128: a mask is five times as fast as pmod
        return (hashes & np.int64(max_parallelism - 1)).astype(np.int16)
    return np.mod(hashes, np.int64(max_parallelism)).astype(np.int16)


def hash_columns(columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.int64]:
    """Return Spark's ``xxhash64(columns...)`` of each row, as signed longs."""
    hashes: U64 = np.full(rows, SEED, np.uint64)
    for column in columns:
        hashes = chain_hash(column, hashes)
    return hashes.view(np.int64)


def chain_hash(array: pa.Array, seeds: Words) -> Words:
    """Return the hashes of one column with one seed per row. Null rows keep their seeds. Maps are not supported."""
    return chain_hash_with(array, seeds, XXHASH64)


def chain_hash_with(array: pa.Array, seeds: Words, function: HashFunction) -> Words:
    """Return the hashes of one column like ``chain_hash``, with any of Spark's hash functions."""
    kind = array.type
    if pa.types.is_null(kind) or len(array) == 0:
        return seeds
    if pa.types.is_struct(kind):
        for child in array.flatten():  # flatten, unlike field(), gives the children of a null struct as null
            seeds = chain_hash_with(child, seeds, function)
        return seeds
    if pa.types.is_list(kind):
        return _chained_lists(array, seeds, function)
    if pa.types.is_dictionary(kind):
        return chain_hash_with(array.cast(kind.value_type), seeds, function)
    return function.leaf(array, seeds)


def _hash_leaf(array: pa.Array, seeds: U64) -> U64:
    kind = array.type
    if is_text(kind):
        hashes = Texts.of(array).hashes(seeds)
    elif pa.types.is_decimal(kind):
        if kind.precision > LONG_DECIMAL_PRECISION:
            hashes = _hash_distinct(array, seeds)
        else:
            hashes = _hash_long(decimal_words(array)[0], seeds)
    else:
        hashes = _hash_fixed(array, seeds)
    return hashes if array.null_count == 0 else np.where(validity(array), hashes, seeds)


def _chained_lists(array: pa.Array, seeds: Words, function: HashFunction) -> Words:
    """Hash lists: the first elements in one pass per position for all rows, the rest of few long lists row by row."""
    lengths = np.where(validity(array), np.diff(np.asarray(array.offsets)), 0)
    starts = np.cumsum(lengths) - lengths
    elements, hashes = array.flatten(), seeds.copy()
    shared = int(lengths.max())
    if not pa.types.is_nested(elements.type) and not pa.types.is_dictionary(elements.type):
        shared = int(np.sort(lengths)[-FEW_LISTS - 1]) if len(lengths) > FEW_LISTS else 0
    for position in range(shared):
        rows = np.flatnonzero(lengths > position)
        hashes[rows] = chain_hash_with(elements.take(pa.array(starts[rows] + position)), hashes[rows], function)
    for row in np.flatnonzero(lengths > shared).tolist():
        hashed = int(hashes[row])
        for value in _values(elements.slice(starts[row] + shared, lengths[row] - shared)):
            hashed = function.value(value, hashed)
        hashes[row] = hashed
    return hashes


def _values(array: pa.Array) -> Iterator[bytes]:
    """Yield the bytes that Spark's hash functions read for each value (numbers little-endian). Nulls are skipped."""
    array, kind = array.drop_null(), array.type
    if is_text(kind):
        yield from (value.as_buffer().to_pybytes() for value in array)
        return
    if pa.types.is_decimal(kind) and kind.precision > LONG_DECIMAL_PRECISION:
        yield from (big_integer_bytes(int(unscaled)) for unscaled in decimal_ints(array))
        return
    words = decimal_words(array)[0] if pa.types.is_decimal(kind) else _fixed_words(array)
    data, width = words.tobytes(), words.dtype.itemsize
    yield from (data[start : start + width] for start in range(0, len(data), width))


def _hash_fixed(array: pa.Array, seeds: U64) -> U64:
    words = _fixed_words(array)
    return _hash_long(words, seeds) if words.dtype.itemsize == 8 else _hash_int(words.astype(np.uint64), seeds)


def _fixed_words(array: pa.Array) -> Words:
    """Return fixed-width values as Spark hashes them: 64-bit words, or 32-bit words for shorter types."""
    values = fixed_values(array)
    if values is None:
        raise NotSupported(f"a key of type {array.type} cannot be hashed to a key group; Spark's maps cannot either")
    if values.dtype.kind == "f":
        # Adding 0.0 turns -0.0 into 0.0; every NaN becomes Java's canonical one, as floatToIntBits does.
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
        values = values.view(np.int32 if values.dtype.itemsize == 4 else np.int64)
    if values.dtype.itemsize == 8:
        return values.view(np.uint64)
    # Shorter numbers hash as the 32 bits of their sign-extended int, read without sign.
    return values.astype(np.int32).view(np.uint32)


def _hash_int(words: U64, seeds: U64) -> U64:
    hashes = seeds + (_P5 + np.uint64(4))
    hashes ^= words * _P1
    return _avalanche(_rotate(hashes, 23) * _P2 + _P3)


def _hash_long(words: U64, seeds: U64) -> U64:
    hashes = seeds + (_P5 + np.uint64(8))
    mixed = _rotate(words * _P2, 31)
    mixed *= _P1
    hashes ^= mixed
    hashes = _rotate(hashes, 27)
    hashes *= _P1
    hashes += _P4
    return _avalanche(hashes)


def _rotate(words: U64, bits: int) -> U64:
    rotated = words << np.uint64(bits)
    rotated |= words >> np.uint64(64 - bits)
    return rotated


def _avalanche(hashes: U64) -> U64:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _hash_distinct(array: pa.Array, seeds: U64) -> U64:
    """Hash long decimals with the xxhash library, once per distinct pair of seed and value."""
    encoded = array.dictionary_encode()
    codes = fixed_values(encoded.indices)
    assert codes is not None
    values = [big_integer_bytes(int(unscaled)) for unscaled in decimal_ints(encoded.dictionary)]
    if not values:  # all null: the caller keeps every seed
        return seeds
    distinct_seeds, seed_codes = np.unique(seeds, return_inverse=True)
    pairs = seed_codes.reshape(-1).astype(np.int64) * len(values) + codes
    distinct_pairs, pair_of_row = np.unique(pairs, return_inverse=True)
    seed_of_pair = distinct_seeds[distinct_pairs // len(values)].tolist()
    value_of_pair = (distinct_pairs % len(values)).tolist()
    digest = xxhash.xxh64_intdigest
    hashes = [digest(values[code], seed) for code, seed in zip(value_of_pair, seed_of_pair, strict=True)]
    return np.array(hashes, np.uint64)[pair_of_row.reshape(-1)]


def big_integer_bytes(value: int) -> bytes:
    """Encode like Java's ``BigInteger.toByteArray``: big-endian two's complement of minimal length."""
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


XXHASH64 = HashFunction(_hash_leaf, xxhash.xxh64_intdigest)
