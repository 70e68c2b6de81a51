"""Java's patterns of dates and times (``DateTimeFormatter``), as far as Spark accepts them.

A pattern is parsed once. ``formatting`` writes its fields and ``parsing`` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

_BY_WEEK = frozenset("YWwuec")
_NEVER = frozenset("ABnNp")
_NOT_PARSED = frozenset("EFqQ")
_RESERVED = frozenset("{}#")
_OTHERS = {
    "F": "its meaning changed between versions of Java",
    "z": "names of time zones are the JVM's own; use X, x, Z or VV",
    "v": "names of time zones are the JVM's own; use X, x, Z or VV",
}
_LONGEST = {
    "G": 4, "y": 6, "M": 4, "L": 4, "Q": 4, "q": 4, "E": 4, "d": 2, "D": 3, "a": 1, "h": 2, "H": 2, "k": 2, "K": 2,
    "m": 2, "s": 2, "S": 9, "V": 2, "X": 5, "x": 5, "Z": 5, "O": 4,
}  # fmt: skip
UNBOUNDED = 19
"""Maximum number of digits that Java reads for a number without a width."""


class UnknownPattern(ValueError):
    """Spark or Java rejects the pattern, or Penstock does not support it."""


@dataclass(frozen=True)
class Text:
    """Literal text of a pattern."""

    text: str


@dataclass(frozen=True)
class Field:
    """Run of equal letters in a pattern.

    Attributes:
        letter: the letter.
        count: number of letters.
        with_era: the pattern has an era, so that ``y`` is the year within it and never negative.
    """

    letter: str
    count: int
    with_era: bool

    @property
    def is_number(self) -> bool:
        """True if the field is written in digits. Neighboring fields of this kind share their digits in reading."""
        return self.letter in "ydDhHkKmsS" or (self.letter in "MLQq" and self.count <= 2)


@dataclass(frozen=True)
class Optional:
    """``[...]``, which is read if it is present."""

    parts: Parts


Parts = tuple[Text | Field | Optional, ...]


@lru_cache(maxsize=256)
def parts_of(pattern: str, parsing: bool) -> Parts:
    """Return the parts of a pattern.

    Args:
        pattern: the pattern.
        parsing: the pattern is used for reading, which supports fewer letters than writing.

    Raises:
        UnknownPattern: the pattern is not supported. The message names the letter or the reason.
    """
    tokens = list(_tokens(pattern))
    with_era = any(not quoted and text[0] == "G" for quoted, text in tokens)
    stack: list[list[Text | Field | Optional]] = [[]]
    for quoted, text in tokens:
        if quoted:
            stack[-1].append(Text(text))
        elif text[0] == "[":
            stack += [[] for _ in text]
        elif text[0] == "]":
            for _ in text:
                if len(stack) == 1:
                    raise UnknownPattern("']' closes nothing")
                inner = tuple(stack.pop())
                stack[-1].append(Optional(inner))
        else:
            stack[-1].append(_part(text, parsing, with_era))
    while len(stack) > 1:  # Java closes them at the end
        inner = tuple(stack.pop())
        stack[-1].append(Optional(inner))
    return tuple(stack[0])


def written_parts(pattern: str) -> tuple[Text | Field, ...]:
    """Return the parts of a pattern for writing. Optional parts are always included."""
    return _flat(parts_of(pattern, parsing=False))


def _flat(parts: Parts) -> tuple[Text | Field, ...]:
    out: list[Text | Field] = []
    for part in parts:
        out += _flat(part.parts) if isinstance(part, Optional) else [part]
    return tuple(out)


def _tokens(pattern: str) -> list[tuple[bool, str]]:
    """Return the quoted texts (True) and the runs of equal characters (False)."""
    tokens: list[tuple[bool, str]] = []
    position = 0
    while position < len(pattern):
        if pattern[position] != "'":
            run = next(len(list(group)) for _, group in groupby(pattern[position:]))
            tokens.append((False, pattern[position : position + run]))
            position += run
            continue
        end, quoted = _closing_quote(pattern, position + 1)
        tokens.append((True, quoted or "'"))
        position = end
    return tokens


def _closing_quote(pattern: str, position: int) -> tuple[int, str]:
    """Return the position after the quoted text, and the text."""
    out: list[str] = []
    while position < len(pattern):
        if pattern[position] == "'":
            if pattern[position + 1 : position + 2] == "'":
                raise UnknownPattern("a quote within quoted text")
            return position + 1, "".join(out)
        out.append(pattern[position])
        position += 1
    raise UnknownPattern("a quote is not closed")


def _part(run: str, parsing: bool, with_era: bool) -> Text | Field:
    letter = run[0]
    if letter in _RESERVED:
        raise UnknownPattern(f"{letter!r} is reserved")
    if not (letter.isascii() and letter.isalpha()):
        if parsing and letter.upper() != letter.lower():
            raise UnknownPattern(f"the letter {letter!r} outside ASCII")
        return Text(run)
    if letter in _BY_WEEK:
        raise UnknownPattern(f"Spark has no patterns by week ({letter!r}); use extract")
    if letter in _NEVER or (parsing and letter in _NOT_PARSED):
        raise UnknownPattern(f"Spark does not take the letter {letter!r}" + (" for reading" if parsing else ""))
    if letter in _OTHERS:
        raise UnknownPattern(f"the letter {letter!r}: {_OTHERS[letter]}")
    if letter not in _LONGEST:
        raise UnknownPattern(f"the letter {letter!r} means nothing")
    _check_count(letter, len(run), parsing)
    return Field(letter, len(run), with_era)


def _check_count(letter: str, count: int, parsing: bool) -> None:
    if count > _LONGEST[letter]:
        raise UnknownPattern(f"too many letters {letter!r}")
    if (letter == "V" and count != 2) or (letter == "O" and count not in (1, 4)):
        raise UnknownPattern(f"not so many letters {letter!r}")
    if parsing and (letter in "VO" or (letter == "Z" and count == 4)):
        raise UnknownPattern(f"the letter {letter!r} is written only, not read; use X, x or Z for offsets")
