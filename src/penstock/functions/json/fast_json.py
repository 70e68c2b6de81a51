"""Fast path of ordinary JSON documents, decoded by msgspec in C. Other documents fall back to the exact reader.

msgspec accepts only standard JSON, and only values of the field's type. It rejects everything that Jackson and Spark
treat leniently. Jackson is stricter only in depth and in the length of numbers and texts. Therefore documents that may
exceed these limits fall back to ``records`` or ``paths``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, TypedDict

import msgspec
import numpy as np
import pyarrow as pa

from penstock.decoding import json_decoder
from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.vectors import null_outside
from penstock.functions.json.paths import Step, path_of
from penstock.functions.json.tokens import DEEPEST, LONGEST_NAME, LONGEST_NUMBER, LONGEST_STRING

Types = pa.types
Decode = Callable[[str], Any]
TimeParser = Callable[[str], "int | None"]
"""Parser of a text. It returns None if only the exact path can read the text."""

_REFUSED = (msgspec.DecodeError, RecursionError)
_NEGATIVE_ZERO = re.compile(r"-0(?![0-9.])")
"""Jackson reads the integer 0, msgspec the double -0.0."""
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,17}")
_LONG_NUMBER = re.compile(rf"[-+.0-9eE]{{{LONGEST_NUMBER}}}")
_ODD_NAME = re.compile(r'["\\\x00-\x1f]')
"""Characters that must be escaped in a document. The fast path takes no names that contain them."""


def objects(
    array: pa.Array, rows: Mask | None, members: pa.StructType, time_parsers: Mapping[int, TimeParser]
) -> FastResult | None:
    """Decode documents into structs; None if a member has a type that the fast path does not decode.

    Args:
        array: the documents.
        rows: the selected rows.
        members: the fields of the structs.
        time_parsers: position of each member that is a date or timestamp -> its parser.
    """
    decode = _decoder(members)
    if decode is None:
        return None
    documents = null_outside(array, rows).to_pylist()
    fallback = np.zeros(len(documents), np.bool_)
    missing = (None,) * members.num_fields
    records: list[tuple[Any, ...]] = []
    for index, document in enumerate(documents):
        record = missing
        if document is not None and _is_beyond_limits(document):
            fallback[index] = True
        elif document is not None:
            try:
                record = msgspec.structs.astuple(decode(document))
            except _REFUSED:
                fallback[index] = True
            fallback[index] |= "-0" in document and _NEGATIVE_ZERO.search(document) is not None
        records.append(record)
    columns = [list(column) for column in zip(*records, strict=True)] or [[] for _ in missing]
    for index, time_parser in time_parsers.items():
        columns[index] = _parsed_times(columns[index], time_parser, fallback)
    arrays = [_column(column, field.type) for column, field in zip(columns, members, strict=True)]
    absent = pa.array([document is None for document in documents], pa.bool_())
    return FastResult(pa.StructArray.from_arrays(arrays, fields=list(members), mask=absent), fallback)


def _is_beyond_limits(document: str) -> bool:
    """Return True if the document may exceed one of Jackson's limits."""
    if len(document) < min(LONGEST_NUMBER, DEEPEST):
        return False
    if document.count("[") + document.count("{") >= DEEPEST or _LONG_NUMBER.search(document) is not None:
        return True
    return len(document) > LONGEST_NAME and _has_long_text(document)


def _has_long_text(document: str) -> bool:
    """Return True if a standard document has a text or name beyond Jackson's limits.

    Every second quote ends a text. The text is a name if a colon follows the quote.
    """
    if "\\" in document:
        document = document.replace("\\\\", "xx").replace('\\"', "xx")
    parts = document.split('"')
    return any(
        len(text) > (LONGEST_NAME if behind.lstrip().startswith(":") else LONGEST_STRING)
        for text, behind in zip(parts[1::2], parts[2::2], strict=False)
        if len(text) > LONGEST_NAME
    )


def _parsed_times(texts: list[str | None], time_parser: TimeParser, fallback: Mask) -> list[int | None]:
    known = {text: None if text is None else time_parser(text) for text in set(texts)}
    values = [known[text] for text in texts]
    fallback |= np.fromiter((v is None and t is not None for v, t in zip(values, texts, strict=True)), np.bool_)
    return values


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if Types.is_temporal(kind):
        return pa.array(values, pa.int32() if Types.is_date32(kind) else pa.int64()).view(kind)
    return pa.array(values, kind)


@lru_cache(maxsize=64)
def _decoder(members: pa.StructType) -> Decode | None:
    names = [field.name for field in members]
    kinds = [str if Types.is_temporal(field.type) else json_type(field.type) for field in members]
    if not names or len(set(names)) < len(names) or None in kinds or any(map(_ODD_NAME.search, names)):
        return None
    definition = [(f"f{index}", kind | None, None) for index, kind in enumerate(kinds)]
    rename = {f"f{index}": name for index, name in enumerate(names)}
    return json_decoder(msgspec.defstruct("Record", definition, rename=rename, gc=False)).decode


def json_type(kind: pa.DataType) -> Any:
    """Return the Python type for which msgspec accepts exactly the JSON values of this type; None if there is none."""
    if Types.is_string(kind):
        return str
    if Types.is_boolean(kind):
        return bool
    if Types.is_float64(kind):
        return float
    if Types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if Types.is_list(kind):
        item = json_type(kind.value_type)
        return None if item is None else list[item | None]  # type: ignore[valid-type]
    if Types.is_struct(kind):
        inner = {field.name: json_type(field.type) for field in kind}
        if None in inner.values() or not 0 < len(inner) == kind.num_fields:
            return None
        return TypedDict("Member", {name: item | None for name, item in inner.items()}, total=False)  # type: ignore[operator]
    return None


def at_path(documents: pa.Array, paths: pa.Array, rows: Mask | None, target: pa.DataType) -> FastResult | None:
    """Evaluate ``get_json_object`` for one constant path that consists of names.

    A row falls back unless the value is a non-empty text, an integer, a boolean or missing. Return None for other
    paths.
    """
    constant = null_outside(paths, rows).unique().drop_null().to_pylist()
    steps = path_of(constant[0]) if len(constant) == 1 else None
    names = tuple(str(step) for step in (steps or ())[1::2])
    if not steps or Step.WILDCARD in steps or Step.SUBSCRIPT in steps or any(map(_ODD_NAME.search, names)):
        return None
    decode, marks = _finder(names), [f'"{name}"' for name in names]
    found: list[str | None] = []
    fallback = np.zeros(len(documents), np.bool_)
    for row, document in enumerate(null_outside(documents, rows).to_pylist()):
        value = None
        if document is not None:
            # If a name occurs twice, the document may have two such members, of which the first counts.
            if "\\" in document or _is_beyond_limits(document) or any(document.count(mark) > 1 for mark in marks):
                fallback[row] = True
            else:
                try:
                    value = _text(decode(document))
                except (*_REFUSED, ValueError):
                    fallback[row] = True
        found.append(value)
    return FastResult(pa.array(found, target), fallback)


@lru_cache(maxsize=64)
def _finder(names: tuple[str, ...]) -> Callable[[str], bytes | None]:
    """Return a function that finds the value below these names, as written in the document; None if there is none."""
    kind: Any = msgspec.Raw
    for name in reversed(names):
        node = kind if kind is msgspec.Raw else kind | None
        kind = msgspec.defstruct("Node", [("below", node, None)], rename={"below": name}, gc=False)
    decode = json_decoder(kind).decode

    def find(document: str) -> bytes | None:
        node: Any = decode(document)
        for _ in names:
            if node is None:
                return None
            node = node.below
        return None if node is None else bytes(node)

    return find


def _text(value: bytes | None) -> str | None:
    """Return the text of a value.

    Raises:
        ValueError: Spark writes the value in another way than the document.
    """
    if value is None or value in (b"true", b"false") or _INTEGER.fullmatch(value):
        return None if value is None else value.decode()
    if value[:1] != b'"' or len(value) == 2:
        raise ValueError(value)
    return value[1:-1].decode()
