"""Spark's ``hash``: Murmur3 (x86, 32 bits). As in ``Murmur3_x86_32``, the tail of a text is mixed byte by byte."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.functions.core.vectors import Vector, valid_rows
from penstock.state.arrays import decimal_ints, decimal_words, fixed_values
from penstock.state.hashing import LONG_DECIMAL_PRECISION, HashFunction, big_integer_bytes

U32 = npt.NDArray[np.uint32]

_WORD_BYTES = 4
_FEW_TEXTS = 32
"""If at most so many texts are longer than all others, their remaining words are hashed text by text: NumPy takes
longer per word."""
_U32 = 0xFFFFFFFF
_AT_ONCE = 1 << 18
"""Number of bytes of a long text whose words are converted to Python integers in one step."""


def hash_leaf(array: pa.Array, seeds: U32) -> U32:
    """Chain an array of any atomic type onto ``seeds``. Null rows keep their seed."""
    kind = array.type
    if pa.types.is_decimal(kind):
        if kind.precision > LONG_DECIMAL_PRECISION:
            texts = [None if v is None else big_integer_bytes(int(v)) for v in _unscaled(array)]
            hashes = _hash_texts(pa.array(texts, pa.binary()), seeds)
        else:
            hashes = _hash_long(decimal_words(array)[0].view(np.int64), seeds)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _hash_texts(array, seeds)
    else:
        hashes = _hash_fixed(array, seeds)
    valid = valid_rows(array)
    return hashes if valid is None else np.where(valid, hashes, seeds)


def _unscaled(array: pa.Array) -> list[int | None]:
    return [int(v) if ok else None for v, ok in zip(decimal_ints(array), array.is_valid().to_pylist(), strict=True)]


def _hash_fixed(array: pa.Array, seeds: U32) -> U32:
    values = fixed_values(array)
    assert values is not None, array.type
    if values.dtype.kind == "f":
        plain = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
        values = plain.view(np.int32 if plain.dtype.itemsize == _WORD_BYTES else np.int64)
    if values.dtype.itemsize == 2 * _WORD_BYTES:
        return _hash_long(values.view(np.int64), seeds)
    return _final(_mix(seeds, values.astype(np.int32).view(np.uint32)), np.uint32(_WORD_BYTES))


def _hash_long(values: npt.NDArray[np.int64], seeds: U32) -> U32:
    words = values.view(np.uint64)
    low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
    return _final(_mix(_mix(seeds, low), high), np.uint32(2 * _WORD_BYTES))


def _hash_texts(array: pa.Array, seeds: U32) -> U32:
    """Hash word by word, over all texts at once.

    The texts are sorted by length, longest first, so that the texts that still have words are a prefix.
    """
    if array.null_count:
        array = array.fill_null("" if pa.types.is_string(array.type) else b"")
    _, offset_bytes, data_bytes = array.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32, len(array) + 1 + array.offset)[array.offset :].astype(np.int64)
    data = np.frombuffer(data_bytes or b"", np.uint8)
    sizes = np.diff(offsets)
    order = np.argsort(-sizes, kind="stable")
    starts, lengths, hashes = offsets[:-1][order], sizes[order], seeds[order]
    words = lengths // _WORD_BYTES
    shared = int(words[_FEW_TEXTS]) if len(words) > _FEW_TEXTS else 0
    for word in range(shared):
        active = int(np.searchsorted(-words, -word))
        hashes[:active] = _mix(hashes[:active], _word_at(data, starts[:active] + word * _WORD_BYTES))
    for row in range(int(np.searchsorted(-words, -shared))):
        left = data[starts[row] + shared * _WORD_BYTES : starts[row] + words[row] * _WORD_BYTES]
        hashes[row] = _mix_words(left, int(hashes[row]))
    for index in range(_WORD_BYTES - 1):
        rows = np.flatnonzero(lengths % _WORD_BYTES > index)
        tail = data[starts[rows] + words[rows] * _WORD_BYTES + index]
        hashes[rows] = _mix(hashes[rows], tail.view(np.int8).astype(np.int32).view(np.uint32))
    out = np.empty_like(hashes)
    out[order] = _final(hashes, lengths.astype(np.uint32))
    return out


def hash_value(value: bytes, seed: int) -> int:
    """Chain the bytes of one value onto one seed."""
    whole = len(value) // _WORD_BYTES * _WORD_BYTES
    tail = struct.pack(f"<{len(value) - whole}i", *struct.unpack(f"{len(value) - whole}b", value[whole:]))
    hashed = _mix_words(np.frombuffer(value[:whole] + tail, np.uint8), seed) ^ len(value)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _U32
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _U32
    return hashed ^ hashed >> 16


def _mix_words(data: npt.NDArray[np.uint8], hashed: int) -> int:
    """Mix words into one hash. Only the steps that depend on previous words are computed word by word."""
    for start in range(0, len(data), _AT_ONCE):
        words = np.frombuffer(data[start : start + _AT_ONCE].tobytes(), "<u4")
        for mixed in _mixed(words).tolist():
            hashed ^= mixed
            hashed = ((hashed << 13 | hashed >> 19) & _U32) * 5 + 0xE6546B64 & _U32
    return hashed


def _word_at(data: npt.NDArray[np.uint8], offsets: Vector) -> U32:
    """Return the little-endian words of four bytes at these offsets."""
    word = np.zeros(len(offsets), np.uint32)
    for index in range(_WORD_BYTES):
        word |= data[offsets + index].astype(np.uint32) << np.uint32(8 * index)
    return word


def _rotated(values: U32, bits: int) -> U32:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


def _mix(hashes: U32, words: U32) -> U32:
    return _rotated(hashes ^ _mixed(words), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _mixed(words: U32) -> U32:
    return _rotated(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _final(hashes: U32, lengths: U32 | np.uint32) -> U32:
    hashes = hashes ^ lengths
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


MURMUR3 = HashFunction(hash_leaf, hash_value)
