"""What a Parquet file says of itself, read before pyarrow decodes it.

Some of the footer's numbers end the whole process where pyarrow is asked for them: a compression that there is not,
statistics of another length than the column's. So nothing of it is asked of pyarrow.

The footer may say that a column is plain, and its pages may be dictionaries or prefixes all the same: then a few bytes
become any number of values. Page headers are structs of Thrift's compact protocol; of these, what is needed is read
here and the rest passed over. https://parquet.apache.org/docs/file-format/, parquet.thrift, thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

FOOTER_BYTES = 64 << 20
HEADER_BYTES = 1 << 16
"""Of a page: statistics are in it, of which a writer keeps little."""
MAX_DEPTH = 12
"""Of structs and lists within each other."""

_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_PLAIN, _RLE = 0, 3
_UNCOMPRESSED, _BOOLEAN, _PHYSICAL = 0, 0, range(8)
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


class _Page(NamedTuple):
    size: int
    values: int
    header: int


class Chunk(NamedTuple):
    """A column of a row group."""

    boolean: bool
    plain: bool
    values: int
    offset: int
    size: int


class RowGroup(NamedTuple):
    rows: int
    bytes: int
    columns: list[Chunk]


def read_footer(file: pa.NativeFile) -> list[RowGroup]:
    """The row groups of a file, each with all of its columns. Raises ValueError for what is no footer."""
    file.seek(max(0, file.size() - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or not 0 < length <= min(file.size() - 8, FOOTER_BYTES):
        raise ValueError("it does not end as a Parquet file does")
    file.seek(file.size() - 8 - length)
    footer = _Compact(file.read(length)).struct()
    leaves = sum(not element.get(5) for element in _structs(footer.get(2)))
    groups = [
        RowGroup(_count(group, 3), _count(group, 2), [_chunk(column) for column in _structs(group.get(1))])
        for group in _structs(footer.get(4))
    ]
    if any(len(group.columns) != leaves for group in groups):
        raise ValueError(f"a row group has other columns than the {leaves} of the file")
    return groups


def _chunk(column: dict[int, Any]) -> Chunk:
    said = column.get(3)
    if set(column) - {2, 3, 4, 5, 6, 7} or not isinstance(said, dict) or said.get(1) not in _PHYSICAL:
        raise ValueError("a column lies elsewhere, is encrypted, or is of a kind that there is not")
    plain = said.get(4) == _UNCOMPRESSED and 11 not in said
    return Chunk(said[1] == _BOOLEAN, plain, _count(said, 5), _count(said, 9), _count(said, 7))


def _count(struct: dict[int, Any], field: int) -> int:
    value = struct.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a footer says {value!r:.40} where a number has to be")
    return value


def _structs(value: Any) -> list[dict[int, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("a footer without a list that it has to have")
    return value


def check_pages(file: pa.NativeFile, chunk: Chunk) -> None:
    """Raise ValueError unless all pages of a column are data pages of plain values, as many as its footer says."""
    at, end = chunk.offset, chunk.offset + chunk.size
    if end > file.size():
        raise ValueError("a column lies outside of the file")
    values = 0
    while at < end and values < chunk.values:
        file.seek(at)
        page = _page(file.read(min(HEADER_BYTES, end - at)), boolean=chunk.boolean)
        values += page.values
        at += page.header + page.size
    if values != chunk.values or at > end:
        raise ValueError(f"a column has {values} values instead of {chunk.values}")


def _page(data: bytes, *, boolean: bool) -> _Page:
    reader = _Compact(data)
    header = reader.struct()
    kind, whole, size = header.get(1), header.get(2), header.get(3)
    inner = header.get(5 if kind == _DATA_PAGE else 8) if kind in (_DATA_PAGE, _DATA_PAGE_V2) else None
    if not isinstance(inner, dict):
        raise ValueError(f"a page of the kind {kind}, which is not allowed")
    values, encoding = inner.get(1), inner.get(2 if kind == _DATA_PAGE else 4)
    if encoding not in ((_PLAIN, _RLE) if boolean else (_PLAIN,)):
        raise ValueError(f"a page is encoded as {encoding}; only plain values are allowed")
    if not isinstance(size, int) or size < 0 or whole != size:
        raise ValueError("a page is compressed")
    if not isinstance(values, int) or values < 0:
        raise ValueError("a page has less than nothing")
    return _Page(size, values, reader.at)


class _Compact:
    """One struct of Thrift's compact protocol, with its numbers, structs and lists by field; all else is passed over.

    Raises:
        ValueError: it has no end, or is none.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > MAX_DEPTH:
            raise ValueError("a header is nested too deep")
        found: dict[int, Any] = {}
        field = 0
        while kind := self._byte():
            field = field + (kind >> 4) if kind >> 4 else self._number()
            found[field] = self._value(kind & 15, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_I16, _I32, _I64):
            return self._number()
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth + 1)
        if kind in (_I8, _DOUBLE, _BINARY):
            length = {_I8: 1, _DOUBLE: 8}.get(kind) or self._varint()
            self.at += length
            return None
        raise ValueError(f"a header has a field of the kind {kind}")

    def _list(self, depth: int) -> list[Any]:
        if depth > MAX_DEPTH:
            raise ValueError("a header is nested too deep")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        if count > len(self._data) - self.at:
            raise ValueError("a list without an end")
        if head & 15 in (_TRUE, _FALSE):
            return [self._byte() for _ in range(count)]
        return [self._value(head & 15, depth) for _ in range(count)]

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ValueError("a header without an end")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        found = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("a number without an end")

    def _number(self) -> int:
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)
