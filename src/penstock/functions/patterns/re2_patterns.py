"""Java's regular expressions for Arrow's engine, RE2, where it finds the same match for sure.

RE2 prefers alternatives and repetitions as Perl does, the first one first; it cannot look around, and loops around what
may be empty end otherwise, which ``java_patterns`` does not let through. Rendered is what Python made of a pattern, for
that has no notation of its own any more.
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
"""The name of the one group that a rendered pattern has."""

_ANCHORS = {"AT_BEGINNING_STRING": r"\A", "AT_END_STRING": r"\z"}


class _Unrendered(Exception):
    """The pattern has something that RE2 lacks, or may read otherwise."""


@lru_cache(maxsize=256)
def re2_pattern(pattern: str, group: int = 0) -> str | None:
    """The pattern, matching anywhere in a text, with the group (0: the whole) as ``GROUP`` and no other; None if RE2
    cannot be trusted with it.

    Args:
        pattern: one that ``translate`` takes.
        group: one of its groups.
    """
    compiled = translate(pattern).compiled
    if compiled.flags & re.IGNORECASE:
        return None
    try:
        text = _sequence(re._parser.parse(compiled.pattern, compiled.flags & re.ASCII), group)  # type: ignore[attr-defined]
        text = text if group else _named(text)
        pc.match_substring_regex(pa.array([""]), pattern=text)
    except (_Unrendered, pa.ArrowInvalid):  # the second: more states than RE2 allows itself
        return None
    return text


def has_start_anchor(pattern: str) -> bool:
    """Return True if a pattern of ``re2_pattern`` has an anchor at the start of the text."""
    return _ANCHORS["AT_BEGINNING_STRING"] in pattern  # a backslash of the text itself is rendered as a code


def re2_replacement(replacement: Sequence[str | int]) -> tuple[int, str] | None:
    """Return a replacement's only group, for ``re2_pattern``, and the replacement in RE2's notation.

    The group is 0 if the replacement has none or only the whole match. Return None if it has several groups.
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
