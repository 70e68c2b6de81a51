"""Wildcards of Hadoop in paths: ``*``, ``?``, ``[a-c]``, ``[!a]``, ``{a,b}`` and backslash escapes."""

from __future__ import annotations

import glob
import re

_WILDCARD = re.compile(r"[*?\[{]")
_ESCAPED = 0xF0000
"""Offset that moves the code of an escaped character to a private plane, so that it is neither wildcard nor brace."""


def is_glob(path: str) -> bool:
    return _WILDCARD.search(path) is not None


def matching_paths(pattern: str) -> list[str]:
    """Return the existing paths that match, sorted. A wildcard also matches a leading dot."""
    return sorted({match for plain in plain_globs(pattern) for match in glob.glob(plain, include_hidden=True)})


def plain_globs(pattern: str) -> list[str]:
    """Return patterns for Python's ``glob`` that together match the same paths."""
    shielded = re.sub(r"\\(.)", lambda escape: chr(_ESCAPED + ord(escape[1])), pattern)
    return [_unshielded(plain) for plain in _without_braces(shielded)]


def _unshielded(pattern: str) -> str:
    """Restore escaped characters, with the escapes of Python's ``glob``."""
    return "".join(glob.escape(chr(ord(c) - _ESCAPED)) if ord(c) >= _ESCAPED else c for c in pattern)


def _without_braces(pattern: str) -> list[str]:
    """Expand braces, which Python's ``glob`` does not support: ``a{b,c}`` becomes ``ab`` and ``ac``."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None:
        return [pattern.replace("[^", "[!")]
    head, tail = pattern[: match.start()], pattern[match.end() :]
    return [plain for choice in match[1].split(",") for plain in _without_braces(head + choice + tail)]


def glob_regex(pattern: str) -> str:
    """Convert a Hadoop file name pattern to an anchored regular expression."""
    result, depth = "", 0
    for piece in re.findall(r"\\.|\[[^\]]*\]|.", pattern):
        if piece == "*":
            result += ".*"
        elif piece == "?":
            result += "."
        elif piece == "{":
            result, depth = result + "(?:", depth + 1
        elif piece == "}" and depth:
            result, depth = result + ")", depth - 1
        elif piece == "," and depth:
            result += "|"
        elif len(piece) > 1:
            result += piece.replace("[!", "[^", 1)
        else:
            result += re.escape(piece)
    return result + r"\Z"
