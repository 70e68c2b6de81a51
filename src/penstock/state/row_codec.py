"""Row codec: encodes columns as one byte string per row, for the ``rocksdb`` backend and for keys that are arrays.

A row has a head of fixed width (a prefix of the caller, null flags, fixed-width values, lengths). The bytes of values
of varying length follow. Two rows are equal if and only if their bytes are equal; the order of the bytes has no
meaning. Rows are read only by the process that wrote them, because snapshots are in Arrow's format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import NotSupported
from penstock.state.arrays import (
    decimal_words,
    fixed_values,
    from_decimal_words,
    from_fixed,
    storage_dtype,
    validity,
)

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_LENGTH = np.dtype(np.uint32)


@dataclass(frozen=True)
class _Leaf:
    """Field of the head: a fixed-width value, or the length of a value after the head.

    Attributes:
        at: offset in the head.
        width: number of bytes.
        element: codec of the elements of a list or map.
    """

    at: int
    width: int
    element: RowCodec | None = None


@dataclass(frozen=True)
class _Node:
    """Column or struct field. ``leaf`` is None for a struct and the null type."""

    kind: pa.DataType
    flag: int
    leaf: _Leaf | None
    children: tuple[_Node, ...]


class RowCodec:
    """Codec for columns of given types. Stateless; usable on any thread.

    Args:
        kinds: types of the columns.
        prefix: number of bytes at the start of each row that the caller fills.

    Attributes:
        width: number of bytes of a row's head.
    """

    def __init__(self, kinds: Sequence[pa.DataType], prefix: int = 0) -> None:
        self._prefix = prefix
        self._nodes = 0
        self._flags_at = prefix
        self.width = prefix + (sum(_count_nodes(kind) for kind in kinds) + 7) // 8
        self._roots = tuple(self._node(kind) for kind in kinds)
        self._varies = any(_is_varying(node) for node in self._walk())

    def _node(self, kind: pa.DataType) -> _Node:
        flag = self._nodes
        self._nodes += 1
        if pa.types.is_struct(kind):
            return _Node(kind, flag, None, tuple(self._node(field.type) for field in kind))
        if pa.types.is_null(kind):
            return _Node(kind, flag, None, ())
        element = None
        if pa.types.is_map(kind):
            element = RowCodec([kind.key_type, kind.item_type])
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            element = RowCodec([kind.value_type])
        width = _fixed_width(kind) if element is None else None
        leaf = _Leaf(self.width, _LENGTH.itemsize if width is None else width, element)
        self.width += leaf.width
        return _Node(kind, flag, leaf, ())

    def location_of(self, column: int) -> tuple[int, int, int]:
        """Return the offset of a fixed-width column in a row, and the byte and the bit of its null flag."""
        node = self._roots[column]
        assert node.leaf is not None
        return node.leaf.at, self._flags_at + node.flag // 8, node.flag % 8

    def encode(self, columns: Sequence[pa.Array], rows: int, prefix: Bytes | None = None) -> list[bytes]:
        """Encode rows as byte strings.

        Args:
            columns: columns of this codec's types, each of length ``rows``.
            rows: number of rows.
            prefix: bytes of the prefixes, with shape ``(rows, prefix)``.
        """
        data, ends = self.pack(columns, rows, prefix)
        if not self._varies:
            fixed: list[bytes] = data.reshape(rows, self.width).view(f"V{self.width}").ravel().tolist()
            return fixed
        joined, stops = data.tobytes(), ends.tolist()
        return [joined[start:stop] for start, stop in pairwise(stops)]

    def decode(self, values: Sequence[bytes]) -> list[pa.Array]:
        """Decode rows, without their prefixes: the inverse of ``encode``."""
        lengths = np.fromiter(map(len, values), np.int64, len(values)) if self._varies else None
        return self.unpack(np.frombuffer(b"".join(values), np.uint8), len(values), lengths)

    def lengths(self, values: Sequence[bytes]) -> Offsets:
        """Return the length of the row at the start of each value."""
        head = np.frombuffer(b"".join([value[: self.width] for value in values]), np.uint8).reshape(-1, self.width)
        total = np.full(len(values), self.width, np.int64)
        for node in self._walk():
            if _is_varying(node):
                total += self._read(head, node, _LENGTH).astype(np.int64)
        return total

    def pack(self, columns: Sequence[pa.Array], rows: int, prefix: Bytes | None = None) -> tuple[Bytes, Offsets]:
        """Encode rows as consecutive bytes (see ``encode``). Return the bytes, and the rows' offsets with the end."""
        head = np.zeros((rows, self.width), np.uint8)
        if prefix is not None:
            head[:, : self._prefix] = prefix
        tails = [
            tail
            for node, column in zip(self._roots, columns, strict=True)
            for tail in self._fill(head, node, column, validity(column))
        ]
        if not tails:
            return head.ravel(), np.arange(rows + 1, dtype=np.int64) * self.width
        heads = _binary(head.ravel(), np.arange(rows + 1, dtype=np.int64) * self.width)
        return _parts(pc.binary_join_element_wise(heads, *tails, pa.scalar(b"", pa.large_binary())))

    def _fill(self, head: Bytes, node: _Node, array: pa.Array, valid: npt.NDArray[np.bool_]) -> Iterator[pa.Array]:
        """Write one column into the heads, and yield the values that follow the heads."""
        if not valid.all():
            head[:, self._flags_at + node.flag // 8] |= (~valid).astype(np.uint8) << (node.flag % 8)
        if node.children:
            for child, column in zip(node.children, array.flatten(), strict=True):
                yield from self._fill(head, child, column, validity(column))
            return
        leaf = node.leaf
        if leaf is None:
            return
        if _is_varying(node):
            tail = _elements(leaf.element, array) if leaf.element is not None else _bytes_of(array)
            lengths = np.diff(_parts(tail)[1])
            if len(lengths) and lengths.max() > np.iinfo(_LENGTH).max:
                raise NotSupported(
                    f"a value of {lengths.max()} bytes in a keyed state table; at most 4 GiB are supported"
                )
            head[:, leaf.at : leaf.at + leaf.width] = _as_bytes(lengths.astype(_LENGTH))
            yield tail
            return
        raw = _raw_bytes(array)
        head[:, leaf.at : leaf.at + leaf.width] = raw if valid.all() else np.where(valid[:, None], raw, 0)

    def unpack(self, data: Bytes, rows: int, lengths: Offsets | None = None) -> list[pa.Array]:
        """Decode consecutive rows. ``lengths``: length of each row; None if all have the width of the head."""
        varying = [node for node in self._walk() if _is_varying(node)]
        tails: dict[int, pa.Array] = {}
        if varying:
            assert lengths is not None
            starts = np.cumsum(lengths) - lengths
            head = data[starts[:, None] + np.arange(self.width)]
            pieces = [np.full(rows, self.width)]
            pieces += [self._read(head, node, _LENGTH).astype(np.int64) for node in varying]
            parts = _split(data, np.stack(pieces, axis=1))
            tails = {node.flag: part for node, part in zip(varying, parts[1:], strict=True)}
        else:
            head = data.reshape(rows, self.width)
        return [self._build(head, node, tails) for node in self._roots]

    def _build(self, head: Bytes, node: _Node, tails: dict[int, pa.Array]) -> pa.Array:
        null = (head[:, self._flags_at + node.flag // 8] >> (node.flag % 8)) & 1 == 1
        valid = ~null if null.any() else None
        if pa.types.is_null(node.kind):
            return pa.nulls(len(head))
        if pa.types.is_struct(node.kind):
            children = [self._build(head, child, tails) for child in node.children]
            bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
            return pa.Array.from_buffers(node.kind, len(head), [bitmap], children=children)
        assert node.leaf is not None
        if node.leaf.element is not None:
            return _lists(node.kind, node.leaf.element, tails[node.flag], valid)
        if _is_varying(node):
            return _of_bytes(node.kind, tails[node.flag], valid)
        if pa.types.is_decimal128(node.kind):
            words = self._read(head, node, np.dtype("<u8,<i8"))
            return from_decimal_words(words["f0"].copy(), words["f1"].copy(), valid, node.kind)
        dtype = storage_dtype(node.kind)
        assert dtype is not None
        return from_fixed(self._read(head, node, dtype), valid, node.kind)

    def _read(self, head: Bytes, node: _Node, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        assert node.leaf is not None
        chosen = np.ascontiguousarray(head[:, node.leaf.at : node.leaf.at + node.leaf.width])
        return chosen.view(dtype).ravel()

    def _walk(self) -> Iterator[_Node]:
        pending = list(self._roots)[::-1]
        while pending:
            node = pending.pop()
            yield node
            pending += node.children[::-1]


def _is_varying(node: _Node) -> bool:
    return node.leaf is not None and _fixed_width(node.kind) is None


def _count_nodes(kind: pa.DataType) -> int:
    return 1 + (sum(_count_nodes(field.type) for field in kind) if pa.types.is_struct(kind) else 0)


def _fixed_width(kind: pa.DataType) -> int | None:
    """Return the width of a type in bytes; None for types of varying length."""
    if pa.types.is_decimal128(kind):
        return 16
    dtype = storage_dtype(kind)
    if dtype is not None:
        return dtype.itemsize
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
        pa.types.is_list, pa.types.is_large_list, pa.types.is_map,
    )  # fmt: skip
    if any(test(kind) for test in tests):
        return None
    raise NotSupported(f"the rocksdb state backend stores no values of type {kind}; use state.backend memory")


def _as_bytes(values: npt.NDArray[Any]) -> Bytes:
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)


def _raw_bytes(array: pa.Array) -> Bytes:
    if pa.types.is_decimal128(array.type):
        low, high = decimal_words(array)
        return np.concatenate([_as_bytes(low), _as_bytes(high)], axis=1)
    values = fixed_values(array)
    assert values is not None
    return _as_bytes(values)


# -- byte strings of varying length, as Arrow's large binary --------------------------------------------------------


def _binary(data: Bytes, offsets: Offsets) -> pa.Array:
    return pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _parts(array: pa.Array) -> tuple[Bytes, Offsets]:
    """Return data and offsets of an array without nulls: the inverse of ``_binary``."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
    if data is None:
        return np.empty(0, np.uint8), ends
    return np.frombuffer(data, np.uint8)[ends[0] : ends[-1]], ends - ends[0]


def _split(data: Bytes, lengths: npt.NDArray[np.int64]) -> list[pa.Array]:
    """Split consecutive rows into pieces. Return one array per piece. ``lengths``: lengths of the pieces, by row."""
    rows, pieces = lengths.shape
    offsets = np.zeros(rows * pieces + 1, np.int64)
    np.cumsum(lengths.ravel(), out=offsets[1:])
    cut = _binary(data, offsets)
    return [cut.take(pa.array(np.arange(piece, rows * pieces, pieces))) for piece in range(pieces)]


def _bytes_of(array: pa.Array) -> pa.Array:
    """Convert strings or binaries to large binaries. Nulls become empty."""
    large = array.cast(pa.large_string() if pa.types.is_string(array.type) else array.type)
    large = large.cast(pa.large_binary())
    return large.fill_null(b"") if large.null_count else large


def _of_bytes(kind: pa.DataType, tail: pa.Array, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    data, offsets = _parts(tail)
    large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    ends = pa.py_buffer(np.ascontiguousarray(offsets, np.int64 if large else np.int32))
    return pa.Array.from_buffers(kind, len(tail), [bitmap, ends, pa.py_buffer(np.ascontiguousarray(data))])


def _elements(codec: RowCodec, array: pa.Array) -> pa.Array:
    """Encode each list or map as a byte string: its number of elements, their lengths, and the elements."""
    counts = _counts(array)
    ends = np.concatenate([[0], np.cumsum(counts)])
    columns = _as_list(array).flatten().flatten() if pa.types.is_map(array.type) else [array.flatten()]
    data, offsets = codec.pack(columns, int(ends[-1]))
    number = _as_bytes(counts.astype(_LENGTH)).ravel()
    sizes = _as_bytes(np.diff(offsets).astype(_LENGTH)).ravel()
    width = _LENGTH.itemsize
    return pc.binary_join_element_wise(
        _binary(number, np.arange(len(array) + 1) * width),
        _binary(sizes, ends * width),
        _binary(data, offsets[ends]),
        pa.scalar(b"", pa.large_binary()),
    )


def _as_list(array: pa.Array) -> pa.Array:
    """Convert a map to a list of entries, because Arrow flattens only lists."""
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    bitmap, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(array), [bitmap, offsets], -1, array.offset, children=[entries]
    )


def _counts(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of elements of each list or map; 0 for null."""
    offsets = np.asarray(array.offsets)
    return np.where(validity(array), np.diff(offsets), 0).astype(np.int64)


def _lists(kind: pa.DataType, codec: RowCodec, tail: pa.Array, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Decode lists or maps: the inverse of ``_elements``."""
    data, offsets = _parts(tail)
    width = _LENGTH.itemsize
    counts = data[offsets[:-1, None] + np.arange(width)].view(_LENGTH).ravel().astype(np.int64)
    pieces = np.stack([np.full(len(tail), width), counts * width, np.diff(offsets) - (counts + 1) * width], axis=1)
    _, sizes, elements = _split(data, pieces)
    lengths = np.ascontiguousarray(_parts(sizes)[0]).view(_LENGTH).astype(np.int64)
    columns = codec.unpack(_parts(elements)[0], len(lengths), lengths)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    child = columns[0]
    if pa.types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        child = pa.Array.from_buffers(entries, len(lengths), [None], children=columns)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(tail), [bitmap, pa.py_buffer(ends)], children=[child])
