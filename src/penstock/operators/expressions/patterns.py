"""Patterns: ``like``, and the regular expressions on which Java and Python provably agree.

``to_python`` reads a Java pattern token by token and lets through only constructs with one meaning in both dialects,
rewriting those that differ in what they match (``.`` and ``$`` and their line ends). The rest is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_DOT = f"[^{_LINE_ENDS}]"
# Java's ``$``: the end, or before a final line end, of which ``\r\n`` is one.
_DOLLAR = r"(?:\Z|(?=\r\n\Z)|(?<!\r)(?=\n\Z)|(?=[\r\x85\u2028\u2029]\Z))"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??(?![+*?{])")
_ESCAPED = re.compile(r"\\([dDwWsS]|[^\w\s])", re.ASCII)
_CLASS = re.compile(r"\[\^?(?:\\[dDwWsS]|\\[^\w\s]|[^\[\]\\^&~|-](?:-[A-Za-z0-9])?|-(?=\]))+\]", re.ASCII)
_PLAIN = re.compile(r"[^\\\[\](){}*+?.^$|]", re.DOTALL)
_LITERAL_META = frozenset("\\[](){}*+?.^$|")


class UnsafePattern(ValueError):
    """The pattern may mean something else in Java, or nothing."""


def to_python(pattern: str) -> str:
    """A pattern for Python's ``re`` with the flag ``ASCII`` that matches what Java's ``Pattern`` does.

    Raises:
        UnsafePattern: with the place from which on the pattern is not understood.
    """
    out: list[str] = []
    depth, place, quantifiable = 0, 0, False
    while place < len(pattern):
        token, python, quantifiable_next = _token(pattern, place, quantifiable)
        depth += (token in ("(", "(?:")) - (token == ")")
        if depth < 0:
            raise UnsafePattern(f"unbalanced {pattern[place:]!r}")
        out.append(python)
        place += len(token)
        quantifiable = quantifiable_next
    if depth:
        raise UnsafePattern("unbalanced parentheses")
    return "".join(out)


def _token(pattern: str, place: int, quantifiable: bool) -> tuple[str, str, bool]:
    """The token at ``place``, what it is in Python, and whether a quantifier may follow."""
    head = pattern[place]
    if quantifiable and (match := _QUANTIFIER.match(pattern, place)):
        return match[0], match[0], False
    for expression in (_ESCAPED, _CLASS, _PLAIN):
        if match := expression.match(pattern, place):
            return match[0], match[0], True
    if head == ".":
        return head, _DOT, True
    if head in "^|":
        return head, r"\A" if head == "^" else head, False
    if head == "$":
        return head, _DOLLAR, False
    if pattern.startswith("(?:", place):
        return "(?:", "(?:", False
    if head == "(" and not pattern.startswith("(?", place):
        return head, head, False
    if head == ")":
        # A group is not quantified: Java and Python differ in what the last round of a loop captures.
        if _QUANTIFIER.match(pattern, place + 1):
            raise UnsafePattern(f"quantified group at {pattern[place:]!r}")
        return head, head, False
    raise UnsafePattern(f"{pattern[place:]!r}")


@lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(to_python(pattern), re.ASCII)


def rlike(pattern: str, text: str) -> bool:
    return compiled(pattern).search(text) is not None


def regexp_extract(pattern: str, group: int, text: str) -> str:
    """The first match's group; the empty text if nothing matched or the group took no part."""
    match = compiled(pattern).search(text)
    return "" if match is None else match[group] or ""


def regexp_replace(pattern: str, replacement: str, text: str) -> str:
    """``replacement`` is taken literally."""
    return compiled(pattern).sub(lambda _: replacement, text)


def literal_of(pattern: str) -> str | None:
    """The text that a pattern without operators stands for; None if it has any."""
    out: list[str] = []
    place = 0
    while place < len(pattern):
        if pattern[place] == "\\" and pattern[place + 1 : place + 2] in _LITERAL_META | set("-,;:/#@!%&=~ '\"<>"):
            if place + 1 >= len(pattern):
                return None
            place += 1
        elif pattern[place] in _LITERAL_META:
            return None
        out.append(pattern[place])
        place += 1
    return "".join(out)


def split(separator: str, limit: int, text: str) -> list[str]:
    """All parts, empty ones at the end included, or at most ``limit`` if that is positive."""
    return text.split(separator, limit - 1 if limit > 0 else -1)


def like_to_python(pattern: str, escape: str) -> str:
    """``_`` is any character and ``%`` any text, unless escaped.

    Raises:
        UnsafePattern: the escape character stands before something else, or last; Spark raises for both.
    """
    out: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("_", "%", escape):
                raise UnsafePattern(f"the escape character {escape!r} stands before {escaped!r}")
            out.append(re.escape(escaped))
        else:
            out.append({"_": ".", "%": ".*"}.get(character) or re.escape(character))
    return "".join(out)


@lru_cache(maxsize=256)
def _like(pattern: str, escape: str) -> re.Pattern[str]:
    return re.compile(like_to_python(pattern, escape), re.DOTALL)


def like(pattern: str, escape: str, text: str) -> bool:
    return _like(pattern, escape).fullmatch(text) is not None
