"""Store of a table's keys by row number: encodes keys for comparison, and decodes them to Arrow arrays.

Fixed-width values are stored with the width of their type, long decimals as two words, strings and binaries as their
bytes, and arrays as bytes of ``RowCodec``. A word of flags has a bit for each column or struct field, which is set for
null. It is allocated when the first null is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import NotSupported
from penstock.state.arrays import from_decimal_words, from_fixed, from_validity, storage_dtype, validity
from penstock.state.growable_array import GrowableArray, gathered
from penstock.state.keys import Words, fixed_words, normalize_floats
from penstock.state.row_codec import RowCodec
from penstock.state.texts import Texts, TextStore, is_text
from penstock.state.vector import LONG_DECIMAL_PRECISION, Mask, Rows

U64 = npt.NDArray[np.uint64]

_MAX_NODES = 63
"""Limit for the columns and struct fields of a key, each of which has a bit in the word of flags."""
_SEED = np.uint64(42)
_MULTIPLIERS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class _Node:
    """Column or struct field of a key.

    Attributes:
        kind: Arrow type.
        words: dtypes of the words that store the value.
        children: fields of a struct; empty for other types.
        codec: codec of an array; None for other types.
    """

    kind: pa.DataType
    words: tuple[np.dtype[Any], ...]
    children: tuple[_Node, ...]
    codec: RowCodec | None = None

    @property
    def is_text(self) -> bool:
        """True if the value is stored as bytes of varying length."""
        return self.codec is not None or is_text(self.kind)

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def _node(kind: pa.DataType) -> _Node:
    if pa.types.is_struct(kind):
        return _Node(kind, (), tuple(_node(field.type) for field in kind))
    if pa.types.is_decimal128(kind):
        return _Node(kind, (np.dtype(np.int64),) * (1 if kind.precision <= LONG_DECIMAL_PRECISION else 2), ())
    dtype = storage_dtype(kind)
    if dtype is not None:
        return _Node(kind, (np.dtype(f"int{dtype.itemsize * 8}"),), ())
    if is_text(kind):
        return _Node(kind, (), ())
    if is_array_key(kind):
        return _Node(kind, (), (), RowCodec([kind]))
    raise NotSupported(f"a key of type {kind} is not supported; group by its parts or a string of it")


def is_array_key(kind: pa.DataType) -> bool:
    """Return True for arrays whose elements can be keys."""
    if not pa.types.is_list(kind):
        return False
    element = kind.value_type
    while pa.types.is_list(element) or pa.types.is_struct(element):
        if pa.types.is_struct(element):
            return all(is_array_key(pa.list_(field.type)) for field in element)
        element = element.value_type
    return not pa.types.is_nested(element)


@dataclass(frozen=True)
class Keys:
    """Encoded keys. Two keys are equal if and only if all their parts are equal.

    Attributes:
        count: number of keys.
        flags: a bit for each column and struct field that is null; None if there is no null.
        words: words of the fixed-width parts, in order; zero for nulls.
        texts: strings and binaries, in order; empty for nulls.
    """

    count: int
    flags: Words | None
    words: list[npt.NDArray[Any]]
    texts: list[Texts]


class KeyStore:
    """Store of the keys of a table. A row has an arbitrary key until ``put``.

    ``take`` may be called on another thread while rows are written, but not during ``reserve``. Its result for these
    rows is arbitrary.
    """

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        self._roots = tuple(_node(kind) for kind in kinds)
        nodes = [node for root in self._roots for node in root.walk()]
        if len(nodes) > _MAX_NODES:
            raise NotSupported(f"a key of {len(nodes)} columns and struct fields; at most {_MAX_NODES} are supported")
        self._words = [GrowableArray(dtype) for node in nodes for dtype in node.words]
        self._texts = [TextStore() for node in nodes if node.is_text]
        self._flags: GrowableArray | None = None
        self._rows = 0

    def nbytes(self, rows: int) -> int:
        """Return the bytes of memory that this number of rows uses."""
        fixed = sum(pages.itemsize for pages in self._words) + (8 if self._flags is not None else 0)
        return fixed * rows + sum(text.nbytes(rows) for text in self._texts)

    def encode(self, columns: Sequence[pa.Array], count: int) -> Keys:
        """Encode key columns, each of length ``count``. Floats are normalized."""
        flags: Words | None = None
        words: list[npt.NDArray[Any]] = []
        texts = []
        bit = 0
        pending = list(zip(self._roots, columns, strict=True))[::-1]
        while pending:
            node, array = pending.pop()
            if array.null_count:
                flags = np.zeros(count, np.int64) if flags is None else flags
                flags |= (~validity(array)).astype(np.int64) << bit
            bit += 1
            if node.children:
                pending += list(zip(node.children, array.flatten(), strict=True))[::-1]
            elif node.codec is not None:
                texts.append(Texts.of(_packed(node.codec, normalize_floats(array))))
            elif node.is_text:
                texts.append(Texts.of(array))
            else:
                own = fixed_words(normalize_floats(array))[: len(node.words)]
                words += [np.where(validity(array), word, 0) for word in own] if array.null_count else own
        return Keys(count, flags, words, texts)

    def decode(self, keys: Keys) -> list[pa.Array]:
        """Decode keys to columns. Their texts must own their words, as those from ``encode`` and ``take`` do."""
        parts = _KeyDecoder(keys)
        return [parts.array(root) for root in self._roots]

    def hashes_of(self, keys: Keys) -> tuple[U64, list[U64]]:
        """Return a hash of each key, which is valid in this process only, and the hashes of its texts."""
        texts = self.text_hashes(keys)
        return _mixed(keys.count, keys.flags, [*keys.words, *texts]), texts

    def text_hashes(self, keys: Keys) -> list[U64]:
        """Return the hashes of the texts, the second result of ``hashes_of``."""
        return [text.hashes(np.full(len(text), _SEED)) for text in keys.texts]

    def hashes(self, rows: Rows) -> U64:
        """Return the hashes of the keys of rows, see ``hashes_of``."""
        flags = None if self._flags is None else self._flags.data[rows]
        parts = [pages.data[rows] for pages in self._words] + [text.hashes(rows) for text in self._texts]
        return _mixed(len(rows), flags, parts)

    def leading_hashes(self, keys: Keys, texts: Sequence[U64], columns: int | None = None) -> U64:
        """Return the hashes of the first ``columns`` columns of keys, see ``hashes_of``. None: of all columns."""
        leading = [node for root in self._roots[:columns] for node in root.walk()]
        flags = None if keys.flags is None else keys.flags & _bits(len(leading))
        words = keys.words[: sum(len(node.words) for node in leading)]
        return _mixed(keys.count, flags, [*words, *texts[: sum(node.is_text for node in leading)]])

    def differ(self, rows: Rows, keys: Keys, texts: Sequence[U64], others: Rows, columns: int | None = None) -> Mask:
        """Return True where the key of ``rows[i]`` differs from ``keys[others[i]]``.

        Args:
            rows: rows of the store.
            keys: encoded keys.
            texts: the hashes of their texts, see ``hashes_of``.
            others: indexes of keys, as many as rows.
            columns: compare only this number of leading columns, which ``keys`` consist of; None: all.
        """
        wrong = np.zeros(len(rows), np.bool_)
        for pages, word in zip(self._words, keys.words, strict=columns is None):
            wrong |= pages.data[rows] != word[others]
        if self._flags is not None:
            flags = self._flags.data[rows]
            if columns is not None:
                flags = flags & _bits(sum(1 for root in self._roots[:columns] for _ in root.walk()))
            wrong |= flags != (0 if keys.flags is None else keys.flags[others])
        elif keys.flags is not None:
            wrong |= keys.flags[others] != 0
        if self._texts:
            left = np.flatnonzero(~wrong)
            for store, text, hashes in zip(self._texts, keys.texts, texts, strict=columns is None):
                wrong[left] |= store.differ(rows[left], text, hashes, others[left])
        return wrong

    def reserve(self, rows: int, keys: Keys) -> None:
        """Make room for ``rows`` rows in total, of which the newest get these keys."""
        self._rows = max(rows, self._rows)
        for pages in self._words:
            pages.reserve(rows)
        for store, text in zip(self._texts, keys.texts, strict=True):
            store.reserve(rows, text)
        if keys.flags is not None and self._flags is None:
            self._flags = GrowableArray(np.int64)
        if self._flags is not None:
            self._flags.reserve(self._rows)

    def put(self, rows: Rows, keys: Keys, texts: Sequence[U64]) -> None:
        """Write the keys of new rows; call ``reserve`` before."""
        for pages, word in zip(self._words, keys.words, strict=True):
            pages.data[rows] = word
        if self._flags is not None:
            self._flags.data[rows] = 0 if keys.flags is None else keys.flags
        for store, text, hashes in zip(self._texts, keys.texts, texts, strict=True):
            store.put(rows, text, hashes)

    def free(self, rows: Rows) -> None:
        """Free the keys of removed rows."""
        for store in self._texts:
            store.free(rows)

    def take(self, rows: Rows) -> Keys:
        """Copy the keys of rows."""
        flags = None if self._flags is None else self._flags.data[rows]
        if flags is not None and not flags.any():
            flags = None
        words = [gathered(pages.data, rows) for pages in self._words]
        return Keys(len(rows), flags, words, [store.take(rows) for store in self._texts])

    def part(self, path: Sequence[int]) -> KeyColumn:
        """Return the location of a fixed-width key column or struct field.

        Args:
            path: the key column's position, then field positions.
        """
        target = self._roots[path[0]]
        for position in path[1:]:
            target = target.children[position]
        word = 0
        for bit, node in enumerate(node for root in self._roots for node in root.walk()):
            if node is target:
                return KeyColumn(word, bit)
            word += len(node.words)
        raise AssertionError("a node of the store is always found")

    def read(self, part: KeyColumn, rows: int) -> tuple[npt.NDArray[Any], Mask | None]:
        """Return a column's words for the first ``rows`` rows, and a mask of those that are not null (None: all)."""
        known = None if self._flags is None else (self._flags.data[:rows] >> part.bit) & 1 == 0
        return self._words[part.word].data[:rows], known


class _KeyDecoder:
    """Decoder of keys, which consumes their parts in order.

    It is a class because a recursive inner function would have a reference cycle, which would keep its arrays in memory
    until the next garbage collection.
    """

    def __init__(self, keys: Keys) -> None:
        self._flags = keys.flags
        self._words, self._texts, self._bits = iter(keys.words), iter(keys.texts), iter(range(_MAX_NODES))

    def array(self, node: _Node) -> pa.Array:
        """Decode the next column or struct field, described by ``node``."""
        null = None if self._flags is None else (self._flags >> next(self._bits)) & 1 == 1
        valid = None if null is None or not null.any() else ~null
        if pa.types.is_struct(node.kind):
            children = [self.array(child) for child in node.children]
            mask = None if valid is None else pa.array(null)
            return pa.StructArray.from_arrays(children, fields=list(node.kind), mask=mask)
        if node.codec is not None:
            return _unpacked(node.codec, next(self._texts), valid)
        if node.is_text:
            return next(self._texts).to_arrow(valid, node.kind)
        own = [next(self._words) for _ in node.words]
        if pa.types.is_decimal128(node.kind):
            high = own[0] >> 63 if len(own) == 1 else own[1]
            return from_decimal_words(own[0].view(np.uint64), high, valid, node.kind)
        return from_fixed(_unword(own[0], node.kind), valid, node.kind)


@dataclass(frozen=True)
class KeyColumn:
    """Location of a column or struct field: the index of its word, and its bit in the word of flags."""

    word: int
    bit: int

    def of(self, keys: Keys) -> tuple[npt.NDArray[Any], Mask | None]:
        """Return the words of the column in ``keys``, and a mask of those that are not null; see ``KeyStore.read``."""
        return keys.words[self.word], None if keys.flags is None else (keys.flags >> self.bit) & 1 == 0


def _packed(codec: RowCodec, arrays: pa.Array) -> pa.Array:
    """Encode arrays as binaries. Two arrays are equal if and only if their bytes are equal."""
    data, ends = codec.pack([arrays], len(arrays))
    bitmap, nulls = from_validity(validity(arrays) if arrays.null_count else None)
    buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(ends, np.int64)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(arrays), buffers, nulls)


def _unpacked(codec: RowCodec, texts: Texts, valid: Mask | None) -> pa.Array:
    """Decode arrays: the inverse of ``_packed``."""
    rows = texts.to_arrow(None, pa.large_binary())
    if valid is None:
        return codec.decode(rows.to_pylist())[0]
    [arrays] = codec.decode(rows.filter(pa.array(valid)).to_pylist())
    return arrays.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _bits(count: int) -> np.int64:
    """Return the mask for the flags of ``count`` leading columns and struct fields."""
    return np.int64((1 << count) - 1)


def _mixed(count: int, flags: Words | None, parts: Sequence[npt.NDArray[Any]]) -> U64:
    hashes = np.full(count, _SEED)
    if flags is not None:
        hashes += flags.view(np.uint64) * _MULTIPLIERS[2]
    for part in parts:
        hashes ^= part.astype(np.int64, copy=False).view(np.uint64) if part.dtype.kind == "i" else part
        hashes ^= hashes >> np.uint64(33)
        hashes *= _MULTIPLIERS[0]
        hashes ^= hashes >> np.uint64(33)
        hashes *= _MULTIPLIERS[1]
        hashes ^= hashes >> np.uint64(33)
    return hashes


def _unword(word: npt.NDArray[Any], kind: pa.DataType) -> npt.NDArray[Any]:
    dtype = storage_dtype(kind)
    assert dtype is not None
    if dtype.kind == "f":
        return word.astype(np.dtype(f"int{dtype.itemsize * 8}"), copy=False).view(dtype)
    return word.astype(dtype, copy=False)
