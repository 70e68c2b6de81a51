"""JSON files, one value per line, as Spark reads them with a given schema and ``multiLine`` off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.json_text import JsonArray, JsonObject, JsonValue, parse_json
from penstock.connectors.json_values import Misfit, Partial, json_reader
from penstock.connectors.malformed import Record, RecordRules, parse_record_rules
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.text_lines import parse_line_options, read_lines
from penstock.connectors.text_values import TextRules, parse_text_rules

_LENIENT = (
    "allowComments", "allowUnquotedFieldNames", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter",
    "allowUnquotedControlChars",
)  # fmt: skip


def json_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> JsonFormat:
    parse_line_options(options)
    options.without_effect(
        "inferSchema", "samplingRatio", "primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "inferTimestamp"
    )
    for name in _LENIENT:
        options.only(name, ["false"])
    for name in ("allowSingleQuotes", "allowNonNumericNumbers"):
        options.only(name, ["true"])
    rules = parse_record_rules(schema, options)
    texts = parse_text_rules(options, time_zone, floats=False)
    for field in rules.data_fields:
        json_reader(field.name, field.type, texts)  # refuses what JSON cannot hold, now rather than in a slot
    return JsonFormat(rules, texts)


@dataclass(frozen=True)
class JsonFormat:
    """``JsonFormat(...)(path, skip_rows)`` reads a file."""

    rules: RecordRules
    text_rules: TextRules

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        return self.rules.batches(path, self._records(path), skip_rows)

    def _records(self, path: str) -> Iterator[Record]:
        fields = self.rules.data_fields
        names = [field.name for field in fields]
        read_row = json_reader("row", pa.struct(fields), self.text_rules)
        nothing: list[object] = [None] * len(fields)
        for number, line in read_lines(path):
            if not line.strip():
                continue
            try:
                rows = _rows(parse_json(line))
            except (ValueError, RecursionError) as error:
                yield Record(nothing, line, number, str(error))
                continue
            for row in rows:
                problem = ""
                try:
                    values = read_row(row)
                except Partial as partial:
                    values, problem = partial.value, partial.problem
                except Misfit as misfit:
                    values, problem = None, f"{misfit} is no object"
                if not isinstance(values, dict):
                    yield Record(nothing, line, number, problem or "null is no object")
                else:
                    yield Record([values[name] for name in names], line, number, problem)


def _rows(value: JsonValue) -> list[JsonValue]:
    """An object is one row; an array of objects one row each."""
    if isinstance(value, JsonArray):
        if all(isinstance(item, JsonObject) for item in value.items):
            return value.items
        return [None]
    return [value]
