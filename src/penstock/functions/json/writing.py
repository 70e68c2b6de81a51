"""``to_json``: structs, arrays and maps as documents, in the format of Spark's ``JacksonGenerator``."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.casts.java_digits import float_text
from penstock.functions.core.base import BoundReference, Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import null_outside
from penstock.functions.core.zones import Zone
from penstock.functions.json.text import number_text, quoted
from penstock.functions.times.formatting import FormatTimestamp, dates_formatted

Types = pa.types
Texts = list[str | None]


@dataclass(frozen=True)
class WritingRules:
    """Options of ``to_json``.

    Attributes:
        zone: the zone of timestamps.
        zone_id: Java's ID of the zone.
        ignore_null_fields: null fields of a struct are left out. Otherwise they are written as ``null``.
        timestamp_format: Java pattern of timestamps.
        ntz_format: Java pattern of timestamps without time zone.
        date_format: Java pattern of dates.
    """

    zone: Zone
    zone_id: str
    ignore_null_fields: bool
    timestamp_format: str
    ntz_format: str
    date_format: str


class ToJson(Strict):
    """``to_json``. The documents are written column by column."""

    def __init__(self, child: Expression, rules: WritingRules, nullable: bool) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.rules = rules

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pa.array(self._texts(null_outside(arrays[0], rows)), self.data_type)

    def _texts(self, array: pa.Array) -> Texts:
        """Return the text of each value; None where the value is null."""
        data_type = array.type
        if Types.is_struct(data_type):
            return self._structs(array)
        if Types.is_map(data_type):
            return self._maps(array)
        if Types.is_list(data_type):
            return _joined(array, [text or "null" for text in self._texts(array.values)], "[]")
        return self._atoms(array)

    def _structs(self, array: pa.Array) -> Texts:
        fields = []
        for i, field in enumerate(array.type):
            name = quoted(field.name)
            nothing = None if self.rules.ignore_null_fields else f"{name}:null"
            texts = self._texts(pc.struct_field(array, [i]))
            fields.append([nothing if text is None else f"{name}:{text}" for text in texts])
        rows = zip(*fields, strict=True) if fields else [()] * len(array)
        written = ["{" + ",".join(filter(None, row)) + "}" for row in rows]
        return [text if valid else None for text, valid in zip(written, array.is_valid().to_pylist(), strict=True)]

    def _maps(self, array: pa.Array) -> Texts:
        keys = [quoted(str(key)) for key in array.keys.to_pylist()]
        entries = [f"{key}:{text or 'null'}" for key, text in zip(keys, self._texts(array.items), strict=True)]
        return _joined(array, entries, "{}")

    def _atoms(self, array: pa.Array) -> Texts:
        data_type = array.type
        if Types.is_timestamp(data_type):
            zone, pattern = (
                (self.rules.zone, self.rules.timestamp_format) if data_type.tz else (Zone("UTC"), self.rules.ntz_format)
            )
            writer = FormatTimestamp(pattern, BoundReference(0, data_type), zone, self.rules.zone_id)
            texts = writer.compute([array], array.is_valid().to_numpy(zero_copy_only=False))
        elif Types.is_date(data_type):
            texts = pc.if_else(array.is_valid(), dates_formatted(self.rules.date_format, array), None)
        else:
            texts = array
        write = _writer(data_type)
        return [None if value is None else write(value) for value in texts.to_pylist()]


def _joined(array: pa.Array, elements: list[str], brackets: str) -> Texts:
    """Return the elements of each list in brackets; None for a null list."""
    written = [
        f"{brackets[0]}{','.join(elements[start:end])}{brackets[1]}"
        for start, end in pairwise(array.offsets.to_pylist())
    ]
    return [text if valid else None for text, valid in zip(written, array.is_valid().to_pylist(), strict=True)]


def _writer(data_type: pa.DataType) -> Callable[..., str]:
    if Types.is_string(data_type) or Types.is_timestamp(data_type) or Types.is_date(data_type):
        return quoted
    if Types.is_boolean(data_type):
        return lambda value: "true" if value else "false"
    if Types.is_float64(data_type):
        return number_text
    if Types.is_float32(data_type):
        return lambda value: float_text(value) if abs(value) < float("inf") else number_text(value)
    if Types.is_binary(data_type):
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    return str
