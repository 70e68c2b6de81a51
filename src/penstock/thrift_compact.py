"""Reader for structures of Thrift's compact protocol: footers and page headers of Parquet files.

The data may be forged. Therefore nesting is limited, and no memory is allocated for missing elements.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_NESTING = 64
"""Deepest nesting of structures and lists. A Parquet footer needs less than ten levels."""

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""Types of values."""

Fields = dict[int, Any]
"""Structure: field id -> value, in the form that ``CompactReader.value`` returns."""


class EndOfData(ValueError):
    """The data ends within a value."""


def natural(fields: Fields, number: int, default: int | None = None) -> int:
    """Return a field's number, or the default if the field is missing. Raise ValueError for any other value."""
    value = fields.get(number, default)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r:.40} where a natural number is expected")
    return value


class CompactReader:
    """Reader at the position ``at``. All methods raise ValueError for malformed data, EndOfData for missing data.

    Args:
        keep_lists: read the elements of lists; by default lists are skipped.
    """

    def __init__(self, data: bytes, *, keep_lists: bool = False) -> None:
        self._data = data
        self._keep_lists = keep_lists
        self.at = 0

    def structure(self, depth: int = 0) -> Fields:
        return {number: self.value(kind, depth) for number, kind in self.fields(depth)}

    def fields(self, depth: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the id and the type of each field of a structure. The caller reads its value before the next one."""
        if depth > MAX_NESTING:
            raise ValueError("structures are nested too deep")
        last = 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self.signed()
            yield last, head & 0x0F

    def elements(self) -> tuple[int, int]:
        """Read the number and the type of a list's elements. The elements follow."""
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self.number()
        if count > len(self._data) - self.at:  # each element has at least one byte
            raise EndOfData("a list without an end")
        return count, head & 0x0F

    def count_structures(self, kind: int) -> int:
        """Read the number of structures in a list. The structures follow. ``kind``: type of the field."""
        count, of = self.elements() if kind == LIST else (1, kind)
        if kind != LIST or (count and of != STRUCT):
            raise ValueError(f"a value of type {of} where a list of structures is expected")
        return count

    def value(self, kind: int, depth: int = 0) -> Any:
        """Read the value of a field.

        Returns:
            An integer, a structure, or the elements of a kept list. None for a value of any other type.
        """
        if kind in (I16, I32, I64):
            return self.signed()
        if kind == STRUCT:
            return self.structure(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind == BINARY:
            self._skip(self.number())
        elif kind in (I8, DOUBLE):
            self._skip(8 if kind == DOUBLE else 1)
        elif kind == MAP:
            self._skip_map(depth + 1)
        elif kind not in (TRUE, FALSE):  # the type of a boolean field is its value
            raise ValueError(f"no type {kind}")
        return None

    def signed(self) -> int:
        value = self.number()
        return (value >> 1) ^ -(value & 1)

    def number(self) -> int:
        """Read an unsigned number of up to 64 bits, seven bits in a byte."""
        shift = value = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number without an end")

    def _list(self, depth: int) -> list[Any] | None:
        if depth > MAX_NESTING:
            raise ValueError("lists are nested too deep")
        count, of = self.elements()
        if self._keep_lists:
            return [self._element(of, depth) for _ in range(count)]
        for _ in range(count):
            self._element(of, depth)
        return None

    def _skip_map(self, depth: int) -> None:
        if depth > MAX_NESTING:
            raise ValueError("maps are nested too deep")
        if count := self.number():
            kinds = self._byte()
            for _ in range(count):
                self._element(kinds >> 4, depth)
                self._element(kinds & 0x0F, depth)

    def _element(self, kind: int, depth: int) -> Any:
        return self._skip(1) if kind in (TRUE, FALSE) else self.value(kind, depth)

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self._data):
            raise EndOfData("a value without an end")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise EndOfData("a structure without an end")
        self.at += 1
        return self._data[self.at - 1]
