"""JSON files, one value per line, as Spark reads them with a given schema and ``multiLine`` off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.json_text import JsonArray, JsonObject, JsonValue, parse_json
from penstock.connectors.json_values import Misfit, Partial, Reader, json_reader
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
                results = [_read(read_row, value) for value in _rows(parse_json(line))]
            except (ValueError, RecursionError) as error:
                yield Record(nothing, line, number, str(error))
                continue
            # One malformed object of an array makes the whole line malformed.
            problem = next((problem for _, problem in results if problem), "")
            for row, _ in results:
                yield Record(nothing if row is None else [row[name] for name in names], line, number, problem)


def _read(read_row: Reader, value: JsonValue) -> tuple[dict[str, object] | None, str]:
    """The row by column names, as far as it can be read, and what is wrong with it."""
    try:
        row, problem = read_row(value), ""
    except Partial as partial:
        row, problem = partial.value, partial.problem
    except Misfit as misfit:
        row, problem = None, f"{misfit} is no object"
    return (row, problem) if isinstance(row, dict) else (None, problem or "null is no object")


def _rows(value: JsonValue) -> list[JsonValue]:
    """An object is one row; an array of objects one row each."""
    if isinstance(value, JsonArray):
        if all(isinstance(item, JsonObject) for item in value.items):
            return value.items
        return [None]
    return [value]
