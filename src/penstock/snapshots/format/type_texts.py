"""Parser of the texts of Arrow types. Plans store columns as texts, the only description of a table without rows."""

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


def parse_column(text: str) -> pa.Field | None:
    """Return the field of a text of the form ``name type``; None if it has no known type."""
    for name, kind in _name_and_type_candidates(text):
        found = parse_type(kind)
        if found is not None:
            return pa.field(name, found)
    return None


def _name_and_type_candidates(text: str) -> list[tuple[str, str]]:
    """Return all divisions of the text at blanks, since names and types may contain blanks."""
    spaces = [space for space, letter in enumerate(text) if letter == " "]
    return [(text[:space], text[space + 1 :]) for space in spaces]


def parse_type(text: str) -> pa.DataType | None:
    """Return the type of a text; None if the type is unknown or the text is ambiguous."""
    found = _parse(text)
    return found if found is not None and str(found) == text else None


def _parse(text: str) -> pa.DataType | None:
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    kind, _, inside = text.partition("<")
    if not inside.endswith(">"):
        return None
    if kind == "map":
        ends = [_parse(part) for part in _split_at_commas(inside[:-1])]
        return pa.map_(ends[0], ends[1]) if len(ends) == 2 and all(ends) else None
    fields = [_parse_field(part) for part in _split_at_commas(inside[:-1])]
    known = [field for field in fields if field is not None]
    if len(known) < len(fields):
        return None
    if kind == "struct":
        return pa.struct(known)
    if kind == "list" and len(known) == 1:
        return pa.list_(known[0])
    return None


def _parse_field(text: str) -> pa.Field | None:
    name, _, kind = text.partition(": ")
    nullable = not kind.endswith(_NOT_NULL)
    found = _parse(kind.removesuffix(_NOT_NULL))
    return None if found is None else pa.field(name, found, nullable)


def _split_at_commas(text: str) -> list[str]:
    """Return the parts between commas. Commas inside nested types do not separate parts."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
