"""Fast path for CSV lines: splits a block into columns of texts, with results equal to ``split_line``.

It takes ordinary blocks only: every line has one field per column, and a field either has no quotes or is completely
enclosed by two, without a quote or an escape inside. For such blocks, Arrow's tokenizer returns the same fields as
Spark's.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from penstock.functions.casts.text_numbers import JAVA_BLANKS
from penstock.functions.csv.lines import CsvDialect

_NEWLINE = ord("\n")


def split_block(data: bytes, columns: int, dialect: CsvDialect, comment: str) -> list[pa.Array] | None:
    """Split a block into one string array per column, with null for empty fields and the dialect's ``null_value``.

    Args:
        data: the block, not empty. Lines end with newlines.
        columns: number of columns.
        dialect: rules for fields.
        comment: start of comment lines; empty if there are none.

    Returns:
        The arrays; None if the block is not ordinary.
    """
    if not dialect.delimiter.isascii() or dialect.delimiter in "\n\r\0" or (comment and _has_comment(data, comment)):
        return None
    quoted = bool(dialect.quote) and dialect.quote.encode() in data
    if quoted and not _plainly_quoted(data, dialect):
        return None
    table = _tokens(data, columns, dialect, quoted)
    if table is None or _has_blank_lines(table, dialect):
        return None
    return [_texts(table.column(index), dialect) for index in range(columns)]


def _has_comment(data: bytes, comment: str) -> bool:
    mark = comment.encode()
    return data.startswith(mark) or b"\n" + mark in data


def _plainly_quoted(data: bytes, dialect: CsvDialect) -> bool:
    """Return True if each pair of quotes encloses a whole field of one line, without escapes."""
    quote = dialect.quote.encode()
    if b"\0" in data:
        return False  # Spark's parser uses NUL as the start of a field
    odd = dialect.strip_left or dialect.strip_right or dialect.escape.encode() in data.replace(quote, b"")
    if odd or len(quote) > 1 or (dialect.empty_value != dialect.null_value and quote + quote in data):
        return False
    buffer = np.frombuffer(data, np.uint8)
    at = np.flatnonzero(buffer == quote[0])
    if len(at) % 2:
        return False
    opening, closing = at[::2], at[1::2]
    ends = np.array([_NEWLINE, ord(dialect.delimiter)], np.uint8)
    before = np.isin(buffer[np.maximum(opening - 1, 0)], ends) | (opening == 0)
    after = np.isin(buffer[np.minimum(closing + 1, len(buffer) - 1)], ends) | (closing == len(buffer) - 1)
    newlines = np.flatnonzero(buffer == _NEWLINE)
    same_line = np.searchsorted(newlines, opening) == np.searchsorted(newlines, closing)
    return bool(before.all() and after.all() and same_line.all())


def _tokens(data: bytes, columns: int, dialect: CsvDialect, quoted: bool) -> pa.Table | None:
    names = [str(index) for index in range(columns)]
    try:
        return pyarrow.csv.read_csv(
            pa.py_buffer(data),
            read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(data) + 1),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=dialect.delimiter,
                quote_char=dialect.quote if quoted else False,
                double_quote=False,
                escape_char=False,
                newlines_in_values=False,
                ignore_empty_lines=True,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
            ),
        ).combine_chunks()
    except pa.ArrowInvalid:
        return None  # another number of fields, or bytes that are not UTF-8


def _has_blank_lines(table: pa.Table, dialect: CsvDialect) -> bool:
    """Return True if a line is blank and Arrow returned it as a row: with one column, or blanks as delimiters."""
    if table.num_columns > 1 and dialect.delimiter > " ":
        return False
    blank: pa.ChunkedArray | None = None
    for column in table.columns:
        empty = pc.equal(pc.utf8_trim(column, JAVA_BLANKS), "")
        blank = empty if blank is None else pc.and_(blank, empty)
        if not pc.any(blank).as_py():
            return False
    return True


def _texts(column: pa.ChunkedArray, dialect: CsvDialect) -> pa.Array:
    texts = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if dialect.strip_left:
        texts = pc.utf8_ltrim(texts, JAVA_BLANKS)
    if dialect.strip_right:
        texts = pc.utf8_rtrim(texts, JAVA_BLANKS)
    is_null = pc.equal(texts, "")
    if dialect.null_value:
        is_null = pc.or_(is_null, pc.equal(texts, dialect.null_value))
    return pc.if_else(is_null, pa.scalar(None, pa.string()), texts)
