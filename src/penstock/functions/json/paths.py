"""``get_json_object``, ``json_array_length`` and ``json_object_keys``.

Hive's paths over JSON are evaluated token by token, as in Spark. A value found before an error in the document counts
only if reading ends before the error.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from penstock.errors import EvaluationError
from penstock.functions.json.text import copy_structure, require_utf8
from penstock.functions.json.tokens import JsonError, JsonReader, JsonRules, Token

HIVE_RULES = JsonRules(control_characters=True, non_numeric=False)


class Step(Enum):
    """Step of a path that is neither a name nor a position."""

    KEY = "key"
    SUBSCRIPT = "subscript"
    WILDCARD = "*"


class _Style(Enum):
    RAW = 0
    QUOTED = 1
    FLATTEN = 2


class _Output:
    """Output of a Jackson generator. Generators of bytes and of characters escape different characters."""

    def __init__(self, to_bytes: bool) -> None:
        self.parts: list[str] = []
        self.to_bytes = to_bytes


Path = tuple[Step | str | int, ...]
# White space is skipped where Scala's parser combinators skip it.
_NODE = re.compile(
    r"\s*(?P<any>\.\*|\['\*'\])|\.\s*(?P<name>[^.\[\s][^.\[]*)|\s*\['\s*(?P<quoted>[^'\s][^']*)'\]"
    r"|\[(?:(?P<all>\*)|\s*(?P<index>[0-9]+))\]",
    re.ASCII,
)
_WHITE = " \t\n\x0b\f\r"
_LONG_MAX = 2**63 - 1


@lru_cache(maxsize=256)
def path_of(text: str) -> Path | None:
    """Parse a path into its steps; None if the text is not a path.

    Raises:
        EvaluationError: a position is beyond 64 bits. Spark raises an error too.
    """
    if not text.startswith("$"):
        return None
    position, path = 1, list[Step | str | int]()
    while text[position:].strip(_WHITE):
        match = _NODE.match(text, position)
        if match is None:
            return None
        position = match.end()
        if match["any"]:
            path.append(Step.WILDCARD)
        elif match["all"]:
            path += [Step.SUBSCRIPT, Step.WILDCARD]
        elif match["index"]:
            if int(match["index"]) > _LONG_MAX:
                raise EvaluationError(f"the position {match['index']} in the path {text!r} is too large")
            path += [Step.SUBSCRIPT, int(match["index"])]
        else:
            path += [Step.KEY, match["name"] or match["quoted"]]
    return tuple(path)


def get_json_object(document: str, path: str) -> str | None:
    """Return the value at the path, with strings unquoted.

    Return None if there is no value, if the path is invalid, or if a part of the document that is read is not JSON.
    """
    steps = path_of(path)
    if steps is None:
        return None
    reader = JsonReader(document, HIVE_RULES)
    out = _Output(to_bytes=True)
    try:
        reader.next_token()
        return "".join(out.parts) if _evaluate(reader, out, _Style.RAW, steps) else None
    except JsonError:
        return None


def _evaluate(reader: JsonReader, out: _Output, style: _Style, path: Path) -> bool:
    """Return True if a value was written.

    The cases and their order are those of ``GetJsonObjectEvaluator.evaluatePath``.
    """
    token = reader.token
    if not path:
        return _write(reader, out, style)
    head, rest = path[0], path[1:]
    if token is Token.START_OBJECT and head is Step.KEY:
        return _key(reader, out, style, rest)
    if token is Token.START_ARRAY and head is Step.SUBSCRIPT:
        return _subscript(reader, out, style, rest)
    if token is Token.NAME and (head is Step.WILDCARD or (isinstance(head, str) and head == reader.name)):
        value = reader.next_token()
        if head is not Step.WILDCARD and value is Token.NULL:
            return False
        return _evaluate(reader, out, style, rest)
    reader.skip_children()
    return False


def _write(reader: JsonReader, out: _Output, style: _Style) -> bool:
    if reader.token is Token.STRING and style is _Style.RAW:
        out.parts.append(require_utf8(reader.text()))
        return True
    if reader.token is Token.START_ARRAY and style is _Style.FLATTEN:
        return _write_flat(reader, out)
    out.parts.append(copy_structure(reader, out.to_bytes))
    return True


def _write_flat(reader: JsonReader, out: _Output) -> bool:
    """Write the values of an array and of all arrays in it, without recursion: arrays may be 1,000 levels deep."""
    found, depth = False, 1
    while depth:
        token = reader.next_token()
        _at_value(reader)
        if token is Token.START_ARRAY:
            depth += 1
        elif token is Token.END_ARRAY:
            depth -= 1
        else:
            out.parts.append(copy_structure(reader, out.to_bytes))
            found = True
    return found


def _key(reader: JsonReader, out: _Output, style: _Style, path: Path) -> bool:
    found = False
    while reader.next_token() is not Token.END_OBJECT:
        if found:  # the first match counts, but the rest must be JSON
            _at_value(reader)
            reader.skip_children()
        else:
            found = _evaluate(reader, out, style, path)
    return found


def _at_value(reader: JsonReader) -> None:
    if reader.token is None:
        raise JsonError("no value")


def _each(reader: JsonReader, out: _Output, style: _Style, path: Path) -> int:
    """Return the number of elements that matched."""
    matched = 0
    while reader.next_token() is not Token.END_ARRAY:
        _at_value(reader)
        matched += _evaluate(reader, out, style, path)
    return matched


def _subscript(reader: JsonReader, out: _Output, style: _Style, path: Path) -> bool:
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        if rest[:2] == (Step.SUBSCRIPT, Step.WILDCARD):
            style = _Style.QUOTED
        return _at_index(reader, out, style, head, rest)
    if style is _Style.QUOTED or rest[:2] == (Step.SUBSCRIPT, Step.WILDCARD):
        inner = _Output(out.to_bytes)
        if rest[:2] == (Step.SUBSCRIPT, Step.WILDCARD):
            matched = _each(reader, inner, _Style.FLATTEN, rest[2:])
        else:
            matched = _each(reader, inner, _Style.QUOTED, rest)
        out.parts.append(f"[{','.join(inner.parts)}]")
        return matched > 0
    inner = _Output(to_bytes=False)
    matched = _each(reader, inner, _Style.FLATTEN if style is _Style.FLATTEN else _Style.QUOTED, rest)
    if matched:  # a single match has no brackets, as in Hive
        body = ",".join(inner.parts)
        out.parts.append((require_utf8 if out.to_bytes else str)(body if matched == 1 else f"[{body}]"))
    return matched > 0


def _at_index(reader: JsonReader, out: _Output, style: _Style, index: int, path: Path) -> bool:
    reader.next_token()
    for _ in range(index):
        if reader.token is Token.END_ARRAY:
            return False
        _at_value(reader)
        reader.skip_children()
        reader.next_token()
    if reader.token is Token.END_ARRAY:
        return False
    found = _evaluate(reader, out, style, path)
    while reader.next_token() is not Token.END_ARRAY:
        _at_value(reader)
        reader.skip_children()
    return found


def json_array_length(document: str) -> int | None:
    """Return the length of the array; None if the document is not an array, or not JSON up to its end."""
    reader = JsonReader(document, HIVE_RULES)
    try:
        if reader.next_token() is not Token.START_ARRAY:
            return None
        length = 0
        while reader.next_token() is not Token.END_ARRAY:
            length += 1
            reader.skip_children()
        return length
    except JsonError:
        return None


def json_object_keys(document: str) -> list[str] | None:
    """Return the keys of the object; None if the document is not an object, or not JSON up to its end."""
    reader = JsonReader(document, HIVE_RULES)
    try:
        if reader.next_token() is not Token.START_OBJECT:
            return None
        keys: list[str] = []
        while reader.next_token() is Token.NAME:
            keys.append(str(reader.name))
            reader.next_token()
            reader.skip_children()
        return keys
    except JsonError:
        return None
