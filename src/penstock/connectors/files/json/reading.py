"""Reading of JSON files, with one value per line or per file (``multiLine``), as Spark does with a given schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.files.json.columns import JsonColumns
from penstock.connectors.files.text.blocks import LineParser, read_records
from penstock.connectors.files.text.lines import (
    Block,
    LineFormat,
    decode_text,
    is_compressed,
    parse_encoding,
    parse_line_format,
)
from penstock.connectors.files.text.malformed import Record, RecordRules, parse_record_rules
from penstock.connectors.files.text.values import parse_text_rules
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError
from penstock.functions.json.bytes import json_reader
from penstock.functions.json.tokens import JsonError, JsonReader, JsonRules
from penstock.functions.json.values import Converters, JsonOptions, PartialResult, Unreadable
from penstock.functions.text.java_utf8 import decode_as_java

_LENIENT = (
    "allowComments", "allowUnquotedFieldNames", "allowNumericLeadingZeros", "allowBackslashEscapingAnyCharacter",
)  # fmt: skip


def json_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> JsonFormat:
    lines = parse_line_format(options)
    options.without_effect(
        "inferSchema", "samplingRatio", "primitivesAsString", "prefersDecimal", "dropFieldIfAllNull", "inferTimestamp",
        "mergeSchema",
    )  # fmt: skip
    for name in _LENIENT:
        options.only(name, ["false"])
    rules = parse_record_rules(schema, options)
    reading = JsonOptions(
        parse_text_rules(options, time_zone, floats=False).times,
        JsonRules(
            single_quotes=options.flag("allowSingleQuotes", True),
            control_characters=options.flag("allowUnquotedControlChars", False),
            non_numeric=options.flag("allowNonNumericNumbers", True),
        ),
        dateless_time_is_malformed=True,
    )
    for field in rules.data_fields:
        _check_readable(field.name, field.type)
    return JsonFormat(lines, parse_encoding(options), rules, reading, options.flag("multiLine", False))


def _check_readable(name: str, kind: pa.DataType) -> None:
    """Raise ConfigError for a type that JSON cannot hold. This check runs on the driver, before any slot reads."""
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise ConfigError(f"column {name}: JSON files hold maps with string keys only")
    if pa.types.is_duration(kind):
        raise ConfigError(f"column {name}: type {kind} cannot be read from JSON files")
    for index in range(kind.num_fields):
        _check_readable(f"{name}.{kind.field(index).name}", kind.field(index).type)


@dataclass(frozen=True)
class JsonFormat:
    """Format of JSON files: a function ``(path, skip_rows)`` that reads a file.

    Args:
        encoding: Python codec that the options name; None: documents are read as bytes, as Jackson does.
        multi_line: True if each file is one value.
    """

    lines: LineFormat
    encoding: str | None
    rules: RecordRules
    reading: JsonOptions
    multi_line: bool

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        parser = _JsonParser(self)
        if not self.multi_line:
            yield from read_records(path, self.lines, parser, self.rules, skip_rows)
            return
        has_source = not is_compressed(path)
        for batch in self.rules.batches(path, parser.rows(self.lines.whole(path), 1, has_source)):
            dropped = min(skip_rows, batch.num_rows)
            skip_rows -= dropped
            yield batch.slice(dropped)


class _JsonParser(LineParser):
    def __init__(self, format: JsonFormat) -> None:  # noqa: A002 - as Spark calls it
        self._format = format
        fields = format.rules.data_fields
        self._names = [field.name for field in fields]
        self._convert = Converters(format.reading).rows(pa.struct(fields))
        self._columns = JsonColumns(fields, format.reading) if fields else None

    def fast_path(self, block: Block) -> pa.RecordBatch | None:
        columns = None if self._columns is None else self._columns.columns(block)
        return None if columns is None else self._format.rules.well_formed(columns)

    def exact_path(self, block: Block) -> Iterator[Record]:
        for number, line in enumerate(block.lines(), block.first_line):
            yield from self.rows(line, number)

    def rows(self, document: bytes, number: int, has_source: bool = True) -> Iterator[Record]:
        """Yield the rows of one value; no rows for a blank text. ``has_source``: see ``json_reader``."""
        problem = ""
        rows: object = None
        try:
            reader = self._reader(document, has_source)
            if reader.next_token() is None:
                return
            rows = self._convert(reader)
            problem = "" if rows is not None else "null is no object"
        except PartialResult as partly:
            # One malformed object of an array makes the whole record malformed.
            rows, problem = partly.value, str(partly)
        except (JsonError, Unreadable, UnicodeDecodeError) as error:
            problem = str(error) or "it is no object"
        text = decode_as_java(document) if problem else ""
        for row in rows if isinstance(rows, list) and (rows or not problem) else [{}]:
            yield Record([row.get(name) for name in self._names], text, number, problem)

    def _reader(self, document: bytes, has_source: bool) -> JsonReader:
        """Return a reader of a document.

        If the options name an encoding, bytes that are invalid in it make a line malformed; in a whole file they are
        replaced.
        """
        encoding, rules = self._format.encoding, self._format.reading.rules
        if encoding is None:
            return json_reader(document, rules, has_source)
        text = decode_text(document, encoding) if self._format.multi_line else document.decode(encoding)
        return JsonReader(text, rules)
