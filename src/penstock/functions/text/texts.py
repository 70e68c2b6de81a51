"""More string functions by Spark's rules, of distinct values; those of bytes follow Spark's ``ByteArray``."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.room import sized_by
from penstock.functions.core.vectors import both, first, select, to_vector, valid_rows
from penstock.functions.text.letter_case import lower, title
from penstock.functions.text.strings import substring

_INT_MAX = 2**31 - 1
_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
_SILENT = "7"
"""H and W do not even separate equal sounds."""


def initcap(text: str) -> str:
    """The first letter after each blank in title case, all others in lower case."""
    return " ".join(title(word[:1]) + lower(word)[len(lower(word[:1])) :] for word in text.split(" "))


def levenshtein(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


def levenshtein_within(left: str, right: str, limit: int) -> int:
    """-1 for what is farther apart than the limit."""
    distance = levenshtein(left, right)
    return distance if distance <= limit else -1


def soundex(text: str) -> str:
    """A letter and three digits; the text itself if it does not begin with a letter of ASCII."""
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
    """Of UTF-16 units: 1.0 for equal texts, 0.0 if none is near an equal one."""
    a, b = _units(left), _units(right)
    if not a or not b:
        return 1.0 if len(a) == len(b) else 0.0
    reach = max(0, max(len(a), len(b)) // 2 - 1)
    places: list[int] = []  # of the partners in ``b``
    partnered: list[int] = []
    for i, unit in enumerate(a):
        near = range(max(0, i - reach), min(i + reach + 1, len(b)))
        place = next((j for j in near if b[j] == unit and j not in places), None)
        if place is not None:
            places.append(place)
            partnered.append(unit)
    if not places:
        return 0.0
    matches = float(len(places))
    moved = sum(unit != b[j] for unit, j in zip(partnered, sorted(places), strict=True))
    jaro = (matches / len(a) + matches / len(b) + (matches - moved / 2.0) / matches) / 3.0
    start = next((i for i, (x, y) in enumerate(zip(a[:4], b[:4], strict=False)) if x != y), min(4, len(a), len(b)))
    return jaro + start * 0.1 * (1.0 - jaro)


def _units(text: str) -> list[int]:
    return memoryview(text.encode("utf-16-le")).cast("H").tolist()


def overlay(text: str, replacement: str, position: int, length: int) -> str:
    """``replacement`` in the place of ``length`` characters, or of as many as it has."""
    length = length if length >= 0 else len(replacement)
    return substring(text, 1, position - 1) + replacement + substring(text, max(position + length, -_INT_MAX), _INT_MAX)


def overlay_bytes(data: bytes, replacement: bytes, position: int, length: int) -> bytes:
    length = length if length >= 0 else len(replacement)
    return subbytes(data, 1, position - 1) + replacement + subbytes(data, max(position + length, -_INT_MAX), _INT_MAX)


def subbytes(data: bytes, position: int, length: int) -> bytes:
    """As ``substring``, in bytes."""
    start = position - 1 if position > 0 else len(data) + position if position < 0 else 0
    return data[max(start, 0) : max(start + length, 0)]


@sized_by(1)
def pad_bytes(left: bool, data: bytes, length: int, padding: bytes) -> bytes:
    """Cut or padded to ``length`` bytes; an empty padding only cuts."""
    missing = length - len(data)
    if missing <= 0 or not padding:
        return data[: max(length, 0)]
    filler = (padding * (missing // len(padding) + 1))[:missing]
    return filler + data if left else data + filler


def find_in_set(text: str, members: str) -> int:
    """The place of a text among those that commas part, from 1; 0 if it is not there."""
    found = members.split(",")
    return found.index(text) + 1 if "," not in text and text in found else 0


def split_part(text: str, delimiter: str, number: int) -> str:
    """One of the parts, counted from 1 or from the end; empty beyond them.

    Raises:
        EvaluationError: the number is 0.
    """
    if number == 0:
        raise failures.zero_index()
    parts = text.split(delimiter) if delimiter else [text]
    return parts[number - (number > 0)] if abs(number) <= len(parts) else ""


def character(code: int) -> str:
    """Of the lowest eight bits; negative codes give nothing."""
    return chr(code & 0xFF) if code >= 0 else ""


@sized_by(0)
def space(count: int) -> str:
    return " " * count


def contains_bytes(data: bytes, part: bytes) -> bool:
    return part in data


def reverse_bytes(data: bytes) -> bytes:
    return data[::-1]


def luhn_check(text: str) -> bool:
    """Whether the last digit checks the others."""
    if not text:
        return False
    total = 0
    for place, digit in enumerate(reversed(text)):
        if not digit.isdecimal() or ord(digit) > 0xFFFF:
            return False
        value = unicodedata.decimal(digit) * (1 + place % 2)
        total += value // 10 + value % 10
    return total % 10 == 0


def quote(text: str) -> str:
    """In single quotes, those inside escaped."""
    return "'" + text.replace("'", "\\'") + "'"


def always(text: str) -> bool:
    """Texts here are UTF-8: nothing else can be read into a column of them."""
    return True


class Elt(Expression):
    """``elt``: the argument of that number, the only one that is evaluated; numbers of none raise under ANSI."""

    nullable = True

    def __init__(self, index: Expression, choices: Sequence[Expression], data_type: pa.DataType, ansi: bool) -> None:
        self.index = index
        self.choices = tuple(choices)
        self.data_type = data_type
        self.ansi = ansi

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        chosen = self.index.evaluate(batch, mask)
        rows = both(mask, valid_rows(chosen))
        index = to_vector(chosen)
        outside = select(rows, (index < 1) | (index > len(self.choices)))
        if self.ansi and outside.any():
            raise failures.array_index(index[first(outside)], len(self.choices))
        result = pa.nulls(batch.num_rows, self.data_type)
        for number in np.unique(index[select(rows, ~outside)]).tolist():
            here = select(rows, index == number)
            result = pc.if_else(pa.array(here), self.choices[number - 1].evaluate(batch, here), result)
        return result
