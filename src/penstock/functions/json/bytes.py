"""Reader of JSON documents as bytes, by Jackson's rules: UTF-8 is decoded string by string.

Malformed UTF-8 is an error of the string that contains it, not of the document: reading continues after the malformed
byte. Jackson checks only lead and continuation bytes, so that it accepts overlong forms. It rejects surrogates in
strings whose text is requested.
"""

from __future__ import annotations

import re

from penstock.functions.json.tokens import (
    LONGEST_TOKEN_SHOWN,
    JsonError,
    JsonReader,
    JsonRules,
    continues_name,
    joined_surrogates,
)
from penstock.functions.text.java_utf8 import decode_as_java

_UTF8_MARK = b"\xef\xbb\xbf"
_MARKS = (
    (b"\0\0\xfe\xff", "utf-32-be"), (b"\xff\xfe\0\0", "utf-32-le"), (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe", "utf-16-le"),
)  # fmt: skip
_UNUSUAL_ORDERS = (b"\0\0\xff\xfe", b"\xfe\xff\0\0")
_SHORTEST_WITH_MARK = 4
_HIGH = re.compile("[\ud800-\udbff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME_RULES = JsonRules(control_characters=True)


def json_reader(document: bytes, rules: JsonRules, has_source: bool = True) -> JsonReader:
    """Return a reader of the document's tokens. As in Jackson, the first bytes decide whether it is UTF-16 or UTF-32.

    Args:
        document: the bytes of one JSON document.
        rules: the accepted extensions of standard JSON.
        has_source: True if Spark's parser can return to the bytes, so that ``source()`` is known.

    Raises:
        JsonError: the document has an encoding that Jackson does not read.
    """
    encoding, begin = _encoding(document)
    if encoding == "utf-8":
        return JsonByteReader(document[begin:], rules, has_source)
    try:
        errors = "replace" if encoding.startswith("utf-16") else "strict"
        text = document[begin:].decode(encoding, errors)
        return _CharacterReader(text, rules) if has_source else JsonReader(text, rules)
    except UnicodeDecodeError as error:
        raise JsonError(str(error)) from None


class _CharacterReader(JsonReader):
    """Reader of UTF-16 or UTF-32.

    Jackson counts characters in these encodings, so that Spark cannot return to the bytes of a value.
    """

    def source(self) -> str | None:
        """Skip the value and raise JsonError.

        In a whole file, Spark returns null for the value. In a line it returns an empty string, which hides the loss,
        so that this is an error too.
        """
        self.skip_children()
        raise JsonError("Spark does not find the text of a nested value in UTF-16 or UTF-32")


def _encoding(document: bytes) -> tuple[str, int]:
    """Return the codec and the length of the byte order mark in bytes."""
    head = document[:_SHORTEST_WITH_MARK]
    zeros = tuple(byte == 0 for byte in head)
    if len(head) == _SHORTEST_WITH_MARK:
        if head.startswith(_UTF8_MARK):
            return "utf-8", len(_UTF8_MARK)
        if head in _UNUSUAL_ORDERS:
            raise JsonError("UTF-32 in an unusual byte order")
        for mark, encoding in _MARKS:
            if head.startswith(mark):
                return encoding, len(mark)
        if zeros[:3] == (True, True, True) or zeros[1:] == (True, True, True):
            return ("utf-32-be" if zeros[0] else "utf-32-le"), 0
        if sum(zeros) == _SHORTEST_WITH_MARK - 1:
            raise JsonError("UTF-32 in an unusual byte order")
    if len(head) > 1 and (zeros[0] or zeros[1]):
        return ("utf-16-be" if zeros[0] else "utf-16-le"), 0
    return "utf-8", 0


class JsonByteReader(JsonReader):
    """Reader of a document in UTF-8. Each character of the text for the base class is one byte."""

    def __init__(self, document: bytes, rules: JsonRules, has_source: bool = True) -> None:
        super().__init__(document.decode("latin-1"), rules)
        self._has_source = has_source
        self._in_name = False
        self._is_skipping = False

    def source(self) -> str | None:
        if not self._has_source:
            return None
        begin = self._begin
        self.skip_children()
        return decode_as_java(self._text[begin : self._position].encode("latin-1"))

    def _name(self, character: str) -> str:
        """Read a name up to its closing quote, then decode it."""
        self._in_name = True
        try:
            return _decoded(super()._name(character))
        finally:
            self._in_name = False

    def _skip_string(self) -> None:
        self._is_skipping = True
        try:
            super()._skip_string()
        finally:
            self._is_skipping = False

    def _escaped(self) -> str:
        character = super()._escaped()
        if not self._in_name:
            return character
        if _HIGH.match(character) and self._take() == "\\":
            character = joined_surrogates(character + super()._escaped())
        try:
            return character.encode().decode("latin-1")
        except UnicodeEncodeError:
            raise JsonError("a lone surrogate in a name") from None

    def _plain_run(self, quote: str) -> str:
        begin = self._position
        run = super()._plain_run(quote)
        if self._in_name or run.isascii():
            return run
        try:
            return run.encode("latin-1").decode()
        except UnicodeDecodeError:
            self._position = begin
            return self.decoded_run(f"{quote}\\")

    def decoded_run(self, stops: str) -> str:
        """Decode character by character, because a quote may be the byte that ends a malformed character."""
        out: list[str] = []
        while (character := self._text[self._position : self._position + 1]) and character not in stops:
            self._position += 1
            if character < " " and not self._rules.control_characters:
                raise JsonError("a control character")
            out.append(character if character.isascii() else self._multi_byte(ord(character)))
        return joined_surrogates("".join(out))

    def _multi_byte(self, lead: int) -> str:
        count = _continuations(lead)
        value = lead & (0x3F >> count)
        for _ in range(count):
            byte = ord(self._require(self._take()))
            if byte & 0xC0 != 0x80:
                raise JsonError(f"invalid UTF-8 middle byte 0x{byte:x}")
            value = value << 6 | byte & 0x3F
        character = _java_character(value, count)
        if _SURROGATE.fullmatch(character) and not self._is_skipping:
            raise JsonError(f"a surrogate 0x{value:x} in UTF-8")
        return character

    def _after_missing_digit(self, mark: str) -> None:
        """Continue after the character that is not a digit; after the sign of an exponent, one character later."""
        if self._take() in ("+", "-") and mark != ".":
            self._take()

    def _skip_name(self) -> None:
        """Skip a name and the character after it."""
        for _ in range(LONGEST_TOKEN_SHOWN):
            character = self._take()
            if not character.isascii():
                character = self._multi_byte(ord(character))[0]
            if not continues_name(character):
                return


def _continuations(lead: int) -> int:
    """Return the number of continuation bytes.

    Raises:
        JsonError: the byte cannot begin a character.
    """
    for count, mask, mark in ((1, 0xE0, 0xC0), (2, 0xF0, 0xE0), (3, 0xF8, 0xF0)):
        if lead & mask == mark:
            return count
    raise JsonError(f"invalid UTF-8 start byte 0x{lead:x}")


def _java_character(value: int, continuations: int) -> str:
    """Return the character as UTF-16 units like Java: four bytes always become two units."""
    if continuations < 3:
        return chr(value)
    value -= 0x10000
    return chr((0xD800 | value >> 10) & 0xFFFF) + chr(0xDC00 | value & 0x3FF)


def _decoded(name: str) -> str:
    return name if name.isascii() else JsonByteReader(name.encode("latin-1"), _NAME_RULES).decoded_run(stops="")
