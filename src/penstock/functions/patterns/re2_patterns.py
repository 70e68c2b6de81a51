"""Java's regular expressions for Arrow's engine, RE2, if RE2 is certain to find the same match.

RE2 prefers alternatives and repetitions in the same order as Perl. It has no lookaround. Its loops around an empty
match end differently, but ``java_patterns`` refuses such loops. The pattern is rendered from Python's parse tree, which
is independent of notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.patterns.java_patterns import translate

GROUP = "found"
"""Name of the only group of a rendered pattern."""

_ANCHORS = {"AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\z"}


class _Unrendered(Exception):
    """The pattern has an element that RE2 lacks or may interpret differently."""


@lru_cache(maxsize=256)
def re2_pattern(pattern: str, group: int = 0) -> str | None:
    """Return the pattern for RE2; None if RE2 may find other matches.

    It matches anywhere in a text. Its only group is ``GROUP``.

    Args:
        pattern: a pattern that ``translate`` accepts.
        group: number of the group that becomes ``GROUP``; 0 for the whole match.
    """
    compiled = translate(pattern).compiled
    if compiled.flags & re.IGNORECASE:
        return None
    try:
        text = _sequence(re._parser.parse(compiled.pattern, compiled.flags & re.ASCII), group)  # type: ignore[attr-defined]
        text = text if group else _named(text)
        pc.match_substring_regex(pa.array([""]), pattern=text)
    except (_Unrendered, pa.ArrowInvalid):  # ArrowInvalid: more states than RE2 allows
        return None
    return text


def has_start_anchor(pattern: str) -> bool:
    """Return True if a pattern as returned by ``re2_pattern`` has an anchor at the start of the text."""
    # A literal backslash is rendered as a code, so that this text is always an anchor.
    return _ANCHORS["AT_BEGINNING_STRING"] in pattern


def re2_replacement(replacement: Sequence[str | int]) -> tuple[int, str] | None:
    """Return the only group of a replacement, for ``re2_pattern``, and the replacement in RE2's notation.

    The group is 0 if the replacement has no group or only the whole match. Return None if it has several groups.
    """
    groups = {part for part in replacement if isinstance(part, int) and part}
    if len(groups) > 1:
        return None
    texts = (part.replace("\\", r"\\") if isinstance(part, str) else rf"\{min(part, 1)}" for part in replacement)
    return max(groups, default=0), "".join(texts)


def _named(text: str) -> str:
    return f"(?P<{GROUP}>{text})"


def _sequence(items: Iterable[tuple[Any, Any]], group: int) -> str:
    return "".join(_item(str(kind), value, group) for kind, value in items)


def _item(kind: str, value: Any, group: int) -> str:
    match kind:
        case "LITERAL":
            return _code(value)
        case "NOT_LITERAL":
            return f"[^{_code(value)}]"
        case "IN":
            return "[" + "".join(_member(str(member), what) for member, what in value) + "]"
        case "AT" if str(value) in _ANCHORS:
            return _ANCHORS[str(value)]
        case "BRANCH":
            return "(?:" + "|".join(_sequence(branch, group) for branch in value[1]) + ")"
        case "SUBPATTERN":
            number, _, _, inner = value
            text = _sequence(inner, group)
            return _named(text) if number == group and group else f"(?:{text})"
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, inner = value
            bounds = f"{{{least},{'' if most is re._parser.MAXREPEAT else most}}}"  # type: ignore[attr-defined]
            return f"(?:{_sequence(inner, group)}){bounds}" + ("?" if kind == "MIN_REPEAT" else "")
    raise _Unrendered(kind)


def _member(kind: str, value: Any) -> str:
    match kind:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return _code(value)
        case "RANGE":
            return f"{_code(value[0])}-{_code(value[1])}"
    raise _Unrendered(kind)


def _code(character: int) -> str:
    return rf"\x{{{character:x}}}"
