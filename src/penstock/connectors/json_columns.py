"""A block of ordinary JSON lines as columns, equal to what ``json_text`` and ``json_values`` make of each of them.

msgspec decodes a line in C and takes nothing that is not JSON by the book, and no value that is not of its column's
type; what Spark is lenient about, it refuses. Then the block is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.connectors.json_text import parse_json
from penstock.connectors.json_values import Misfit, Partial, json_reader
from penstock.connectors.text_columns import plain_column
from penstock.connectors.text_lines import Block
from penstock.operators.expressions.quick_json import json_type
from penstock.operators.expressions.record_fields import TextRules

_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.])")
"""As a number it is -0.0 in a column of doubles, and msgspec has no integer for that."""
_BLANK = b" \t\r\n\x0b\x0c"

_Column = Callable[[list[Any]], "pa.Array | None"]


class JsonColumns:
    """Args: ``fields``: at least one."""

    def __init__(self, fields: Sequence[pa.Field], rules: TextRules) -> None:
        columns = [_column(field, rules) for field in fields]
        names = [f"f{index}" for index in range(len(fields))]
        definition = [(name, kind, default) for name, (kind, default, _) in zip(names, columns, strict=True)]
        rename = dict(zip(names, (field.name for field in fields), strict=True))
        row = msgspec.defstruct("Row", definition, rename=rename, gc=False)
        self._decode = msgspec.json.Decoder(row).decode
        self._convert: list[_Column] = [convert for _, _, convert in columns]

    def columns(self, block: Block) -> list[pa.Array] | None:
        """None if the block holds anything but objects that fit."""
        if not block.is_text() or _NEGATIVE_ZERO.search(block.data):
            return None
        try:
            rows = [self._decode(line) for line in block.lines() if line.strip(_BLANK)]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        if not rows:
            return None
        values = zip(*map(msgspec.structs.astuple, rows), strict=True)
        columns = [convert(list(column)) for convert, column in zip(self._convert, values, strict=True)]
        return None if any(column is None for column in columns) else columns


def _column(field: pa.Field, rules: TextRules) -> tuple[Any, Any, _Column]:
    """What msgspec decodes a member as, its value where it is missing, and the column of such values."""
    kind = field.type
    quick = json_type(kind)
    if quick is not None:
        return quick | None, None, lambda values: pa.array(values, kind)
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        return str | None, None, lambda values: plain_column(pa.array(values, pa.string()), kind, rules)
    read = json_reader(field.name, kind, rules)

    def one_by_one(values: list[Any]) -> pa.Array | None:
        try:
            return pa.array([None if raw is None else read(parse_json(bytes(raw).decode())) for raw in values], kind)
        except (ValueError, Partial, Misfit, RecursionError):
            return None

    return msgspec.Raw, None, one_by_one
