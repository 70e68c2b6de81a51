"""Keys as machine words: what makes grouping and lookup exact and vectorised for every key type.

Every key row becomes a fixed number of int64 words: the value itself for fixed-width types, two halves for long
decimals, the number of an interned value for strings and binaries, and in front one word of null flags. Equal words
mean equal keys in Spark's sense: null equals null, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import NotSupported
from penstock.state.arrays import (
    decimal_words,
    fixed_values,
    from_decimal_words,
    from_fixed,
    storage_dtype,
    validity,
)

Words = npt.NDArray[np.int64]

_MAX_NODES = 63
"""Columns and struct fields of one key: each takes a bit of the flags word."""

_SAMPLE = 256
"""So many rows tell almost always that a column does not follow from others."""

_DENSE = 4
"""Integers whose range is at most this many times their number are numbered by a table."""


def normalize_floats(array: pa.Array) -> pa.Array:
    """The array with -0.0 as 0.0 and every NaN as the canonical one, inside structs as well (Spark's grouping rule)."""
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
    return array


def group_rows(columns: Sequence[pa.Array], rows: int) -> tuple[Words, Words]:
    """Number the distinct keys of a batch, in an order that depends on the rows alone.

    Args:
        columns: key columns with floats normalised.
        rows: their length (there may be no columns: then all rows are one group).

    Returns:
        The group of every row, and the first row of every group.
    """
    return number_distinct([words for column in columns for words in _batch_words(column)], rows)


def number_distinct(words: Sequence[Words], rows: int) -> tuple[Words, Words]:
    """As ``group_rows``, for keys given as words."""
    codes = np.zeros(rows, np.int64)
    first = np.zeros(min(rows, 1), np.int64)
    for word in words:
        if _follows(word, codes, first):
            continue
        column_codes, distinct = _number(word)
        if len(first) > 1:
            column_codes, distinct = _number(codes * distinct + column_codes)
        codes, first = column_codes, _first_rows(column_codes, distinct)
    return codes, first


def _follows(word: Words, codes: Words, first: Words) -> bool:
    """Whether the groups so far tell this word, too: it is constant, say, or a window's end, which its start tells."""
    if len(first) <= 1:
        return not len(word) or bool(word.min() == word.max())
    told = word[first]
    return all(np.array_equal(told[codes[rows]], word[rows]) for rows in (slice(_SAMPLE), slice(_SAMPLE, None)))


def _first_rows(codes: Words, count: int) -> Words:
    first = np.empty(count, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of equal indices the last stays: the first row
    return first


def _number(word: Words) -> tuple[Words, int]:
    """Codes of the distinct values, and how many there are."""
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
    """By a table over the whole range, which for ids and codes is many times as quick as hashing them."""
    seen = np.zeros(span, np.bool_)
    seen[offsets] = True
    numbers = np.cumsum(seen)
    codes: Words = (numbers - 1)[offsets]
    return codes, int(numbers[-1])


def _batch_words(array: pa.Array) -> Iterator[Words]:
    """Words that tell the rows of one batch apart; null flags only where there are nulls."""
    valid = validity(array) if array.null_count else None
    if valid is not None:
        yield valid.astype(np.int64)
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _batch_words(child)
    elif storage_dtype(array.type) is None and not pa.types.is_decimal128(array.type):
        codes = fixed_values(array.dictionary_encode().indices)
        assert codes is not None
        yield codes.astype(np.int64) if valid is None else np.where(valid, codes, 0)
    else:
        for word in fixed_words(array):
            yield word if valid is None else np.where(valid, word, 0)


def fixed_words(array: pa.Array) -> list[Words]:
    """The words of a fixed-width or decimal array; arbitrary at null rows."""
    if pa.types.is_decimal128(array.type):
        low, high = decimal_words(array)
        return [low.view(np.int64), high]
    values = fixed_values(array)
    assert values is not None
    if values.dtype.kind == "f":
        values = values.view(np.dtype(f"int{values.dtype.itemsize * 8}"))
    return [values.astype(np.int64, copy=False)]


class Interner:
    """Numbers distinct strings or binaries. ``values`` only grows: what a number means never changes."""

    def __init__(self) -> None:
        self.values: list[str | bytes] = []
        self._numbers: dict[str | bytes, int] = {}

    def encode(self, array: pa.Array) -> Words:
        """One number per row; 0 at null rows."""
        encoded = array.dictionary_encode()
        numbers = [self._number(value) for value in encoded.dictionary.to_pylist()]
        codes = fixed_values(encoded.indices)
        assert codes is not None
        if not numbers:
            return np.zeros(len(array), np.int64)
        if array.null_count:
            return np.where(validity(array), np.array(numbers, np.int64)[np.where(validity(array), codes, 0)], 0)
        chosen: Words = np.array(numbers, np.int64)[codes]
        return chosen

    def _number(self, value: str | bytes) -> int:
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


@dataclass(frozen=True)
class _Node:
    """One column or struct field of a key: its type, how many words are its own, and its parts."""

    kind: pa.DataType
    words: int
    interned: bool
    children: tuple[_Node, ...]

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def _node(kind: pa.DataType) -> _Node:
    if pa.types.is_struct(kind):
        return _Node(kind, 0, False, tuple(_node(field.type) for field in kind))
    if pa.types.is_decimal128(kind):
        return _Node(kind, 2, False, ())
    if storage_dtype(kind) is not None:
        return _Node(kind, 1, False, ())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _Node(kind, 1, True, ())
    raise NotSupported(f"a key of type {kind} is not supported; group by its parts or a string of it")


class KeyCodec:
    """Key columns of given types to words and back. Stateful: it interns strings and binaries.

    The words of one codec are comparable with each other for its whole life.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._roots = tuple(_node(kind) for kind in kinds)
        nodes = [node for root in self._roots for node in root.walk()]
        if len(nodes) > _MAX_NODES:
            raise NotSupported(f"a key of {len(nodes)} columns and struct fields; at most {_MAX_NODES} are supported")
        self.width = 1 + sum(node.words for node in nodes)
        self.interners = tuple(Interner() for node in nodes if node.interned)

    def encode(self, columns: Sequence[pa.Array], rows: int) -> list[Words]:
        """``width`` words per row: the flags first, then each column's."""
        flags = np.zeros(rows, np.int64)
        words = [flags]
        bit = 0
        interners = iter(self.interners)
        pending = list(zip(self._roots, columns, strict=True))[::-1]
        while pending:
            node, array = pending.pop()
            if array.null_count:
                flags |= (~validity(array)).astype(np.int64) << bit
            bit += 1
            if node.children:
                pending += list(zip(node.children, array.flatten(), strict=True))[::-1]
            elif node.interned:
                words.append(next(interners).encode(array))
            else:
                own = fixed_words(normalize_floats(array))
                words += [np.where(validity(array), word, 0) for word in own] if array.null_count else own
        return words

    def decode(self, words: Sequence[Words]) -> list[pa.Array]:
        """The key columns behind words of this codec."""
        return decode_keys(self._roots, [interner.values for interner in self.interners], words)

    def place_of(self, path: Sequence[int]) -> tuple[int, int]:
        """Which word holds a column (or struct field), and which bit of the flags word tells that it is null.

        Args:
            path: the key column's position, then field positions.
        """
        target = self._roots[path[0]]
        for position in path[1:]:
            target = target.children[position]
        word = 1
        for bit, node in enumerate(node for root in self._roots for node in root.walk()):
            if node is target:
                return word, bit
            word += node.words
        raise AssertionError("a node of the codec is always found")

    def frozen(self) -> FrozenKeys:
        """What decodes today's words, whatever happens to the codec."""
        return FrozenKeys(self._roots, tuple(interner.values for interner in self.interners))


@dataclass(frozen=True)
class FrozenKeys:
    """A codec that only decodes; usable on any thread."""

    roots: tuple[_Node, ...]
    values: tuple[list[str | bytes], ...]

    def decode(self, words: Sequence[Words]) -> list[pa.Array]:
        return decode_keys(self.roots, self.values, words)


def decode_keys(
    roots: Iterable[_Node], interned: Iterable[list[str | bytes]], words: Sequence[Words]
) -> list[pa.Array]:
    """The inverse of ``KeyCodec.encode``."""
    flags = words[0]
    remaining = iter(words[1:])
    values = iter(interned)
    bits = iter(range(_MAX_NODES))

    def build(node: _Node) -> pa.Array:
        null = (flags >> next(bits)) & 1 == 1
        valid = ~null if null.any() else None
        if pa.types.is_struct(node.kind):
            children = [build(child) for child in node.children]
            mask = None if valid is None else pa.array(null)
            return pa.StructArray.from_arrays(children, fields=list(node.kind), mask=mask)
        if node.interned:
            known = next(values)
            numbers = next(remaining).tolist()
            return pa.array([known[number] for number in numbers] if known else [None] * len(numbers), node.kind,
                            mask=None if valid is None else null)  # fmt: skip
        if node.words == 2:
            return from_decimal_words(next(remaining).view(np.uint64), next(remaining), valid, node.kind)
        return from_fixed(_unword(next(remaining), node.kind), valid, node.kind)

    return [build(root) for root in roots]


def _unword(word: Words, kind: pa.DataType) -> npt.NDArray[Any]:
    dtype = storage_dtype(kind)
    assert dtype is not None
    if dtype.kind == "f":
        return word.astype(np.dtype(f"int{dtype.itemsize * 8}")).view(dtype)
    return word.astype(dtype, copy=False)
