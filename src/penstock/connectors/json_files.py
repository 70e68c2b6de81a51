"""JSON files, one value per line or one per file (``multiLine``), as Spark reads them with a given schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.json_columns import JsonColumns
from penstock.connectors.json_text import JsonArray, JsonObject, JsonValue, parse_json
from penstock.connectors.json_values import Misfit, Partial, Reader, json_reader
from penstock.connectors.malformed import Record, RecordRules, parse_record_rules
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.text_blocks import LineParser, read_records
from penstock.connectors.text_lines import Block, LineFormat, parse_line_format
from penstock.connectors.text_values import parse_text_rules
from penstock.operators.expressions.record_fields import TextRules

_LENIENT = (
    "allowComments", "allowUnquotedFieldNames", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter",
    "allowUnquotedControlChars",
)  # fmt: skip


def json_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> JsonFormat:
    lines = parse_line_format(options)
    options.without_effect(
        "inferSchema", "samplingRatio", "primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "inferTimestamp",
        "mergeSchema",
    )  # fmt: skip
    for name in _LENIENT:
        options.only(name, ["false"])
    for name in ("allowSingleQuotes", "allowNonNumericNumbers"):
        options.only(name, ["true"])
    rules = parse_record_rules(schema, options)
    texts = parse_text_rules(options, time_zone, floats=False)
    for field in rules.data_fields:
        json_reader(field.name, field.type, texts)  # refuses what JSON cannot hold, now rather than in a slot
    return JsonFormat(lines, rules, texts, options.flag("multiLine", False))


@dataclass(frozen=True)
class JsonFormat:
    """``JsonFormat(...)(path, skip_rows)`` reads a file. ``multi_line``: it is one value."""

    lines: LineFormat
    rules: RecordRules
    text_rules: TextRules
    multi_line: bool

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        parser = _JsonParser(self)
        if not self.multi_line:
            yield from read_records(path, self.lines, parser, self.rules, skip_rows)
            return
        text = self.lines.whole(path).removeprefix("\ufeff")
        for batch in self.rules.batches(path, parser.rows(text, 1) if text.strip() else ()):
            dropped = min(skip_rows, batch.num_rows)
            skip_rows -= dropped
            yield batch.slice(dropped)


class _JsonParser(LineParser):
    def __init__(self, format: JsonFormat) -> None:  # noqa: A002 - as Spark calls it
        self._rules = format.rules
        fields = format.rules.data_fields
        self._names = [field.name for field in fields]
        self._read_row = json_reader("row", pa.struct(fields), format.text_rules)
        self._quick = JsonColumns(fields, format.text_rules) if fields else None

    def quick(self, block: Block) -> pa.RecordBatch | None:
        columns = None if self._quick is None else self._quick.columns(block)
        return None if columns is None else self._rules.well_formed(columns)

    def records(self, block: Block) -> Iterator[Record]:
        for number, line in enumerate(block.texts(), block.first_line):
            if line.strip():
                yield from self.rows(line, number)

    def rows(self, text: str, number: int) -> Iterator[Record]:
        """The rows of one value."""
        nothing: list[object] = [None] * len(self._names)
        try:
            results = [_read(self._read_row, value) for value in _rows(parse_json(text))]
        except (ValueError, RecursionError) as error:
            yield Record(nothing, text, number, str(error))
            return
        # One malformed object of an array makes the whole line malformed.
        problem = next((problem for _, problem in results if problem), "")
        for row, _ in results:
            yield Record(nothing if row is None else [row[name] for name in self._names], text, number, problem)


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
