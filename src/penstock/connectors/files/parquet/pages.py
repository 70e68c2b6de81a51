"""Limits for decoding a Parquet file: a small file can decode to a very large amount of data.

Arrow trusts the numbers in a file. So this module checks the footer, and the header of each page that is read, before
Arrow decodes them. The sizes of columns in the footer are not sufficient, because nothing checks them. Footer and
headers are structures of Thrift's compact protocol with the layout of https://github.com/apache/parquet-format.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import DataError
from penstock.thrift_compact import CompactReader, EndOfData, Fields, natural

MAX_DEPTH = 200
"""Limit for the nesting of groups, because Arrow visits a schema recursively."""
MAX_COLUMNS = 100_000
"""Limit for the elements of a schema. Arrow needs some hundred bytes for each, also in each row group."""
LARGEST_BATCH = 128 << 20
"""Target size of a decoded batch in bytes; a single row may be larger."""
NESTED_PAGES = 64
"""Limit for a nested column of a row group, in pages of the largest size, because one row may have all values."""

_MAGIC = b"PAR1"
_FIRST_READ, _LONGEST_HEADER = 1 << 12, 16 << 20
_DICTIONARY, _DATA_PAGES = 2, (0, 3)
_DELTA_BYTE_ARRAY = 7
_DICTIONARY_ENCODINGS = (2, 8)
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_DECIMAL_BYTES = 16
_OFFSET_BYTES = 4


def check_footer(path: str, most_bytes: int) -> None:
    """Check a file's footer before Arrow parses it. A file that is not a Parquet file passes: Arrow reports it.

    Raises:
        DataError: the footer is larger than ``most_bytes``, or its schema is too deep or too wide.
        pa.ArrowInvalid: the footer is damaged.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 8))
        tail = file.read(8)
        length = struct.unpack("<I", tail[:4])[0] if tail[4:] == _MAGIC else size
        if length > size - 8:
            return
        if length > most_bytes:
            raise DataError(f"{path} has a footer of {length} bytes, more than {most_bytes} (option maxPageBytes)")
        file.seek(size - 8 - length)
        footer = file.read(length)
    try:
        _check_schema(path, CompactReader(footer))
    except ValueError as error:
        raise pa.ArrowInvalid(f"not a readable Parquet file: its footer is damaged: {error}") from error


def _check_schema(path: str, footer: CompactReader) -> None:
    for number, kind in footer.fields():
        if number != 2:
            footer.value(kind)
            continue
        count = footer.count_structures(kind)
        if count > MAX_COLUMNS:
            raise DataError(f"{path} has {count} columns and groups of columns; at most {MAX_COLUMNS} are read")
        left: list[int] = []  # number of remaining children, for each enclosing group
        for _ in range(count):
            while left and not left[-1]:
                left.pop()
            if left:
                left[-1] -= 1
            left.append(natural(footer.structure(), 5, 0))
            if len(left) > MAX_DEPTH:
                raise DataError(f"{path} has columns that are more than {MAX_DEPTH} deep")
        return


@dataclass(frozen=True)
class _Page:
    """Header of a page.

    Attributes:
        bytes: size after decompression.
        compressed: size in the file.
        values: number of values, including nulls.
    """

    kind: int
    bytes: int
    compressed: int
    values: int
    encoding: int


@dataclass(frozen=True)
class _DecodedSize:
    """Decoded size of a page: ``values`` times ``each`` bytes, or ``bytes`` for any number of values."""

    values: int
    each: int
    bytes: int

    def of(self, rows: int) -> int:
        return self.bytes + min(rows, self.values) * self.each


def max_batch_rows(
    path: str, metadata: pq.FileMetaData, groups: list[int], columns: list[int], rows: int, most: int
) -> int:
    """Check all pages of some columns in some row groups, and limit the size of batches.

    Args:
        rows: requested number of rows per batch.
        most: limit for a page, in bytes.

    Returns:
        The maximum number of rows of a batch, at least one.

    Raises:
        DataError: a page is larger than ``most`` after decompression, or a row may be too large.
    """
    with open(path, "rb", buffering=0) as file:
        for group in groups:
            sizes = [_decoded_sizes(path, file.fileno(), metadata, group, column, rows, most) for column in columns]
            while rows > 1 and sum(_heaviest(pages, rows) for pages in sizes) > LARGEST_BATCH:
                rows //= 2
    return rows


def _decoded_sizes(
    path: str, file: int, metadata: pq.FileMetaData, group: int, column: int, rows: int, most: int
) -> list[_DecodedSize]:
    chunk, described = metadata.row_group(group).column(column), metadata.schema.column(column)
    pages = list(_pages(path, file, chunk, most))
    width = _width(described)
    widest = 0
    if width is None:
        dictionary = max(
            (page.bytes - _OFFSET_BYTES * page.values for page in pages if page.kind == _DICTIONARY), default=0
        )
        widest = dictionary + _OFFSET_BYTES
        if dictionary * rows > LARGEST_BATCH:
            widest = min(dictionary, _widest_value(path, metadata, group, chunk.path_in_schema)) + _OFFSET_BYTES
    is_nested = described.max_repetition_level > 0
    sizes = [_decoded_size(page, width, widest, is_nested) for page in pages if page.kind in _DATA_PAGES]
    if is_nested:
        return [_nested(path, chunk, sizes, metadata.row_group(group).num_rows, most)]
    return sizes


def _width(described: pq.ColumnSchema) -> int | None:
    """Return the size of each value in bytes; None for types of variable length such as texts."""
    if described.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(described.length)
    if described.logical_type.type == "DECIMAL":
        return _DECIMAL_BYTES
    return _WIDTHS.get(described.physical_type)


def _decoded_size(page: _Page, width: int | None, widest: int, is_nested: bool) -> _DecodedSize:
    if width is not None:
        return _DecodedSize(page.values, width, 0)
    if page.encoding in _DICTIONARY_ENCODINGS:
        return _DecodedSize(page.values, widest, 0)
    # With this encoding each value may be as long as the whole page. Nested columns do not use this bound: all of their
    # values may belong to one row, so it would refuse ordinary files.
    if page.encoding == _DELTA_BYTE_ARRAY and not is_nested:
        return _DecodedSize(page.values, page.bytes, 0)
    return _DecodedSize(page.values, _OFFSET_BYTES, page.bytes)


def _nested(path: str, chunk: pq.ColumnChunkMetaData, sizes: list[_DecodedSize], rows: int, most: int) -> _DecodedSize:
    """Estimate the size of a nested column from the average number of values per row.

    The actual numbers are known only after decoding.
    """
    size = sum(page.of(page.values) for page in sizes)
    if size > NESTED_PAGES * most:
        raise DataError(
            f"{path}: column {chunk.path_in_schema} may become {size} bytes in one row, more than {NESTED_PAGES} times "
            f"{most} (option maxPageBytes)"
        )
    return _DecodedSize(rows, size // max(1, rows), 0)


def _heaviest(pages: list[_DecodedSize], rows: int) -> int:
    """Return an upper bound for the size of ``rows`` consecutive rows: the sum of all pages that may contain them."""
    heaviest = begin = covered = size = 0
    for page in pages:
        covered += page.values
        size += page.of(rows)
        # The first and the last of these pages may have a single row each; the rows cover all pages between them.
        while pages[begin] is not page and covered - pages[begin].values - page.values > rows - 2:
            covered -= pages[begin].values
            size -= pages[begin].of(rows)
            begin += 1
        heaviest = max(heaviest, size)
    return heaviest


def _pages(path: str, file: int, chunk: pq.ColumnChunkMetaData, most: int) -> Iterator[_Page]:
    """Yield the pages of a column in a row group, in the order in which Arrow reads them."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    end, seen = start + chunk.total_compressed_size, 0
    while start < end and seen < chunk.num_values:
        page, length = _page_at(chunk.path_in_schema, file, start)
        if max(page.bytes, page.compressed) > most:
            raise DataError(
                f"{path}: column {chunk.path_in_schema} has a page of {page.compressed} bytes that would become "
                f"{page.bytes}, more than {most} (option maxPageBytes)"
            )
        yield page
        seen += page.values if page.kind in _DATA_PAGES else 0
        start += length + page.compressed


def _page_at(column: str, file: int, start: int) -> tuple[_Page, int]:
    """Return the page at a position of the file, and the length of its header."""
    length = _FIRST_READ
    while True:
        data = os.pread(file, length, start)
        try:
            header = CompactReader(data)
            return _page(header.structure()), header.at
        except EndOfData:
            if len(data) < length or length >= _LONGEST_HEADER:
                raise pa.ArrowInvalid(f"column {column}: the header of the page at {start} has no end") from None
            length *= 16
        except ValueError as error:
            raise pa.ArrowInvalid(f"column {column}: the header of the page at {start} is damaged: {error}") from error


def _page(header: Fields) -> _Page:
    kind = natural(header, 1)
    described = header.get({0: 5, _DICTIONARY: 7, 3: 8}.get(kind, 0), {})
    if not isinstance(described, dict):
        raise ValueError("a page without a header of its kind")
    encoding = natural(described, 4 if kind == 3 else 2, 0)
    return _Page(kind, natural(header, 2), natural(header, 3), natural(described, 1, 0), encoding)


def _widest_value(path: str, metadata: pq.FileMetaData, group: int, column: str) -> int:
    """Return the size of the longest value in a dictionary, in bytes; ``sys.maxsize`` if the first row does not use it.

    Arrow reads the dictionary completely when it reads the first row.
    """
    file = pq.ParquetFile(path, metadata=metadata, read_dictionary=[column], pre_buffer=False, buffer_size=1 << 16)
    with file:
        batches = file.iter_batches(batch_size=1, row_groups=[group], columns=[column], use_threads=False)
        leaves = list(_leaves(next(iter(batches)).columns))
    dictionaries = [leaf.dictionary for leaf in leaves if pa.types.is_dictionary(leaf.type) and len(leaf.dictionary)]
    widest = [pc.max(pc.binary_length(values)).as_py() for values in dictionaries]
    return max(widest, default=sys.maxsize)


def _leaves(arrays: list[pa.Array]) -> Iterator[pa.Array]:
    for array in arrays:
        if pa.types.is_struct(array.type):
            yield from _leaves([array.field(index) for index in range(array.type.num_fields)])
        elif pa.types.is_map(array.type):
            yield from _leaves([array.keys, array.items])
        elif pa.types.is_nested(array.type):
            yield from _leaves([array.values])
        else:
            yield array
