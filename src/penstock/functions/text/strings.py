"""String functions by Spark's rules. Positions and lengths are in code points.

``ScalarFunction`` applies the plain functions to distinct values. The classes compute on Arrow arrays. Functions of
bytes follow Spark's ``ByteArray``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import list_array
from penstock.functions.core.size_limits import sized_by
from penstock.functions.core.strict import Eager, Strict
from penstock.functions.core.vectors import first, intersect_masks, select, to_vector, valid_rows

_INT_MAX = 2**31 - 1


class StringLength(Strict):
    """``length`` in code points (of a binary: in bytes), ``octet_length`` and ``bit_length``."""

    def __init__(self, unit: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), pa.int32(), nullable)
        self.unit = unit

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        by_character = self.unit == "character" and pa.types.is_string(arrays[0].type)
        lengths = pc.utf8_length(arrays[0]) if by_character else pc.binary_length(arrays[0])
        return pc.multiply(lengths, pa.scalar(8, pa.int32())) if self.unit == "bit" else lengths


class TrimSpaces(Strict):
    """``trim``, ``ltrim`` and ``rtrim`` of blanks (only U+0020)."""

    def __init__(self, side: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.side = side

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        trim = {"both": pc.utf8_trim, "left": pc.utf8_ltrim, "right": pc.utf8_rtrim}[self.side]
        return trim(arrays[0], characters=" ")


class MatchConstant(Strict):
    """``contains``, ``startswith`` and ``endswith`` with a constant."""

    def __init__(self, where: str, child: Expression, pattern: str, nullable: bool = True) -> None:
        super().__init__((child,), pa.bool_(), nullable)
        self.where = where
        self.pattern = pattern

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return _MATCHES[self.where](arrays[0], pattern=self.pattern)


_MATCHES = {"Contains": pc.match_substring, "StartsWith": pc.starts_with, "EndsWith": pc.ends_with}


class Concat(Eager):
    """``concat`` and ``||``; null if any part is null."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pc.binary_join_element_wise(*arrays, pa.scalar("", self.data_type))


class ConcatWithSeparator(Expression):
    """``concat_ws``. It skips nulls, also in arrays, and is null only if the separator is null."""

    data_type = pa.string()

    def __init__(self, separator: Expression, children: Sequence[Expression]) -> None:
        self.separator = separator
        self.children = tuple(children)
        self.nullable = separator.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        separator = self.separator.evaluate(batch, mask)
        parts = [_as_text(child.evaluate(batch, mask), separator) for child in self.children]
        # Arrow's null_handling="skip" is not used: it drops rows (pyarrow 26).
        nothing = pa.scalar("", pa.string())
        pieces = [pc.if_else(pc.is_valid(separator), nothing, separator)]
        begun = pa.repeat(pa.scalar(False), batch.num_rows)
        for part in parts:
            joined = pc.binary_join_element_wise(pc.if_else(begun, separator, nothing), part, nothing)
            pieces.append(pc.fill_null(joined, nothing))
            begun = pc.or_(begun, pc.is_valid(part))
        return pc.binary_join_element_wise(*pieces, nothing)


def _as_text(part: pa.Array, separator: pa.Array) -> pa.Array:
    """Join the non-null elements of each array; null if there are none. Other columns stay the same."""
    if not pa.types.is_list(part.type):
        return part
    elements, parents = pc.list_flatten(part), pc.list_parent_indices(part)
    is_valid = elements.is_valid()
    sizes = np.bincount(parents.filter(is_valid).to_numpy(), minlength=len(part))
    lists = list_array(sizes, elements.filter(is_valid), pa.list_(pa.string()))
    joined = pc.binary_join(lists, pc.fill_null(separator, ""))
    return pc.if_else(pa.array(sizes > 0), joined, pa.scalar(None, pa.string()))


def trim_characters(side: str, text: str, characters: str) -> str:
    strip = {"both": str.strip, "left": str.lstrip, "right": str.rstrip}[side]
    return strip(text, characters)


def substring(text: str, position: int, length: int) -> str:
    """Return a substring. Positions are one-based.

    Position 0 means 1. A negative position counts from the end and may be before the start.
    """
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = min(start + length, _INT_MAX)
    return text[max(start, 0) : max(end, 0)] if end > start else ""


def replace(text: str, search: str, replacement: str) -> str:
    return text.replace(search, replacement) if search else text


def contains(text: str, part: str) -> bool:
    return part in text


def locate(part: str, text: str, start: int) -> int:
    """Return the one-based position of ``part`` at or after ``start``.

    It is 0 if there is none or ``start`` is below 1, and 1 for an empty part.
    """
    if start < 1:
        return 0
    return text.find(part, start - 1) + 1 if part else 1


def instr(text: str, part: str) -> int:
    return text.find(part) + 1


@sized_by(1)
def pad(left: bool, text: str, length: int, padding: str) -> str:
    """Cut or pad to ``length`` code points. An empty padding only cuts."""
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
    """Replace each character of ``matching`` by that of ``replacement`` at the same index.

    Characters without a counterpart, or with the counterpart U+0000, are removed.
    """
    return text.translate(_translation(matching, replacement))


@lru_cache(maxsize=64)
def _translation(matching: str, replacement: str) -> dict[int, str | None]:
    table: dict[int, str | None] = {}
    for i, character in enumerate(matching):
        target = replacement[i] if i < len(replacement) else None
        table.setdefault(ord(character), None if target == "\0" else target)
    return table


def substring_index(text: str, delimiter: str, count: int) -> str:
    """Return the text before the ``count``-th delimiter, or after it from the end if negative. Matches may overlap."""
    if not delimiter or count == 0:
        return ""
    index = -1 if count > 0 else len(text) - len(delimiter) + 1
    for _ in range(abs(count)):
        if count > 0:
            index = text.find(delimiter, index + 1)
        else:
            # The next match to the left must begin before this one.
            index = text.rfind(delimiter, 0, max(index - 1 + len(delimiter), 0)) if index > 0 else -1
        if index < 0:
            return text
    return text[:index] if count > 0 else text[index + len(delimiter) :]


# Lower -> upper case of letters added after Unicode 14 (Python 3.11). Newer Python versions map them in the same way.
_LATE_PAIRS = {
    0x019B: 0xA7DC, 0x0264: 0xA7CB, 0x1C8A: 0x1C89, 0xA7CD: 0xA7CC, 0xA7CF: 0xA7CE, 0xA7D3: 0xA7D2, 0xA7D5: 0xA7D4,
    0xA7DB: 0xA7DA,
    **{0x10D70 + i: 0x10D50 + i for i in range(22)},
    **{0x16EBB + i: 0x16EA0 + i for i in range(25)},
}  # fmt: skip
_LATE_PAIRS_INVERTED = {upper: lower for lower, upper in _LATE_PAIRS.items()}


def upper(text: str) -> str:
    """Return the upper case by full case mapping, independent of a locale: ``ß`` becomes ``SS``."""
    return text.upper() if text.isascii() else text.translate(_LATE_PAIRS).upper()


def title(letter: str) -> str:
    """Return the full title case of one letter: ``ﬁ`` becomes ``Fi``."""
    return letter.translate(_LATE_PAIRS).title()


def lower(text: str) -> str:
    """Return the lower case by full case mapping, independent of a locale, with the final sigma."""
    return text.lower() if text.isascii() else text.translate(_LATE_PAIRS_INVERTED).lower()


_INT_MAX = 2**31 - 1
_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
_SILENT = "7"
"""Code of H and W. They do not separate two equal sounds."""


def initcap(text: str) -> str:
    """Convert the first letter after each blank to title case and all other letters to lower case."""
    return " ".join(title(word[:1]) + lower(word)[len(lower(word[:1])) :] for word in text.split(" "))


def levenshtein(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


def levenshtein_within(left: str, right: str, limit: int) -> int:
    """Return the distance, or -1 if it exceeds the limit."""
    distance = levenshtein(left, right)
    return distance if distance <= limit else -1


def soundex(text: str) -> str:
    """Return a letter and three digits; the text itself if it does not begin with an ASCII letter."""
    if not text or not (text[0].isascii() and text[0].isalpha()):
        return text
    code, last = text[0].upper(), _SOUNDS[text[0].upper()]
    for character in text[1:]:
        sound = _SOUNDS.get(character.upper() if character.isascii() else "", "0")
        if sound == _SILENT:
            continue
        if sound not in ("0", last):
            code += sound
            if len(code) == 4:
                break
        last = sound
    return code.ljust(4, "0")


def jaro_winkler(left: str, right: str) -> float:
    """Return the similarity of the UTF-16 units.

    It is 1.0 for equal texts, and 0.0 if no unit has an equal one near it.
    """
    a, b = _units(left), _units(right)
    if not a or not b:
        return 1.0 if len(a) == len(b) else 0.0
    reach = max(0, max(len(a), len(b)) // 2 - 1)
    partners: list[int] = []  # indices in ``b``
    partnered: list[int] = []
    for i, unit in enumerate(a):
        near = range(max(0, i - reach), min(i + reach + 1, len(b)))
        partner = next((j for j in near if b[j] == unit and j not in partners), None)
        if partner is not None:
            partners.append(partner)
            partnered.append(unit)
    if not partners:
        return 0.0
    matches = float(len(partners))
    moved = sum(unit != b[j] for unit, j in zip(partnered, sorted(partners), strict=True))
    jaro = (matches / len(a) + matches / len(b) + (matches - moved / 2.0) / matches) / 3.0
    start = next((i for i, (x, y) in enumerate(zip(a[:4], b[:4], strict=False)) if x != y), min(4, len(a), len(b)))
    return jaro + start * 0.1 * (1.0 - jaro)


def _units(text: str) -> list[int]:
    return memoryview(text.encode("utf-16-le")).cast("H").tolist()


def overlay(text: str, replacement: str, position: int, length: int) -> str:
    """Replace ``length`` characters by ``replacement``.

    If ``length`` is negative, the length of the replacement is used.
    """
    length = length if length >= 0 else len(replacement)
    return substring(text, 1, position - 1) + replacement + substring(text, max(position + length, -_INT_MAX), _INT_MAX)


def overlay_bytes(data: bytes, replacement: bytes, position: int, length: int) -> bytes:
    length = length if length >= 0 else len(replacement)
    return subbytes(data, 1, position - 1) + replacement + subbytes(data, max(position + length, -_INT_MAX), _INT_MAX)


def subbytes(data: bytes, position: int, length: int) -> bytes:
    """Return a substring of bytes; see ``substring``."""
    start = position - 1 if position > 0 else len(data) + position if position < 0 else 0
    return data[max(start, 0) : max(start + length, 0)]


@sized_by(1)
def pad_bytes(left: bool, data: bytes, length: int, padding: bytes) -> bytes:
    """Cut or pad to ``length`` bytes. An empty padding only cuts."""
    missing = length - len(data)
    if missing <= 0 or not padding:
        return data[: max(length, 0)]
    filler = (padding * (missing // len(padding) + 1))[:missing]
    return filler + data if left else data + filler


def find_in_set(text: str, members: str) -> int:
    """Return the one-based position of a text in a comma-separated list; 0 if it is not in the list."""
    found = members.split(",")
    return found.index(text) + 1 if "," not in text and text in found else 0


def split_part(text: str, delimiter: str, number: int) -> str:
    """Return a part by its number, from 1 or, if negative, from the end; empty if there is no such part.

    Raises:
        EvaluationError: the number is 0.
    """
    if number == 0:
        raise failures.zero_index()
    parts = text.split(delimiter) if delimiter else [text]
    return parts[number - (number > 0)] if abs(number) <= len(parts) else ""


def character(code: int) -> str:
    """Return the character of the lowest eight bits; the empty text for negative codes."""
    return chr(code & 0xFF) if code >= 0 else ""


@sized_by(0)
def space(count: int) -> str:
    return " " * count


def contains_bytes(data: bytes, part: bytes) -> bool:
    return part in data


def reverse_bytes(data: bytes) -> bytes:
    return data[::-1]


def luhn_check(text: str) -> bool:
    """Return True if the last digit is the check digit of the others."""
    if not text:
        return False
    total = 0
    for index, digit in enumerate(reversed(text)):
        if not digit.isdecimal() or ord(digit) > 0xFFFF:
            return False
        value = unicodedata.decimal(digit) * (1 + index % 2)
        total += value // 10 + value % 10
    return total % 10 == 0


def quote(text: str) -> str:
    """Put a text in single quotes and escape single quotes inside."""
    return "'" + text.replace("'", "\\'") + "'"


def is_valid_utf8(text: str) -> bool:
    """Return True. A column of texts can only contain valid UTF-8."""
    return True


class Elt(Expression):
    """``elt``: the argument with the given number. Only this argument is evaluated at a row.

    A number without an argument raises in ANSI mode and gives null otherwise.
    """

    nullable = True

    def __init__(self, index: Expression, choices: Sequence[Expression], data_type: pa.DataType, ansi: bool) -> None:
        self.index = index
        self.choices = tuple(choices)
        self.data_type = data_type
        self.ansi = ansi

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        chosen = self.index.evaluate(batch, mask)
        rows = intersect_masks(mask, valid_rows(chosen))
        index = to_vector(chosen)
        outside = select(rows, (index < 1) | (index > len(self.choices)))
        if self.ansi and outside.any():
            raise failures.array_index(index[first(outside)], len(self.choices))
        result = pa.nulls(batch.num_rows, self.data_type)
        for number in np.unique(index[select(rows, ~outside)]).tolist():
            selected = select(rows, index == number)
            result = pc.if_else(pa.array(selected), self.choices[number - 1].evaluate(batch, selected), result)
        return result
