"""JSON texts as Spark's parser (Jackson, with Spark's settings) reads them.

Beyond the standard it takes texts in single quotes and the numbers NaN, Infinity and -INF, and it reads one value from
the start of a text and ignores what follows. Values keep their source text, which a string column gets unchanged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_SPECIAL = re.compile(r"NaN|Infinity|[+-](?:INF|Infinity)")
_WORD_END = re.compile(r"(?![A-Za-z0-9_$])")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\\x00-\x1f]|\\.)*)'")
_DECODER = json.JSONDecoder()
_WORDS = {"true": True, "false": False, "null": None}
MAX_DEPTH = 500
"""Nesting that is still read; deeper texts are malformed (Jackson stops at 1,000)."""


@dataclass(frozen=True)
class JsonNumber:
    """A number as it is written."""

    text: str

    @property
    def is_integer(self) -> bool:
        return self.text.lstrip("-").isdigit()


@dataclass(frozen=True)
class JsonObject:
    """Members in order, repeated names included."""

    members: list[tuple[str, JsonValue]]
    text: str


@dataclass(frozen=True)
class JsonArray:
    items: list[JsonValue]
    text: str


JsonValue: TypeAlias = "bool | str | JsonNumber | JsonObject | JsonArray | None"


def parse_json(text: str) -> JsonValue:
    """The value at the start of ``text``.

    Raises:
        ValueError: there is none. The message says where.
    """
    return _Parser(text).value(0)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH}")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        if char in ('"', "'"):
            return self._string()
        special = _SPECIAL.match(self._text, self._at)
        if special is not None:
            self._advance(special.end())
            return JsonNumber(special[0])
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._advance(number.end())
            return JsonNumber(number[0])
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._advance(self._at + len(word))
                return value
        raise self._unexpected()

    def _peek(self) -> str:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def _advance(self, end: int) -> None:
        """Past a word or number, which must not run into another."""
        if _WORD_END.match(self._text, end) is None:
            raise self._unexpected()
        self._at = end

    def _unexpected(self) -> ValueError:
        found = self._text[self._at : self._at + 10]
        return ValueError(f"unexpected {found!r} at column {self._at + 1}" if found else "the text ends too early")

    def _object(self, depth: int) -> JsonObject:
        start = self._at
        self._at += 1
        members: list[tuple[str, JsonValue]] = []
        if self._peek() == "}":
            self._at += 1
            return JsonObject(members, self._text[start : self._at])
        while True:
            if self._peek() not in ('"', "'"):
                raise self._unexpected()
            name = self._string()
            if self._peek() != ":":
                raise self._unexpected()
            self._at += 1
            members.append((name, self.value(depth + 1)))
            if self._ends_with("}"):
                return JsonObject(members, self._text[start : self._at])

    def _array(self, depth: int) -> JsonArray:
        start = self._at
        self._at += 1
        items: list[JsonValue] = []
        if self._peek() == "]":
            self._at += 1
            return JsonArray(items, self._text[start : self._at])
        while True:
            items.append(self.value(depth + 1))
            if self._ends_with("]"):
                return JsonArray(items, self._text[start : self._at])

    def _ends_with(self, closing: str) -> bool:
        """Past a comma (False) or the closing bracket (True)."""
        char = self._peek()
        if char not in (",", closing) or not char:
            raise self._unexpected()
        self._at += 1
        return char == closing

    def _string(self) -> str:
        if self._text[self._at] == '"':
            text, self._at = _DECODER.raw_decode(self._text, self._at)
            return str(text)
        match = _SINGLE_QUOTED.match(self._text, self._at)
        if match is None:
            raise self._unexpected()
        self._at = match.end()
        # Rewritten with double quotes, for the escapes.
        body = re.sub(r'\\.|"', lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), match[1])
        return str(json.loads(f'"{body}"'))
