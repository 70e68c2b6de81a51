"""Strings and binaries as 64-bit words, which are hashed, compared and copied in batches, without Python objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from penstock.state.arrays import from_validity, validity
from penstock.state.growable_array import GrowableArray

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
HASHED_ALONE = 256
"""Texts of at least this many bytes are hashed one by one by the xxhash library. Hashing all texts together takes one
pass per 32 bytes, which would take a second for one text of a megabyte."""


def is_text(kind: pa.DataType) -> bool:
    """Return True for types whose values are bytes of varying length."""
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


@dataclass(frozen=True)
class Texts:
    """Texts: strings or binaries. Text i is ``lengths[i]`` bytes in the words from ``starts[i]``, padded with zeros."""

    lengths: Ints
    starts: Ints
    words: U64

    @classmethod
    def of(cls, array: pa.Array) -> Texts:
        """Create the texts of a string or binary array. Nulls become empty."""
        offsets, data = _buffers(array)
        lengths = np.diff(offsets)
        if array.null_count:
            lengths = np.where(validity(array), lengths, 0)
        counts = _word_counts(lengths)
        ends = np.cumsum(counts)
        starts = ends - counts
        padded = np.empty(len(data) + 8, np.uint8)
        padded[: len(data)] = data
        anywhere: U64 = np.ndarray((len(data) + 1,), np.uint64, buffer=padded, strides=(1,))
        words = anywhere[ragged(offsets[:-1], counts, 8)]
        rest = lengths & 7
        cut = np.flatnonzero(rest)
        words[ends[cut] - 1] &= (np.uint64(1) << (8 * rest[cut]).astype(np.uint64)) - np.uint64(1)
        return cls(lengths, starts, words)

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: Ints) -> Texts:
        """Copy some of the texts."""
        lengths = self.lengths[rows].astype(np.int64, copy=False)
        counts = _word_counts(lengths)
        words = self.words.take(ragged(self.starts[rows], counts), mode="clip")
        return Texts(lengths, np.cumsum(counts) - counts, words)

    def to_arrow(self, valid: Mask | None, kind: pa.DataType) -> pa.Array:
        """Convert to an array of a string or binary type. The words must be exactly those of the texts, in order."""
        rest = self.lengths & 7
        cut = np.flatnonzero(rest)
        data = self.words.view(np.uint8)
        if len(cut):
            kept = np.ones((len(self.words), 8), np.bool_)
            last = self.starts[cut] + (self.lengths[cut] >> 3)
            kept[last] = np.arange(8) < rest[cut, np.newaxis]
            data = data[kept.ravel()]
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        offsets = np.zeros(len(self) + 1, np.int64 if large else np.int32)
        np.cumsum(self.lengths, out=offsets[1:])
        bitmap, nulls = from_validity(valid)
        return pa.Array.from_buffers(kind, len(self), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)], nulls)

    def differ(self, own: Ints, other: Texts, others: Ints) -> Mask:
        """Return True where the bytes of text ``own[i]`` differ from those of text ``others[i]`` of ``other``."""
        lengths = self.lengths[own]
        wrong: Mask = lengths != other.lengths[others]
        same = np.flatnonzero(~wrong)
        counts = _word_counts(lengths[same].astype(np.int64, copy=False))
        mine = self.words[ragged(self.starts[own[same]], counts)]
        unlike = mine != other.words[ragged(other.starts[others[same]], counts)]
        if unlike.any():
            wrong[np.repeat(same, counts)[unlike]] = True
        return wrong

    def hashes(self, seeds: U64) -> U64:
        """Return the XXH64 of each text with a seed per row (specification: https://github.com/Cyan4973/xxHash)."""
        lengths, words, starts = self.lengths.astype(np.uint64), self.words, self.starts
        hashes = seeds + _P5
        alone = np.flatnonzero(self.lengths >= HASHED_ALONE)
        long = np.flatnonzero((self.lengths >= 32) & (self.lengths < HASHED_ALONE))
        if len(long):
            hashes[long] = _stripes(self, long, seeds[long])
        hashes += lengths
        done = self.lengths >> 5 << 2
        full = self.lengths >> 3
        for step in range(3):
            rows = np.flatnonzero(done + step < full)
            if not len(rows):
                break
            mixed = hashes[rows] ^ _round(np.uint64(0), words[starts[rows] + done[rows] + step])
            hashes[rows] = _rotate(mixed, 27) * _P1 + _P4
        rows = np.flatnonzero(self.lengths & 4)
        if len(rows):
            half = words[starts[rows] + full[rows]] & np.uint64(0xFFFFFFFF)
            hashes[rows] = _rotate(hashes[rows] ^ (half * _P1), 23) * _P2 + _P3
        for step in range(3):
            rows = np.flatnonzero((self.lengths & 3) > step)
            if not len(rows):
                break
            shift = (((self.lengths[rows] & 4) + step) << 3).astype(np.uint64)
            byte = words[starts[rows] + full[rows]] >> shift & np.uint64(0xFF)
            hashes[rows] = _rotate(hashes[rows] ^ (byte * _P5), 11) * _P1
        hashes ^= hashes >> np.uint64(33)
        hashes *= _P2
        hashes ^= hashes >> np.uint64(29)
        hashes *= _P3
        hashes ^= hashes >> np.uint64(32)
        for row in alone.tolist():
            data = words[starts[row] : starts[row] + full[row] + 1].tobytes()[: self.lengths[row]]
            hashes[row] = xxhash.xxh64_intdigest(data, int(seeds[row]))
        return hashes


def _stripes(texts: Texts, long: Ints, seeds: U64) -> U64:
    """Hash all complete stripes of 32 bytes. Each text must have at least one."""
    # Texts are sorted by descending length, so that those with remaining stripes are always at the front.
    order = np.argsort(-texts.lengths[long], kind="stable")
    starts, stripes = texts.starts[long[order]], texts.lengths[long[order]] >> 5
    seeds = seeds[order]
    accumulators = [seeds + _P1 + _P2, seeds + _P2, seeds.copy(), seeds - _P1]
    active = len(long)
    for stripe in range(int(stripes[0])):
        while stripes[active - 1] <= stripe:
            active = int(np.searchsorted(-stripes, -stripe, "left"))
        for number, accumulator in enumerate(accumulators):
            accumulator[:active] = _round(accumulator[:active], texts.words[starts[:active] + 4 * stripe + number])
    merged = (
        _rotate(accumulators[0], 1)
        + _rotate(accumulators[1], 7)
        + _rotate(accumulators[2], 12)
        + _rotate(accumulators[3], 18)
    )
    for accumulator in accumulators:
        merged = (merged ^ _round(np.uint64(0), accumulator)) * _P1 + _P4
    hashes = np.empty_like(merged)
    hashes[order] = merged
    return hashes


def _round(accumulator: U64 | np.uint64, word: U64) -> U64:
    mixed: U64 = _rotate(accumulator + word * _P2, 31) * _P1
    return mixed


def _rotate(words: U64, bits: int) -> U64:
    return words << np.uint64(bits) | words >> np.uint64(64 - bits)


def _word_counts(lengths: Ints) -> Ints:
    counts: Ints = (lengths + 7) >> 3
    return counts


def ragged(starts: Ints, counts: Ints, stride: int = 1) -> Ints:
    """Concatenate the ranges ``starts[i], starts[i] + stride, ...`` with ``counts[i]`` numbers each."""
    if not len(counts):
        return np.zeros(0, np.int64)
    each = int(counts[0])
    if (counts == each).all():
        return (starts[:, np.newaxis] + stride * np.arange(each)).ravel()
    ends = np.cumsum(counts)
    positions = np.arange(int(ends[-1]))
    positions *= stride
    positions += np.repeat(starts - stride * (ends - counts), counts)
    return positions


def _buffers(array: pa.Array) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the offsets of the values, starting with 0, and the bytes."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), np.zeros(0, np.uint8)
    dtype: Any = np.int64 if large else np.int32
    found = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * np.dtype(dtype).itemsize).astype(np.int64)
    first, last = int(found[0]), int(found[-1])
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8, last - first, first)
    return found - first, bytes_


class TextStore:
    """Texts of one key column by row number.

    A new text reuses the space of a removed text with the same number of words. The space for texts of one length
    therefore never exceeds the maximum that they needed at one time.
    """

    def __init__(self) -> None:
        self._lengths = GrowableArray(np.int32)
        self._starts = GrowableArray(np.int64)
        self._hashes = GrowableArray(np.uint64)
        self._words = GrowableArray(np.uint64)
        self._used = 0
        self._free: dict[int, list[Ints]] = {}

    def nbytes(self, rows: int) -> int:
        """Return the bytes of memory that this number of rows uses."""
        return 20 * rows + 8 * self._used

    def reserve(self, rows: int, texts: Texts) -> None:
        """Make room for ``rows`` rows in total, and for these texts."""
        for pages in (self._lengths, self._starts, self._hashes):
            pages.reserve(rows)
        self._words.reserve(self._used + len(texts.words))

    def put(self, rows: Ints, texts: Texts, hashes: U64) -> None:
        """Write the texts of new rows; call ``reserve`` before."""
        counts = _word_counts(texts.lengths)
        starts = self._allocate(counts)
        self._words.data[ragged(starts, counts)] = texts.words
        self._lengths.data[rows] = texts.lengths
        self._starts.data[rows] = starts
        self._hashes.data[rows] = hashes

    def free(self, rows: Ints) -> None:
        """Free the space of removed rows."""
        counts, starts = _word_counts(self._lengths.data[rows].astype(np.int64)), self._starts.data[rows]
        for count in np.unique(counts).tolist():
            if count:
                self._free.setdefault(count, []).append(starts[counts == count])

    def hashes(self, rows: Ints) -> U64:
        found: U64 = self._hashes.data[rows]
        return found

    def take(self, rows: Ints) -> Texts:
        """Copy the texts of rows; arbitrary for rows that another thread is writing."""
        return self._all().take(rows)

    def differ(self, rows: Ints, texts: Texts, hashes: U64, others: Ints) -> Mask:
        """Return True where the text of ``rows[i]`` differs from text ``others[i]`` of ``texts``."""
        wrong: Mask = self._hashes.data[rows] != hashes[others]
        alike = np.flatnonzero(~wrong)
        wrong[alike] = self._all().differ(rows[alike], texts, others[alike])
        return wrong

    def _all(self) -> Texts:
        return Texts(self._lengths.data, self._starts.data, self._words.data)

    def _allocate(self, counts: Ints) -> Ints:
        """Allocate space for texts of these word counts: freed space first, then new space at the end."""
        starts = np.empty(len(counts), np.int64)
        fresh = np.ones(len(counts), np.bool_)
        if self._free:
            for count in np.unique(counts).tolist():
                wanting = np.flatnonzero(counts == count)
                found = self._freed(count, len(wanting))
                starts[wanting[: len(found)]] = found
                fresh[wanting[: len(found)]] = False
        ends = np.cumsum(counts[fresh]) + self._used
        starts[fresh] = ends - counts[fresh]
        self._used = int(ends[-1]) if len(ends) else self._used
        return starts

    def _freed(self, count: int, limit: int) -> Ints:
        """Return the starts of up to ``limit`` free spaces of ``count`` words."""
        lists, found, missing = self._free.get(count, []), [np.zeros(0, np.int64)], limit
        while lists and missing:
            last = lists.pop()
            if len(last) > missing:
                lists.append(last[missing:])
            found.append(last[:missing])
            missing -= len(found[-1])
        if not lists:
            self._free.pop(count, None)
        return np.concatenate(found)
