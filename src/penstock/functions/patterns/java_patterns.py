"""Translation of Java's regular expressions to Python's, where the two provably agree.

``translate`` reads a pattern token by token. It accepts only tokens with the same meaning in both dialects. It rewrites
tokens that differ in notation (character classes) or in the text that they match (``.``, ``$`` and their line ends).
All other tokens are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_DOT = f"[^{_LINE_ENDS}]"
# Java's ``$`` matches at the end or before a final line end. ``\r\n`` is one line end.
_DOLLAR = r"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r\x85\u2028\u2029]\Z))"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![+*?{])")
_FLAGS = re.compile(r"\(\?([is]{1,2})\)")
_OPENING = re.compile(r"\((?:\?(?:[:=!]|<[=!]|<[A-Za-z][A-Za-z0-9]*>))?")
_CODE = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_POSIX = re.compile(r"([pP])\{(\w+)\}")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_META = frozenset("\\[](){}*+?.^$|")
_ANCHORS = {"A": r"\A", "z": r"\Z", "Z": _DOLLAR}
# Text between the brackets of a class.
_SETS = {
    "d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r", "h": r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000",
    "v": r"\n\x0b\f\r\x85\u2028\u2029",
}  # fmt: skip
_NAMED_SETS = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F", "Space": r" \t\n\x0b\f\r",
}  # fmt: skip


class UnsafePattern(ValueError):
    """The pattern may have another meaning in Java, or it is invalid."""


@dataclass(frozen=True)
class JavaPattern:
    """Pattern with the same meaning in Java and Python.

    Attributes:
        compiled: the pattern for Python.
        ambiguous_groups: groups in a repetition or a lookaround, whose captures may differ.
        may_be_empty: the pattern may match the empty text. After such a match Java continues by UTF-16 units.
    """

    compiled: re.Pattern[str]
    ambiguous_groups: frozenset[int]
    may_be_empty: bool


@lru_cache(maxsize=256)
def translate(pattern: str) -> JavaPattern:
    """Translate a pattern for Python.

    Raises:
        UnsafePattern: a part is not supported. The message has the rest of the pattern from this part on.
    """
    translator = _Translator(pattern)
    text = translator.translated()
    try:
        compiled = re.compile(text, translator.flags)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafePattern(f"{pattern!r} ({error})") from None
    width = re._parser.parse(text, translator.flags).getwidth()[0]  # type: ignore[attr-defined]
    return JavaPattern(compiled, frozenset(translator.ambiguous_groups), width == 0)


@dataclass
class _Group:
    """Open parenthesis.

    Attributes:
        begin: index in the output at which the group begins.
        first: number of the first capturing group in it.
        is_lookaround: it is a lookahead or lookbehind.
    """

    begin: int
    first: int
    is_lookaround: bool


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._out: list[str] = []
        self._open: list[_Group] = []
        self._groups = 0
        self._dot = _DOT
        self.flags = re.ASCII
        self.ambiguous_groups: set[int] = set()

    def translated(self) -> str:
        if match := _FLAGS.match(self._pattern):
            self._position = match.end()
            self.flags |= re.IGNORECASE if "i" in match[1] else 0
            self._dot = r"[\s\S]" if "s" in match[1] else _DOT
        while self._position < len(self._pattern):
            self._next()
        if self._open:
            raise UnsafePattern("unbalanced parentheses")
        return "".join(self._out)

    def _unsafe(self) -> UnsafePattern:
        return UnsafePattern(repr(self._pattern[self._position :]))

    def _next(self) -> None:
        head = self._pattern[self._position]
        if head == "(":
            self._enter()
        elif head == ")":
            self._leave()
        elif head in "^|":
            self._put(r"\A" if head == "^" else head, 1)
        elif head == "$":
            self._put(_DOLLAR, 1)
        elif head == "\\" and (anchor := _ANCHORS.get(self._pattern[self._position + 1 : self._position + 2])):
            self._put(anchor, 2)
        elif self._pattern.startswith(r"\Q", self._position):
            self._quoted()
        else:
            self._put(*self._atom())
            self._quantifier()

    def _put(self, text: str, length: int) -> None:
        self._out.append(text)
        self._position += length

    def _quantifier(self) -> bool:
        match = _QUANTIFIER.match(self._pattern, self._position)
        if match is None:
            if self._pattern[self._position : self._position + 1] in ("*", "+", "?", "{"):
                raise self._unsafe()
            return False
        self._put(match[0], len(match[0]))
        return True

    def _enter(self) -> None:
        match = _OPENING.match(self._pattern, self._position)
        if match is None or self._pattern.startswith("(?", self._position) != (len(match[0]) > 1):
            raise self._unsafe()
        opening = match[0]
        captures = opening == "(" or opening.endswith(">")
        self._open.append(
            _Group(len(self._out), self._groups + 1, opening[2:3] in ("=", "!") or opening[3:4] in ("=", "!"))
        )
        self._groups += captures
        self._put("(?P" + opening[2:] if opening.endswith(">") else opening, len(opening))

    def _leave(self) -> None:
        if not self._open:
            raise UnsafePattern(f"unbalanced {self._pattern[self._position :]!r}")
        group = self._open.pop()
        self._put(")", 1)
        inner = range(group.first, self._groups + 1)
        if group.is_lookaround:
            self.ambiguous_groups.update(inner)
            if _QUANTIFIER.match(self._pattern, self._position):
                raise self._unsafe()
            return
        begin = self._position
        if self._quantifier():
            # If an iteration matches the empty text, Java and Python end the loop in different ways.
            if _least_width("".join(self._out[group.begin : -1]), self.flags) == 0:
                self._position = begin
                raise UnsafePattern(f"the loop around what may be empty at {self._pattern[begin:]!r}")
            if self._pattern[begin] != "?":
                self.ambiguous_groups.update(inner)

    def _quoted(self) -> None:
        end = self._pattern.find(r"\E", self._position)
        if end < 0:
            raise self._unsafe()
        self._put(re.escape(self._pattern[self._position + 2 : end]), end + 2 - self._position)
        if _QUANTIFIER.match(self._pattern, self._position):
            raise self._unsafe()

    def _atom(self) -> tuple[str, int]:
        """Return one character or class for Python, and its length in the pattern."""
        head = self._pattern[self._position]
        if head == ".":
            return self._dot, 1
        if head == "[":
            return self._class()
        if head == "\\":
            negated, inner, length = self._escape(self._position + 1)
            return (inner if negated is None else f"[{'^' if negated else ''}{inner}]"), length + 1
        if head in _META:
            raise self._unsafe()
        return re.escape(head), 1

    def _escape(self, position: int) -> tuple[bool | None, str, int]:
        """Return the meaning of the text after a backslash, and its length.

        The meaning is a set (negated or not) or, with None, a character.
        """
        head = self._pattern[position : position + 1]
        if head.lower() in _SETS:
            return head.isupper(), _SETS[head.lower()], 1
        if (match := _POSIX.match(self._pattern, position)) and match[2] in _NAMED_SETS:
            if match[2] in ("Lower", "Upper") and self.flags & re.IGNORECASE:
                raise self._unsafe()
            return match[1] == "P", _NAMED_SETS[match[2]], len(match[0])
        if head in _CONTROLS:
            return None, re.escape(_CONTROLS[head]), 1
        if match := _CODE.match(self._pattern, position):
            code = int(match[1] or match[2] or match[3], 16)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise self._unsafe()
            return None, re.escape(chr(code)), len(match[0])
        if not head or head.isalnum() or not head.isascii():
            raise self._unsafe()
        return None, re.escape(head), 1

    def _class(self) -> tuple[str, int]:
        position = self._position + 1
        out = ["["]
        if self._pattern[position : position + 1] == "^":
            out.append("^")
            position += 1
        first = position
        while self._pattern[position : position + 1] != "]" or position == first:
            text, single, length = self._member(position, position == first)
            position += length
            if (
                single
                and self._pattern[position : position + 1] == "-"
                and self._pattern[position + 1 : position + 2] not in ("]", "")
            ):
                end, is_character, length = self._member(position + 1, False)
                if not is_character or _code_of(end) < _code_of(text):
                    raise self._unsafe()
                text, position = f"{text}-{end}", position + 1 + length
            out.append(text)
        return "".join(out) + "]", position + 1 - self._position

    def _member(self, position: int, first: bool) -> tuple[str, bool, int]:
        """Return a member of a class in Python's notation, True if it is a single character, and its length."""
        head = self._pattern[position : position + 1]
        if head == "\\":
            negated, inner, length = self._escape(position + 1)
            if negated:
                if inner not in (_SETS["d"], _SETS["w"], _SETS["s"]):
                    raise self._unsafe()
                return f"\\{self._pattern[position + 1]}", False, length + 1
            return inner, negated is None, length + 1
        following = self._pattern[position + 1 : position + 2]
        if not head or head in "[]" or (head == "&" and following == "&") or (head == "^" and first):
            raise self._unsafe()
        if head == "-" and not (first or following == "]"):
            raise self._unsafe()
        return re.escape(head), True, 1


def _least_width(pattern: str, flags: int) -> int:
    return int(re._parser.parse(pattern, flags).getwidth()[0])  # type: ignore[attr-defined]


def _code_of(escaped: str) -> int:
    """Return the code point of an escaped character."""
    return ord(escaped[-1])
