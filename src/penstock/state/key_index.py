"""Immutable index of keys, which looks up the keys of a batch of rows.

Keys are equal as in Spark's joins: NaN equals NaN, and -0.0 equals 0.0. A null equals nothing, except that it equals
null in null-safe columns and inside structs. Lookups do not change the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.arrays import fixed_values, storage_dtype, validity
from penstock.state.keys import Words, fixed_words, normalize_floats

UNKNOWN = -1
"""Number of a key that is not in the index."""

_DENSE = 4
"""Integers are looked up in a table if their range is at most this many times their number."""


def is_indexable(kind: pa.DataType) -> bool:
    """Return True if keys of this type can be looked up: all types except arrays and maps."""
    if pa.types.is_struct(kind):
        return all(is_indexable(field.type) for field in kind)
    return _is_text(kind) or pa.types.is_decimal128(kind) or storage_dtype(kind) is not None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class KeyIndex:
    """Index of the distinct keys of some rows, numbered from 0.

    Args:
        columns: the key columns, of types that are ``is_indexable``. Without columns all rows have the same key.
        rows: number of rows.
        null_safe: by column True if a null equals null.

    Attributes:
        codes: number of each row's key; ``UNKNOWN`` for a key with a null that equals nothing.
        count: number of distinct keys.
    """

    def __init__(self, columns: Sequence[pa.Array], rows: int, null_safe: Sequence[bool]) -> None:
        self._null_safe = tuple(null_safe)
        self._texts: list[dict[str | bytes, int]] = []
        self._levels: list[tuple[_Numbers, _Numbers | None]] = []
        kept = self._comparable(columns, rows)
        codes = np.zeros(int(np.count_nonzero(kept)), np.int64)
        self.count = min(len(codes), 1)
        for word in self._words(columns, self._learn):
            codes = self._add_level(codes, word[kept])
        self.codes = np.full(rows, UNKNOWN, np.int64)
        self.codes[kept] = codes

    def find(self, columns: Sequence[pa.Array], rows: int) -> Words:
        """Return the number of each row's key; ``UNKNOWN`` for keys that are not in the index."""
        codes = np.full(rows, 0 if self.count else UNKNOWN, np.int64)
        texts = iter(self._texts)
        words = self._words(columns, lambda array: _encode(array, next(texts).get))
        for (own, combined), word in zip(self._levels, words, strict=True):
            found = own.find(word)
            if combined is None:
                codes = found
            else:
                known = (codes >= 0) & (found >= 0)
                codes = combined.find(np.where(known, codes * own.count + found, UNKNOWN))
        return np.where(self._comparable(columns, rows), codes, UNKNOWN)

    def _add_level(self, codes: Words, word: Words) -> Words:
        """Extend the keys by a word: assign numbers to the pairs of a prefix's number and the word's number."""
        own = _Numbers(word)
        if not self._levels:
            self._levels.append((own, None))
            self.count = own.count
            return own.find(word)
        pairs = codes * own.count + own.find(word)
        combined = _Numbers(pairs)
        self._levels.append((own, combined))
        self.count = combined.count
        return combined.find(pairs)

    def _comparable(self, columns: Sequence[pa.Array], rows: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys that can equal another key: they have nulls only in null-safe columns."""
        kept = np.ones(rows, np.bool_)
        for column, safe in zip(columns, self._null_safe, strict=True):
            if column.null_count and not safe:
                kept &= validity(column)
        return kept

    def _words(self, columns: Sequence[pa.Array], encode: Callable[[pa.Array], Words]) -> Iterator[Words]:
        for column, safe in zip(columns, self._null_safe, strict=True):
            yield from _column_words(column, safe, encode)

    def _learn(self, array: pa.Array) -> Words:
        known: dict[str | bytes, int] = {}
        self._texts.append(known)
        return _encode(array, lambda value, _: known.setdefault(value, len(known)))


def _column_words(array: pa.Array, flagged: bool, encode: Callable[[pa.Array], Words]) -> Iterator[Words]:
    """Yield the words of a column. Their number depends on the type alone. ``flagged``: add a word for nulls."""
    valid = validity(array) if array.null_count else None
    if flagged:
        yield np.zeros(len(array), np.int64) if valid is None else (~valid).astype(np.int64)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _column_words(child, True, encode)
        return
    for word in [encode(array)] if _is_text(array.type) else fixed_words(normalize_floats(array)):
        yield word if valid is None else np.where(valid, word, 0)


def _encode(array: pa.Array, number: Callable[[str | bytes, int], int]) -> Words:
    """Return the number of each row's text; arbitrary for nulls. ``number`` is called once per distinct text."""
    encoded = array.dictionary_encode()
    numbers = np.array([number(value, UNKNOWN) for value in encoded.dictionary.to_pylist()], np.int64)
    codes = fixed_values(encoded.indices)
    assert codes is not None
    if not len(numbers):
        return np.full(len(array), UNKNOWN, np.int64)
    chosen: Words = numbers[np.where(validity(array), codes, 0) if array.null_count else codes]
    return chosen


class _Numbers:
    """Distinct words, numbered in ascending order. A table finds words of a dense range, bisection finds others."""

    def __init__(self, words: Words) -> None:
        self._sorted = np.unique(words)
        self.count = len(self._sorted)
        self._low, self._high = (int(self._sorted[0]), int(self._sorted[-1])) if self.count else (0, -1)
        self._table: Words | None = None
        span = self._high - self._low + 1
        if self.count and span <= _DENSE * self.count:
            self._table = np.full(span, UNKNOWN, np.int64)
            self._table[self._sorted - self._low] = np.arange(self.count)

    def find(self, words: Words) -> Words:
        """Return the number of each word, or ``UNKNOWN``."""
        if not self.count:
            return np.full(len(words), UNKNOWN, np.int64)
        if self._table is not None:
            inside = (words >= self._low) & (words <= self._high)
            return np.where(inside, self._table[np.where(inside, words - self._low, 0)], UNKNOWN)
        positions = np.minimum(np.searchsorted(self._sorted, words), self.count - 1)
        return np.where(self._sorted[positions] == words, positions, UNKNOWN)
