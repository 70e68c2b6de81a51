"""Fast path for JSON lines: decodes a block to columns, with results equal to ``functions.json.bytes`` and ``.values``.

msgspec decodes a line in C. It refuses text that is not strict JSON, and values that do not have the type of their
column. Spark may be lenient in these cases, so the caller then parses the block line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from penstock.connectors.files.text.columns import plain_column
from penstock.connectors.files.text.lines import Block
from penstock.decoding import json_decoder
from penstock.functions.core.record_fields import TextRules
from penstock.functions.json.bytes import json_reader
from penstock.functions.json.fast_json import json_type
from penstock.functions.json.tokens import DEEPEST, LONGEST_NUMBER, JsonError
from penstock.functions.json.values import Converters, JsonOptions, PartialResult, Unreadable

_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.])")
"""Number that Jackson reads as the integer 0, but msgspec as the double -0.0."""
_BLANK = b" \t\r\n"
_LONG_NUMBER = re.compile(rb"[-+.0-9eE]{%d}" % LONGEST_NUMBER)

_Column = Callable[[list[Any]], "pa.Array | None"]


class JsonColumns:
    """Decoder of JSON lines to columns. ``fields``: the columns, at least one."""

    def __init__(self, fields: Sequence[pa.Field], options: JsonOptions) -> None:
        columns = [_column_plan(field, options) for field in fields]
        names = [f"f{index}" for index in range(len(fields))]
        definition = [(name, kind, default) for name, (kind, default, _) in zip(names, columns, strict=True)]
        rename = dict(zip(names, (field.name for field in fields), strict=True))
        row = msgspec.defstruct("Row", definition, rename=rename, gc=False)
        self._decode = json_decoder(row).decode
        self._convert: list[_Column] = [convert for _, _, convert in columns]

    def columns(self, block: Block) -> list[pa.Array] | None:
        """Return the columns; None if the caller must parse the block line by line."""
        if not block.is_utf8() or _NEGATIVE_ZERO.search(block.data):
            return None
        lines = block.lines()
        if any(map(_is_beyond_limits, lines)):
            return None
        try:
            rows = [self._decode(line) for line in lines if line.strip(_BLANK)]
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        if not rows:
            return None
        values = zip(*map(msgspec.structs.astuple, rows), strict=True)
        columns = [convert(list(column)) for convert, column in zip(self._convert, values, strict=True)]
        return None if any(column is None for column in columns) else columns


def _is_beyond_limits(line: bytes) -> bool:
    """Return True if the line may exceed Jackson's limits for the length of numbers or the depth."""
    if len(line) < min(LONGEST_NUMBER, DEEPEST):
        return False
    return line.count(b"[") + line.count(b"{") >= DEEPEST or _LONG_NUMBER.search(line) is not None


def _column_plan(field: pa.Field, options: JsonOptions) -> tuple[Any, Any, _Column]:
    """Return msgspec's type of a member, its default value, and a function that converts its values to the column."""
    kind = field.type
    direct = json_type(kind)
    if direct is not None:
        return direct | None, None, lambda values: pa.array(values, kind)
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        rules = TextRules(options.times)
        return str | None, None, lambda values: plain_column(pa.array(values, pa.string()), kind, rules)
    convert = Converters(options).of(kind)

    def read(raw: bytes) -> object:
        reader = json_reader(raw, options.rules)
        reader.next_token()
        return convert(reader)

    def converted(values: list[Any]) -> pa.Array | None:
        try:
            return pa.array([None if raw is None else read(bytes(raw)) for raw in values], kind)
        except (JsonError, Unreadable, PartialResult):
            return None

    return msgspec.Raw, None, converted
