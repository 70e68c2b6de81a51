"""Reader of JSON tokens with the behavior of Jackson's parser.

The position at which an error is raised, and the position at which reading continues after it, decide the result of
``from_json`` for a damaged document. Therefore both are Jackson's.
"""

from __future__ import annotations

import base64
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

_WHITE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_CONTROL = re.compile(r"[\x00-\x1f]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_QUAD = re.compile("[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==")
_QUAD_BEGIN = re.compile("[A-Za-z0-9+/]{1,4}|[A-Za-z0-9+/]{2}=")
_BASE64 = re.compile(rf"(?:[\x00-\x20]*(?:{_QUAD.pattern}))*[\x00-\x20]*")
_HEX = re.compile(r"[0-9a-fA-F]*")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "/": "/", "\\": "\\"}
_NAMED = {"t": "true", "f": "false", "n": "null", "N": "NaN", "I": "Infinity"}
_START_OF_NAME = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_PART_OF_NAME = _START_OF_NAME | {"Nd", "Mn", "Mc", "Cf"}
LONGEST_NUMBER = 1000
LONGEST_NAME = 50_000
LONGEST_STRING = 20_000_000
LONGEST_TOKEN_SHOWN = 256
DEEPEST = 1000
"""Jackson's limits, in characters and in open scopes."""
_JACKSON_BUFFER = 65_536


class JsonError(Exception):
    """From here on the document is not JSON."""


class Token(Enum):
    """Jackson's token types. The end of the document, null in Jackson, is None."""

    START_OBJECT = "{"
    END_OBJECT = "}"
    START_ARRAY = "["
    END_ARRAY = "]"
    NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    TRUE = "true"
    FALSE = "false"
    NULL = "null"


_LITERALS = {"true": Token.TRUE, "false": Token.FALSE, "null": Token.NULL, "NaN": Token.FLOAT, "Infinity": Token.FLOAT}
_CLOSING = {"]": ("[", Token.END_ARRAY), "}": ("{", Token.END_OBJECT)}


@dataclass(frozen=True)
class JsonRules:
    """Extensions of standard JSON that are accepted."""

    single_quotes: bool = True
    control_characters: bool = False
    non_numeric: bool = True


class _Scope:
    """Open array or object, or the document."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.count = 0
        self.name: str | None = None


class JsonReader:
    """Reader of a document's tokens, one ``next_token()`` at a time.

    Reading can continue after an error, as with Jackson's parser.

    Attributes:
        token: the current token; None before the first and after the last.
    """

    def __init__(self, text: str, rules: JsonRules) -> None:
        self.token: Token | None = None
        self._text = _ASTRAL.sub(_pair, text)  # Java reads UTF-16 units
        self._rules = rules
        self._position = 0
        self._scopes = [_Scope("")]
        self._following: Token | None = None
        self._string_pending = False
        self._value = ""
        self._begin = 0

    @property
    def name(self) -> str | None:
        """Name of the current member of the innermost object.

        At the start of an array or object, the name of this value.
        """
        if self.token in (Token.START_OBJECT, Token.START_ARRAY) and len(self._scopes) > 1:
            return self._scopes[-2].name
        return self._scopes[-1].name

    def text(self) -> str:
        """Return the value of a string, or the text of a number or literal.

        Pairs of surrogates are joined. Lone surrogates may remain.
        """
        if self._string_pending:
            self._string_pending = False
            self._value = self._bounded_string('"')
        return self._value

    def binary(self) -> bytes:
        """Return the bytes of a string in Base64. After an error, reading continues inside the string."""
        if not self._string_pending:
            if not _BASE64.fullmatch(self._value):
                raise JsonError("no base64")
            return b"".join(map(base64.b64decode, _QUAD.findall(self._value)))
        quads: list[str] = []
        while quad := self._quad():
            quads.append(quad)
        self._string_pending = False
        return b"".join(map(base64.b64decode, quads))

    def _quad(self) -> str:
        """Return the next four characters of Base64, with escapes resolved and leading white space skipped.

        The result is empty at the closing quote.
        """
        quad = " "
        while quad <= " ":
            if (quad := self._require(self._take())) == '"':
                return ""
            quad = self._escaped() if quad == "\\" else quad
        while _QUAD_BEGIN.fullmatch(quad) and len(quad) < 4:
            character = self._require(self._take())
            if character == '"' and len(quad) > 1:
                self._position -= 1  # Jackson reports missing padding before it reads the quote
            quad += self._escaped() if character == "\\" else character
        if not _QUAD.fullmatch(quad):
            raise JsonError("no base64")
        return quad

    def source(self) -> str | None:
        """Return the source text of the current value; None if the caller must copy it token by token."""
        return None

    def skip_children(self) -> None:
        """Skip from the start of an array or object to its end."""
        if self.token not in (Token.START_OBJECT, Token.START_ARRAY):
            return
        depth = 1
        while depth:
            token = self.next_token()
            if token is None:
                self._end_of_input()
                return
            depth += (token in (Token.START_OBJECT, Token.START_ARRAY)) - (token in (Token.END_OBJECT, Token.END_ARRAY))

    def next_token(self) -> Token | None:
        """Read the next token into ``token`` and return it; None at the end of the document.

        Raises:
            JsonError: the text is not a token that may follow.
        """
        if self.token is Token.NAME:
            self.token, self._following = self._following, None
            self._open(self.token)
            return self.token
        if self._string_pending:
            self._string_pending = False
            self._skip_string()
        character = self._after_white()
        if not character:
            self._end_of_input()
            self.token = None
            return None
        if character in _CLOSING:
            return self._close(character)
        scope = self._scopes[-1]
        scope.count += 1
        if scope.kind and scope.count > 1:
            character = self._after_comma(character)
        if scope.kind != "{":
            self.token = self._value_token(character)
            self._open(self.token)
            return self.token
        scope.name = self._name(character)
        self.token = Token.NAME
        self._following = self._value_token(self._after_colon())
        return self.token

    def _open(self, token: Token | None) -> None:
        if token is Token.START_OBJECT or token is Token.START_ARRAY:
            if len(self._scopes) > DEEPEST:
                raise JsonError("nested too deeply")
            self._scopes.append(_Scope(token.value))

    def _close(self, character: str) -> Token:
        self._begin = self._position - 1
        opening, token = _CLOSING[character]
        if self._scopes[-1].kind != opening:
            raise JsonError(f"unexpected {character}")
        self._scopes.pop()
        self.token = token
        return token

    def _end_of_input(self) -> None:
        if len(self._scopes) > 1:
            raise JsonError("unexpected end of input")

    def _after_white(self) -> str:
        """Return the next character that is not white space; the empty text at the end.

        Raises:
            JsonError: the character is a control character or begins a comment.
        """
        match = _WHITE.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        character = self._take()
        if character == "/" or (character and character < " "):
            raise JsonError(f"unexpected {character!r}")
        return character

    def _take(self) -> str:
        character = self._text[self._position : self._position + 1]
        self._position += len(character)
        return character

    def _require(self, character: str) -> str:
        if not character:
            raise JsonError("unexpected end of input")
        return character

    def _after_comma(self, character: str) -> str:
        if character != ",":
            raise JsonError("a comma is missing")
        return self._require(self._after_white())

    def _after_colon(self) -> str:
        if self._require(self._after_white()) != ":":
            raise JsonError("a colon is missing")
        return self._require(self._after_white())

    def _name(self, character: str) -> str:
        if character == '"' or (character == "'" and self._rules.single_quotes):
            name = self._read_string(character)
            if len(name) > LONGEST_NAME:
                raise JsonError("the name is too long")
            return name
        raise JsonError("a name is missing")

    def _value_token(self, character: str) -> Token:
        self._begin = self._position - 1
        if character == '"':
            self._string_pending = True
            return Token.STRING
        if character == "[":
            return Token.START_ARRAY
        if character == "{":
            return Token.START_OBJECT
        if character == "'" and self._rules.single_quotes:
            self._value = self._bounded_string("'")
            return Token.STRING
        if character in "-+0123456789":
            return self._number(character)
        if character in _NAMED:
            return self._literal(_NAMED[character], 1)
        if _begins_name(character):
            self._skip_name()
        raise JsonError(f"unexpected {character!r}")

    def _literal(self, word: str, known: int) -> Token:
        for expected in word[known:]:
            if self._text[self._position : self._position + 1] != expected:
                self._skip_name()
                raise JsonError("unknown token")
            self._position += 1
        if continues_name(self._text[self._position : self._position + 1]):
            self._skip_name()
            raise JsonError("unknown token")
        token = _LITERALS.get(word, Token.FLOAT)
        if token is Token.FLOAT and not self._rules.non_numeric:
            raise JsonError(f"{word} is not JSON")
        self._value = word
        return token

    def _skip_name(self) -> None:
        """Read to the end of an unknown token, as Jackson does for its error message."""
        end = min(len(self._text), self._position + LONGEST_TOKEN_SHOWN)
        while self._position < end and continues_name(self._text[self._position]):
            self._position += 1

    def _number(self, character: str) -> Token:
        begin = self._position - 1
        following = self._text[self._position : self._position + 1]
        if character == "+" or (character == "-" and not _is_digit(following)):
            return self._signed(character)
        match = _NUMBER.match(self._text, begin)
        if match is None:
            raise JsonError("a digit is missing")
        following = self._text[match.end() : match.end() + 1]
        if _is_digit(following):
            self._position = match.end()
            raise JsonError("leading zeros")
        if following in (".", "e", "E") and not (match[3] or (following == "." and match[2])):
            self._position = match.end() + 1
            self._after_missing_digit(following)
            raise JsonError("a digit is missing")
        self._position = match.end()
        if len(match[0]) > LONGEST_NUMBER:
            raise JsonError("the number is too long")
        if len(self._scopes) == 1 and following:
            self._position += following != "\r"
            if following not in " \t\r\n":
                raise JsonError("a blank is missing")
        self._value = match[0]
        return Token.FLOAT if match[2] or match[3] else Token.INTEGER

    def _after_missing_digit(self, mark: str) -> None:
        """Set the position at which reading continues after the point or ``e`` of a number without a digit."""

    def _signed(self, sign: str) -> Token:
        """Read Infinity with a sign."""
        if self._require(self._take()) == "I":
            following = self._require(self._take())
            if following in ("N", "n"):
                return self._literal(sign + ("INF" if following == "N" else "Infinity"), 3)
        raise JsonError("a digit is missing")

    def _skip_string(self) -> None:
        """Skip a string whose text is not requested."""
        self._read_string('"')

    def _bounded_string(self, quote: str) -> str:
        """Read a string whose text is requested.

        Jackson reads a string that is slightly too long to its end, and stops in the middle of a longer one.
        """
        begin = self._position
        text = self._read_string(quote)
        if len(text) > LONGEST_STRING:
            self._position = min(self._position, begin + LONGEST_STRING + _JACKSON_BUFFER)
            raise JsonError("the string is too long")
        return text

    def _read_string(self, quote: str) -> str:
        """Read from the first character after the opening quote to the closing quote, inclusive."""
        out: list[str] = []
        while True:
            out.append(self._plain_run(quote))
            if self._require(self._take()) == quote:
                break
            out.append(self._escaped())
        text = "".join(out)
        return text if text.isascii() else joined_surrogates(text)

    def _plain_run(self, quote: str) -> str:
        """Read up to the next quote or escape, or to the end of the document."""
        match = _PLAIN[quote].match(self._text, self._position)
        assert match is not None
        if not self._rules.control_characters and (control := _CONTROL.search(match[0])):
            self._position += control.end()
            raise JsonError("a control character")
        self._position = match.end()
        return match[0]

    def _escaped(self) -> str:
        character = self._require(self._take())
        if character in _ESCAPES:
            return _ESCAPES[character]
        if character == "'" and self._rules.single_quotes:
            return character
        if character != "u":
            raise JsonError("an unknown escape")
        match = _HEX.match(self._text, self._position, self._position + 4)
        assert match is not None
        self._position = match.end()
        if len(match[0]) < 4:
            self._take()
            raise JsonError("a hexadecimal digit is missing")
        return chr(int(match[0], 16))


def _pair(character: re.Match[str]) -> str:
    value = ord(character[0]) - 0x10000
    return chr(0xD800 | value >> 10) + chr(0xDC00 | value & 0x3FF)


def joined_surrogates(text: str) -> str:
    """Join pairs of surrogates into one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _is_digit(character: str) -> bool:
    return "0" <= character <= "9"


def _begins_name(character: str) -> bool:
    """Return the result of ``Character.isJavaIdentifierStart`` for a UTF-16 unit."""
    return ord(character) <= 0xFFFF and unicodedata.category(character) in _START_OF_NAME


def continues_name(character: str) -> bool:
    """Return the result of ``Character.isJavaIdentifierPart`` for a UTF-16 unit."""
    if not character or ord(character) > 0xFFFF:
        return False
    if unicodedata.category(character) in _PART_OF_NAME:
        return True
    return character <= "\x08" or "\x0e" <= character <= "\x1b" or "\x7f" <= character <= "\x9f"
