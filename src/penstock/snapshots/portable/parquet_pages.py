"""Reader of Parquet footers and page headers. They are checked before pyarrow decodes a file.

Some numbers of the footer crash the process if pyarrow is asked for them. Examples are an unknown compression, and
statistics with another length than the column's. So pyarrow is not asked for anything in the footer.

A footer may declare a column as plain although its pages have dictionaries or prefixes. Then a few bytes could become
any number of values. Page headers are structs of Thrift's compact protocol. This module reads the fields that it needs
and skips the rest. https://parquet.apache.org/docs/file-format/, parquet.thrift, thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from penstock.thrift_compact import CompactReader, Fields, natural

FOOTER_BYTES = 64 << 20
HEADER_BYTES = 1 << 16
"""Maximum size of a page header in bytes. It contains statistics, which writers truncate."""
_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_PLAIN, _RLE = 0, 3
_UNCOMPRESSED, _BOOLEAN, _PHYSICAL = 0, 0, range(8)


class _Page(NamedTuple):
    size: int
    values: int
    header: int


class Chunk(NamedTuple):
    """Column of a row group."""

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
    """Return the row groups of a file, each with all of its columns. Raises ValueError for an invalid footer."""
    file.seek(max(0, file.size() - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or not 0 < length <= min(file.size() - 8, FOOTER_BYTES):
        raise ValueError("it does not end as a Parquet file does")
    file.seek(file.size() - 8 - length)
    footer = CompactReader(file.read(length), keep_lists=True).structure()
    leaves = sum(not element.get(5) for element in _structs(footer.get(2)))
    groups = [
        RowGroup(natural(group, 3), natural(group, 2), [_chunk(column) for column in _structs(group.get(1))])
        for group in _structs(footer.get(4))
    ]
    if any(len(group.columns) != leaves for group in groups):
        raise ValueError(f"a row group has other columns than the {leaves} of the file")
    return groups


def _chunk(column: Fields) -> Chunk:
    said = column.get(3)
    if set(column) - {2, 3, 4, 5, 6, 7} or not isinstance(said, dict) or said.get(1) not in _PHYSICAL:
        raise ValueError("a column lies elsewhere, is encrypted, or is of a kind that there is not")
    plain = said.get(4) == _UNCOMPRESSED and 11 not in said
    return Chunk(said[1] == _BOOLEAN, plain, natural(said, 5), natural(said, 9), natural(said, 7))


def _structs(value: Any) -> list[Fields]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError("a footer without a list that it has to have")
    return value


def check_pages(file: pa.NativeFile, chunk: Chunk) -> None:
    """Raise ValueError unless all pages of a column are data pages of plain values, as many as its footer declares."""
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
    reader = CompactReader(data)
    header = reader.structure()
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
