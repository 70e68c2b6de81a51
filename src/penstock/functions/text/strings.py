"""String functions by Spark's rules. Positions and lengths count code points.

The plain functions are Python's over distinct values (``Mapped``); the classes below are Arrow's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import list_array
from penstock.functions.core.room import sized_by
from penstock.functions.core.strict import Eager, Strict

_INT_MAX = 2**31 - 1


class StringLength(Strict):
    """``length`` in code points (bytes of a binary), ``octet_length`` and ``bit_length``."""

    def __init__(self, unit: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), pa.int32(), nullable)
        self.unit = unit

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        by_character = self.unit == "character" and pa.types.is_string(arrays[0].type)
        lengths = pc.utf8_length(arrays[0]) if by_character else pc.binary_length(arrays[0])
        return pc.multiply(lengths, pa.scalar(8, pa.int32())) if self.unit == "bit" else lengths


class TrimSpaces(Strict):
    """``trim``, ``ltrim``, ``rtrim`` of blanks (U+0020 only)."""

    def __init__(self, side: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.side = side

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        trim = {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[self.side]
        return trim(arrays[0], characters=" ")


class MatchConstant(Strict):
    """``contains``, ``startswith``, ``endswith`` of a constant."""

    def __init__(self, where: str, child: Expression, pattern: str, nullable: bool = True) -> None:
        super().__init__((child,), pa.bool_(), nullable)
        self.where = where
        self.pattern = pattern

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return _MATCHES[self.where](arrays[0], pattern=self.pattern)


_MATCHES = {"Contains": pc.match_substring, "StartsWith": pc.starts_with, "EndsWith": pc.ends_with}


class Concat(Eager):
    """``concat`` and ``||``: null if any part is."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pc.binary_join_element_wise(*arrays, pa.scalar("", self.data_type))


class ConcatWithSeparator(Expression):
    """``concat_ws``: skips nulls, those in arrays as well; null only if the separator is."""

    data_type = pa.string()

    def __init__(self, separator: Expression, children: Sequence[Expression]) -> None:
        self.separator = separator
        self.children = tuple(children)
        self.nullable = separator.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        separator = self.separator.evaluate(batch, mask)
        parts = [_as_text(child.evaluate(batch, mask), separator) for child in self.children]
        # Not Arrow's null_handling="skip": it drops rows (pyarrow 26).
        nothing = pa.scalar("", pa.string())
        pieces = [pc.if_else(pc.is_valid(separator), nothing, separator)]
        begun = pa.repeat(pa.scalar(False), batch.num_rows)
        for part in parts:
            joined = pc.binary_join_element_wise(pc.if_else(begun, separator, nothing), part, nothing)
            pieces.append(pc.fill_null(joined, nothing))
            begun = pc.or_(begun, pc.is_valid(part))
        return pc.binary_join_element_wise(*pieces, nothing)


def _as_text(part: pa.Array, separator: pa.Array) -> pa.Array:
    """Of arrays the elements that are not null, joined; null if there is none."""
    if not pa.types.is_list(part.type):
        return part
    elements, parents = pc.list_flatten(part), pc.list_parent_indices(part)
    there = elements.is_valid()
    sizes = np.bincount(parents.filter(there).to_numpy(), minlength=len(part))
    lists = list_array(sizes, elements.filter(there), pa.list_(pa.string()))
    joined = pc.binary_join(lists, pc.fill_null(separator, ""))
    return pc.if_else(pa.array(sizes > 0), joined, pa.scalar(None, pa.string()))


def trim_characters(side: str, text: str, characters: str) -> str:
    strip = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}[side]
    return strip(text, characters)


def substring(text: str, position: int, length: int) -> str:
    """One-based; 0 counts as 1, and a negative position counts from the end and may lie before the start."""
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = min(start + length, _INT_MAX)
    return text[max(start, 0) : max(end, 0)] if end > start else ""


def replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


def contains(text: str, part: str) -> bool:
    return part in text


def locate(part: str, text: str, start: int) -> int:
    """One-based position of ``part`` at or after ``start``; 0 if there is none, 1 for the empty part."""
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def instr(text: str, part: str) -> int:
    return text.find(part) + 1


@sized_by(1)
def pad(left: bool, text: str, length: int, padding: str) -> str:
    """Cut or padded to ``length`` code points; an empty padding only cuts."""
    missing = length - len(text)
    if missing <= 0 or not padding:
        return text[: max(length, 0)]
    filler = (padding * (missing // len(padding) + 1))[:missing]
    return filler + text if left else text + filler


def reverse(text: str) -> str:
    return text[::-1]


@sized_by(1)
def repeat(text: str, times: int) -> str:
    return text * times


def ascii_code(text: str) -> int:
    return ord(text[0]) if text else 0


def translate(text: str, matching: str, replacement: str) -> str:
    """Characters of ``matching`` become those of ``replacement`` at the same place, or vanish beyond its end."""
    return text.translate(_translation(matching, replacement))


@lru_cache(maxsize=64)
def _translation(matching: str, replacement: str) -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for i, character in enumerate(matching):
        target = replacement[i] if i < len(replacement) else None
        table.setdefault(ord(character), None if target == "\0" else target)
    return table


def substring_index(text: str, delimiter: str, count: int) -> str:
    """What comes before the ``count``-th delimiter, or after it counting from the end; matches may overlap."""
    if not delimiter or count == 0:
        return ""
    place = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        if count > 0:
            place = text.find(delimiter, place + 1)
        else:
            # The next match to the left must begin before this one.
            place = text.rfind(delimiter, 0, max(place - 1 + len(delimiter), 0)) if place > 0 else -1
        if place < 0:
            return text
    return text[:place] if count > 0 else text[place + len(delimiter) :]


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def sha2(data: bytes, bits: int) -> str | None:
    """None for other lengths than 224, 256 (or 0), 384 and 512."""
    make = _SHA2.get(bits)
    return None if make is None else make(data).hexdigest()


_SHA2: dict[int, Callable[[bytes], hashlib._Hash]] = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}
