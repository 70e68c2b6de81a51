"""``to_csv``: structs as lines, in the format of Spark's ``UnivocityGenerator`` with its default quoting."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.casts.fast_digits import all_double_texts
from penstock.functions.casts.java_digits import float_text
from penstock.functions.casts.text_numbers import JAVA_BLANKS
from penstock.functions.core.base import BoundReference, Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import null_outside
from penstock.functions.core.zones import Zone
from penstock.functions.times.formatting import FormatTimestamp, dates_formatted

Types = pa.types
_COMMENT = "#"
_EMPTY = '""'


@dataclass(frozen=True)
class CsvRules:
    """Options of ``to_csv``.

    Attributes:
        separator: one character.
        null_text: the text for null.
        zone: the zone of timestamps.
        zone_id: Java's ID of the zone.
        timestamp_format: Java pattern of timestamps.
        ntz_format: Java pattern of timestamps without time zone.
        date_format: Java pattern of dates.
    """

    separator: str
    null_text: str
    zone: Zone
    zone_id: str
    timestamp_format: str
    ntz_format: str
    date_format: str


class ToCsv(Strict):
    """``to_csv``. The lines are written column by column."""

    def __init__(self, child: Expression, rules: CsvRules, nullable: bool) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.rules = rules

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        array = null_outside(arrays[0], rows)
        columns = [self._column(pc.struct_field(array, [i]), i == 0) for i in range(array.type.num_fields)]
        lines = pc.binary_join_element_wise(*columns, pa.scalar(self.rules.separator, pa.string()))
        return pc.if_else(array.is_valid(), lines, pa.scalar(None, pa.string()))

    def _column(self, array: pa.Array, is_first: bool) -> pa.Array:
        encoded = array.dictionary_encode()
        written = [self._quoted(text, is_first) for text in self._texts(encoded.dictionary)]
        null_text = self._quoted(self.rules.null_text, is_first) if self.rules.null_text else ""
        return pc.fill_null(pa.array(written, pa.string()).take(encoded.indices), null_text)

    def _texts(self, array: pa.Array) -> list[str]:
        """Return the texts of non-null values."""
        data_type = array.type
        if Types.is_timestamp(data_type):
            zone, pattern = (
                (self.rules.zone, self.rules.timestamp_format) if data_type.tz else (Zone("UTC"), self.rules.ntz_format)
            )
            writer = FormatTimestamp(pattern, BoundReference(0, data_type), zone, self.rules.zone_id)
            array = writer.compute([array], None)
        elif Types.is_date(data_type):
            array = dates_formatted(self.rules.date_format, array)
        values = array.to_pylist()
        if Types.is_boolean(data_type):
            return ["true" if value else "false" for value in values]
        if Types.is_float64(data_type):
            written: list[str] = all_double_texts(array).to_pylist()
            return written
        if Types.is_float32(data_type):
            return [float_text(value) for value in values]
        return [str(value) for value in values]

    def _quoted(self, text: str, is_first: bool) -> str:
        """Strip blanks, and put the text in quotes if it would otherwise be read as something else.

        As in univocity, special characters are searched before the blanks at the end are stripped, and a comment before
        those at the start are.
        """
        unled = text.lstrip(JAVA_BLANKS)
        body = unled.rstrip(JAVA_BLANKS)
        if not body:
            return _EMPTY
        special = any(character in unled for character in (self.rules.separator, '"', "\n", "\r"))
        if not special and not (is_first and text.startswith(_COMMENT)):
            return body
        return '"' + body.replace("\\", "\\\\").replace('"', '\\"') + '"'
