"""Functions of patterns: ``like``, and regular expressions with one meaning in Java and Python (``java_patterns``).

Python's engine backtracks, so that some patterns take time quadratic in the length of a text, or more. RE2 never
backtracks. It runs the patterns for which it finds the same matches (``re2_patterns``). For other patterns the length
of a text is limited (``limit_length``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from penstock.errors import EvaluationError
from penstock.functions.patterns.java_patterns import UnsafePattern, translate

_DIGITS = "0123456789"
_LITERAL_META = frozenset("\\[](){}*+?.^$|")


def limit_length(max_length: int, function: Callable[[str], object], text: str) -> object:
    """Apply a function with a user's pattern to a text of at most ``max_length`` characters.

    Raises:
        EvaluationError: the text is longer.
    """
    if len(text) > max_length:
        raise EvaluationError(
            f"a regular expression that may take unbounded time is applied to a text of {len(text)} characters; the "
            f"limit is {max_length}: shorten the text, write the pattern so that RE2 can run it (without lookaround "
            "and (?i)), or raise spark.penstock.regexp.maxLength"
        )
    return function(text)


def rlike(pattern: str, text: str) -> bool:
    return translate(pattern).compiled.search(text) is not None


def regexp_extract(pattern: str, group: int, text: str) -> str:
    """Return the group of the first match; the empty text if there is no match or the group did not participate."""
    match = translate(pattern).compiled.search(text)
    return "" if match is None else match[group] or ""


def regexp_extract_all(pattern: str, group: int, text: str) -> list[str]:
    """Return the group of every match; the empty text where the group did not participate."""
    return [match[group] or "" for match in translate(pattern).compiled.finditer(text)]


def regexp_instr(pattern: str, text: str) -> int:
    """Return the one-based position of the first match; 0 if there is none."""
    match = translate(pattern).compiled.search(text)
    return 0 if match is None else match.start() + 1


Replacement = tuple[str | int, ...]
"""Parts of a replacement in order: texts, and groups by number."""


def replacement_of(pattern: str, replacement: str) -> Replacement:
    """Parse a replacement in the notation of ``Matcher.appendReplacement``.

    The notation has ``$1`` (with as many digits as form an existing group), ``${name}`` and backslashes.

    Raises:
        UnsafePattern: there is no such group, its capture may differ between Java and Python, or Java rejects the text.
    """
    java = translate(pattern)
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        head = replacement[position]
        position += 1
        if head == "$":
            group, position = _group(java.compiled, replacement, position)
            if group in java.ambiguous_groups:
                raise UnsafePattern(f"the group {group} is repeated")
            parts.append(group)
            continue
        if head == "\\":
            head = replacement[position : position + 1]
            position += 1
            if not head:
                raise UnsafePattern("a backslash at the end of the replacement")
        parts.append(head)
    return tuple(parts)


def _group(compiled: re.Pattern[str], replacement: str, position: int) -> tuple[int, int]:
    """Return the number of the group at ``position``, and the position after it."""
    if replacement[position : position + 1] == "{":
        end = replacement.find("}", position)
        group = compiled.groupindex.get(replacement[position + 1 : end]) if end > 0 else None
        if group is None:
            raise UnsafePattern("the replacement names no group")
        return group, end + 1
    end = position
    while replacement[end : end + 1] in _DIGITS and end < len(replacement):
        if end > position and int(replacement[position : end + 1]) > compiled.groups:
            break
        end += 1
    if end == position or int(replacement[position:end]) > compiled.groups:
        raise UnsafePattern("the replacement names no group")
    return int(replacement[position:end]), end


def regexp_replace(pattern: str, replacement: Replacement, position: int, text: str) -> str:
    """Replace every match from ``position`` (zero-based) on. The text before it is ignored in matching."""
    compiled = translate(pattern).compiled

    def replaced(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in replacement)

    return text[:position] + compiled.sub(replaced, text[position:])


def literal_of(pattern: str) -> str | None:
    """Return the text that a pattern without operators matches; None if the pattern has operators."""
    out: list[str] = []
    position = 0
    while position < len(pattern):
        if pattern[position] == "\\" and pattern[position + 1 : position + 2] in _LITERAL_META | set(
            "-,;:/#@!%&=~ '\"<>"
        ):
            if position + 1 >= len(pattern):
                return None
            position += 1
        elif pattern[position] in _LITERAL_META:
            return None
        out.append(pattern[position])
        position += 1
    return "".join(out)


def split(separator: str, limit: int, text: str) -> list[str]:
    """Return all parts, including empty ones at the end; at most ``limit`` parts if that is positive."""
    return text.split(separator, limit - 1 if limit > 0 else -1)


def regexp_split(pattern: str, limit: int, text: str) -> list[str]:
    """Split by a pattern that never matches the empty text; see ``split``."""
    parts: list[str] = []
    begin = 0
    for match in translate(pattern).compiled.finditer(text):
        if len(parts) == limit - 1:
            break
        parts.append(text[begin : match.start()])
        begin = match.end()
    return [*parts, text[begin:]]


def split_characters(limit: int, text: str) -> list[str]:
    """Split by the empty pattern into single characters. With a limit, the last part has the rest."""
    count = limit if 0 < limit < len(text) else len(text)
    return [*text[: count - 1], text[count - 1 :]] if text else [""]


def _like_pieces(pattern: str, escape: str) -> list[str]:
    """Return the regular expressions of the parts between two ``%``.

    Raises:
        UnsafePattern: the escape character is last, or in front of a character that needs no escape. Spark raises too.
    """
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("_", "%", escape):
                raise UnsafePattern(f"the escape character {escape!r} stands before {escaped!r}")
            pieces[-1] += re.escape(escaped)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    return pieces


def like_to_python(pattern: str, escape: str) -> str:
    """Return the regular expression of a ``like`` pattern, for matching whole texts.

    Unless escaped, ``_`` matches any character and ``%`` any text. Each part between two ``%`` matches at its first
    occurrence, so that the expression never backtracks over a part.

    Raises:
        UnsafePattern: the escape character is last, or in front of a character that needs no escape. Spark raises too.
    """
    first, *rest = _like_pieces(pattern, escape)
    if not rest:
        return first
    return first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + ".*" + rest[-1]


def like_to_re2(pattern: str, escape: str) -> str:
    """Return the regular expression of a ``like`` pattern for RE2, for matching whole texts."""
    return rf"(?s)\A(?:{'.*'.join(_like_pieces(pattern, escape))})\z"


@lru_cache(maxsize=256)
def _like(pattern: str, escape: str) -> re.Pattern[str]:
    return re.compile(like_to_python(pattern, escape), re.DOTALL)


def like(pattern: str, escape: str, text: str) -> bool:
    return _like(pattern, escape).fullmatch(text) is not None


def like_each(escape: str, text: str, pattern: str) -> bool:
    """Evaluate ``like`` with a pattern per row.

    Raises:
        EvaluationError: the escape character is last, or in front of a character that needs no escape.
    """
    try:
        return like(pattern, escape, text)
    except UnsafePattern as error:
        raise EvaluationError(f"[INVALID_FORMAT] The format is invalid: {pattern!r}. {error}.") from None


def like_many(patterns: tuple[str, ...], has_null: bool, every: bool, negated: bool, text: str) -> bool | None:
    """Evaluate ``like all`` (``every``) or ``like any``.

    The result is null if there is a null pattern and the other patterns do not decide.
    """
    decided = any((like(pattern, "\\", text) != negated) != every for pattern in patterns)
    return not every if decided else None if has_null else every
