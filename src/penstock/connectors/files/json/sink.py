"""Writing of JSON files, with one object per line, as Spark's ``JacksonGenerator`` writes them.

Arrow's kernels compose the texts column by column. Python code runs at most once per distinct value, for some types.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.files.format import LineFormat, codec_option, refuse_types
from penstock.connectors.files.text.sink_texts import file_texts
from penstock.connectors.files.text.sink_time_options import default_times
from penstock.connectors.option_texts import OptionTexts
from penstock.functions.core.vectors import map_distinct
from penstock.functions.core.zones import Zone

_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROLS = {chr(i): _SHORT.get(chr(i), f"\\u{i:04X}") for i in range(0x20)}


def json_sink_format(schema: pa.Schema, options: OptionTexts, time_zone: str, ignore_null_fields: bool) -> JsonFormat:
    """Parse the options. ``time_zone`` and ``ignore_null_fields``: the session's defaults for these options."""
    refuse_types("json", schema, _has_other_keys)
    zone = default_times(options, time_zone)
    options.only("lineSep", ["\n"])
    options.only("encoding", ["UTF-8"])
    options.only("pretty", ["false"])
    options.only("writeNonAsciiCharacterAsCodePoint", ["false"])
    return JsonFormat(schema, codec_option(options), zone, options.flag("ignoreNullFields", ignore_null_fields))


def _has_other_keys(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) and not pa.types.is_string(kind.key_type)


@dataclass(frozen=True)
class JsonFormat(LineFormat):
    time_zone: str
    ignore_null_fields: bool

    @property
    def name(self) -> str:
        return "json"

    def encoder(self) -> Callable[[pa.RecordBatch], pa.Array]:
        return _JsonEncoder(Zone(self.time_zone), self.ignore_null_fields).rows


class _JsonEncoder:
    """Encoder of arrays as JSON texts. A null value becomes a null text."""

    def __init__(self, zone: Zone, ignore_null_fields: bool) -> None:
        self._zone = zone
        self._ignore_null_fields = ignore_null_fields

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        return self._object([field.name for field in batch.schema], batch.columns, batch.num_rows)

    def of(self, values: pa.Array) -> pa.Array:
        kind = values.type
        if pa.types.is_struct(kind):
            names = [field.name for field in kind]
            texts = self._object(names, values.flatten(), len(values))
            return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))
        if pa.types.is_map(kind):
            lists = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            keys, items = lists.flatten().flatten()
            entries = pc.binary_join_element_wise(quoted(keys), self.of(items).fill_null("null"), ":")
            return _enclosed("{", _joined(lists, entries), "}")
        if pa.types.is_list(kind):
            return _enclosed("[", _joined(values, self.of(values.flatten()).fill_null("null")), "]")
        return self._scalars(values)

    def _scalars(self, values: pa.Array) -> pa.Array:
        kind = values.type
        if pa.types.is_string(kind):
            return quoted(values)
        if pa.types.is_binary(kind):
            return map_distinct(_base64, [values], pa.string(), None)
        texts = file_texts(values, self._zone)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _enclosed('"', texts, '"')
        if pa.types.is_floating(kind):
            return pc.if_else(pc.is_finite(values), texts, _enclosed('"', texts, '"'))
        return texts

    def _object(self, names: list[str], columns: list[pa.Array], rows: int) -> pa.Array:
        members = []
        for name, column in zip(names, columns, strict=True):
            texts = self.of(column)
            if not self._ignore_null_fields:
                texts = texts.fill_null("null")
            key = quoted(pa.array([name], pa.string()))[0]
            members.append(pc.binary_join_element_wise(key, texts, ":"))
        if not members:
            return pa.array(["{}"] * rows, pa.string())
        # If all members of a row are null, Arrow's join leaves the row out of its result.
        empty = reduce(pc.and_, (texts.is_null() for texts in members))
        members[0] = pc.if_else(empty, "", members[0])
        return _enclosed("{", pc.binary_join_element_wise(*members, ",", null_handling="skip"), "}")


def quoted(texts: pa.Array) -> pa.Array:
    """Encode strings as JSON strings. Only quotes, backslashes and control characters are escaped."""
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for character, escaped in _CONTROLS.items():
            texts = pc.replace_substring(texts, character, escaped)
    return _enclosed('"', texts, '"')


def _base64(data: bytes) -> str:
    return json.dumps(base64.b64encode(data).decode())


def _enclosed(before: str, texts: pa.Array, after: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, after, "")


def _joined(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """Join the texts of each list's items with commas. ``texts``: the items' texts of all lists that are not null."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), ",")
    return pc.if_else(lists.is_valid(), joined, pa.scalar(None, pa.string()))
