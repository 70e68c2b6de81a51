"""Arrow types from their texts: plans tell columns as texts, and where no rows are stored there is nothing else."""

from __future__ import annotations

import re

import pyarrow as pa

_SIMPLE = {
    str(kind): kind
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), pa.null()),
        *(pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.duration("us")),
    )
}
_DECIMAL = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_NOT_NULL = " not null"


def column_of(text: str) -> pa.Field | None:
    """The field of ``name type``; None if the text does not tell it for sure."""
    for name, kind in _splits(text):
        found = type_of(kind)
        if found is not None:
            return pa.field(name, found)
    return None


def _splits(text: str) -> list[tuple[str, str]]:
    """Names may have blanks, and so have types."""
    places = [place for place, letter in enumerate(text) if letter == " "]
    return [(text[:place], text[place + 1 :]) for place in places]


def type_of(text: str) -> pa.DataType | None:
    """None: not one that the text tells for sure."""
    found = _parsed(text)
    return found if found is not None and str(found) == text else None


def _parsed(text: str) -> pa.DataType | None:
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    kind, _, inside = text.partition("<")
    if not inside.endswith(">"):
        return None
    if kind == "map":
        ends = [_parsed(part) for part in _parts(inside[:-1])]
        return pa.map_(ends[0], ends[1]) if len(ends) == 2 and all(ends) else None
    fields = [_field(part) for part in _parts(inside[:-1])]
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return None
    if kind == "struct":
        return pa.struct(known)
    if kind == "list" and len(known) == 1:
        return pa.list_(known[0])
    return None


def _field(text: str) -> pa.Field | None:
    name, _, kind = text.partition(": ")
    nullable = not kind.endswith(_NOT_NULL)
    found = _parsed(kind.removesuffix(_NOT_NULL))
    return None if found is None else pa.field(name, found, nullable)


def _parts(text: str) -> list[str]:
    """What stands between commas, but not inside of other types."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
