"""Fast paths of string functions: Arrow kernels, or operations on all bytes, with Spark's results.

Each function is a ``ColumnFunction`` whose constant arguments come first. Functions that treat each byte as a character
leave non-ASCII texts to the exact path.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.ragged import as_type
from penstock.functions.core.text_buffers import MAX_BYTES, beyond_ascii, bytes_of, texts_of
from penstock.functions.core.vectors import Vector, null_outside
from penstock.functions.patterns.re2_patterns import GROUP

_INT_MAX = 2**31 - 1
_BLANK, _SHIFT = ord(" "), np.uint8(32)
_A, _Z = ord("a"), ord("z")
_HEX = np.array([list(f"{value:02X}".encode()) for value in range(256)], np.uint8)


def upper(array: pa.Array, rows: Mask | None) -> FastResult:
    return FastResult(pc.ascii_upper(array), beyond_ascii(array))


def lower(array: pa.Array, rows: Mask | None) -> FastResult:
    return FastResult(pc.ascii_lower(array), beyond_ascii(array))


def initcap(array: pa.Array, rows: Mask | None) -> FastResult:
    data, offsets = bytes_of(pc.ascii_lower(array))
    first = np.zeros(len(data) + 1, np.bool_)
    first[1:-1] = data[:-1] == _BLANK
    first[offsets[:-1]] = True
    raised = data - _SHIFT * (first[:-1] & (data >= _A) & (data <= _Z))
    return FastResult(texts_of(raised, offsets, array.type, rows), beyond_ascii(array))


def reverse(array: pa.Array, rows: Mask | None) -> FastResult:
    return FastResult(pc.utf8_reverse(array))


def substring(position: int, length: int, array: pa.Array, rows: Mask | None) -> FastResult:
    start = position - 1 if position > 0 else position
    stop = min(start + length, _INT_MAX)
    if length <= 0 or stop <= start:
        return FastResult(pc.utf8_slice_codeunits(array, 0, 0))
    return FastResult(pc.utf8_slice_codeunits(array, start, None if start < 0 <= stop else stop))


def replace(search: str, replacement: str, array: pa.Array, rows: Mask | None) -> FastResult | None:
    if not search:
        return FastResult(array)
    grown = len(replacement.encode()) - len(search.encode())
    if not _fits_in_column(array, 1 + max(grown, 0)):
        return None
    return FastResult(pc.replace_substring(array, pattern=search, replacement=replacement))


def repeat(times: int, array: pa.Array, rows: Mask | None) -> FastResult | None:
    return FastResult(pc.binary_repeat(array, max(times, 0))) if _fits_in_column(array, max(times, 0)) else None


def pad(left: bool, length: int, padding: str, array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Pad with at most one character, because Arrow accepts no more."""
    length = max(length, 0)
    if len(padding) > 1 or length * len(padding.encode()) * len(array) > MAX_BYTES - array.nbytes:
        return None
    cut = pc.utf8_slice_codeunits(array, 0, length)
    if not padding:
        return FastResult(cut)
    return FastResult((pc.utf8_lpad if left else pc.utf8_rpad)(cut, length, padding=padding))


def trim_characters(side: str, characters: str, array: pa.Array, rows: Mask | None) -> FastResult:
    if not characters:
        return FastResult(array)
    trim = {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[side]
    return FastResult(trim(array, characters=characters))


def locate(start: int, part: str, array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Locate ``part`` by bytes.

    A position is exact only in ASCII texts; the result for a missing part is always exact.
    """
    if not part or start < 1:
        return None
    skipped = pa.scalar(start - 1, pa.int32())
    found = pc.find_substring(array if start == 1 else pc.utf8_slice_codeunits(array, start - 1), pattern=part)
    is_found = pc.greater_equal(found, 0)
    values = pc.if_else(is_found, pc.add(pc.add(found, skipped), 1), 0).cast(pa.int32())
    return FastResult(values, beyond_ascii(array))


def translate(matching: str, replacement: str, array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Translate ASCII characters. Their bytes are not part of any other character."""
    if not (matching + replacement).isascii():
        return None
    table, kept = np.arange(256).astype(np.uint8), np.ones(256, np.bool_)
    for i, code in reversed(list(enumerate(matching.encode()))):  # the first of equal characters wins
        kept[code] = i < len(replacement) and replacement[i] != "\0"
        table[code] = ord(replacement[i]) if kept[code] else 0
    data, offsets = bytes_of(array)
    if kept.all():
        return FastResult(texts_of(table[data], offsets, array.type, rows))
    return FastResult(_filtered_bytes(table[data], kept[data], offsets, array.type, rows))


def substring_index(delimiter: str, count: int, array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Evaluate ``substring_index`` with a delimiter of one byte."""
    if len(delimiter) != 1 or not delimiter.isascii() or count == 0:
        return None
    data, offsets = bytes_of(array)
    begins, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    hits = np.flatnonzero(data == ord(delimiter))
    if count > 0:
        index = np.searchsorted(hits, begins) + (count - 1)
        hit = np.append(hits, len(data))[np.minimum(index, len(hits))]
        ends = np.minimum(hit, ends)
    else:
        index = np.searchsorted(hits, ends) + count
        hit = np.append(hits, -1)[np.where(index >= 0, index, -1)]
        begins = np.maximum(hit + 1, begins)
    marks = np.zeros(len(data) + 1, np.int8)
    # Each position starts at most one piece and ends at most one. But an empty piece starts and ends at the same
    # position.
    some = begins < ends
    marks[begins[some]] = 1
    marks[ends[some]] -= 1
    return FastResult(
        _filtered_bytes(data, np.cumsum(marks[:-1], dtype=np.int8).view(np.bool_), offsets, array.type, rows)
    )


def split(separator: str, limit: int, data_type: pa.DataType, array: pa.Array, rows: Mask | None) -> FastResult:
    parts = pc.split_pattern(array, pattern=separator, max_splits=limit - 1 if limit > 0 else -1)
    return FastResult(as_type(parts, data_type))


def matches(pattern: str, array: pa.Array, rows: Mask | None) -> FastResult:
    """Match a pattern as returned by ``like_to_re2`` or ``re2_pattern``."""
    return FastResult(pc.match_substring_regex(null_outside(array, rows), pattern=pattern))


def regexp_extract(pattern: str, array: pa.Array, rows: Mask | None) -> FastResult:
    """Extract the group of a pattern as returned by ``re2_pattern``."""
    texts = null_outside(array, rows)
    found = pc.extract_regex(texts, pattern=pattern)
    return FastResult(pc.if_else(found.is_valid(), found.field(GROUP), pc.if_else(texts.is_valid(), "", None)))


def regexp_instr(pattern: str, array: pa.Array, rows: Mask | None) -> FastResult:
    """Find a pattern as returned by ``re2_pattern``; see ``patterns.regexp_instr``."""
    texts = null_outside(array, rows)
    byte_offsets = pc.fill_null(pc.find_substring_regex(texts, pattern=pattern), -1).to_numpy(zero_copy_only=False)
    data, offsets = bytes_of(texts)
    characters = np.zeros(len(data) + 1, np.int64)
    np.cumsum((data & 0xC0) != 0x80, out=characters[1:])  # all bytes except those that continue a character
    begins = offsets[:-1].astype(np.int64)
    found = characters[begins + np.maximum(byte_offsets, 0)] - characters[begins] + 1
    return FastResult(pc.if_else(texts.is_valid(), pa.array(np.where(byte_offsets < 0, 0, found), pa.int32()), None))


def regexp_replace(pattern: str, replacement: str, array: pa.Array, rows: Mask | None) -> FastResult:
    """Replace the matches of a pattern as returned by ``re2_pattern``, which must not match the empty text.

    The replacement is in RE2's notation.
    """
    return FastResult(pc.replace_substring_regex(null_outside(array, rows), pattern=pattern, replacement=replacement))


def regexp_split(pattern: str, limit: int, data_type: pa.DataType, array: pa.Array, rows: Mask | None) -> FastResult:
    """Split by a pattern as returned by ``re2_pattern``.

    The pattern must not match the empty text and must not be anchored at the start: Arrow searches each match in the
    rest of the text, so that an anchor would match again there.
    """
    parts = pc.split_pattern_regex(
        null_outside(array, rows), pattern=pattern, max_splits=limit - 1 if limit > 0 else -1
    )
    return FastResult(as_type(parts, data_type))


def hexadecimal(array: pa.Array, rows: Mask | None) -> FastResult | None:
    """Write texts and binaries in hexadecimal."""
    data, offsets = bytes_of(array)
    if 2 * len(data) > MAX_BYTES:
        return None
    return FastResult(texts_of(_HEX[data].reshape(-1), offsets.astype(np.int64) * 2, pa.string(), rows))


def _fits_in_column(array: pa.Array, times: int) -> bool:
    """Return True if ``times`` times the bytes of the array fit into a column."""
    data, _ = bytes_of(array)
    return len(data) * times <= MAX_BYTES


def _filtered_bytes(data: Vector, kept: Mask, offsets: Vector, data_type: pa.DataType, rows: Mask | None) -> pa.Array:
    """Return the texts without the bytes that are not kept."""
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return texts_of(data[kept], before[offsets], data_type, rows)
