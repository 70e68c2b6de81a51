"""Reading of CSV files, as Spark does with a given schema and ``multiLine`` off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.files.csv.columns import split_block
from penstock.connectors.files.text.blocks import LineParser, read_records
from penstock.connectors.files.text.columns import plain_column
from penstock.connectors.files.text.lines import Block, LineFormat, parse_line_format
from penstock.connectors.files.text.malformed import Record, RecordRules, parse_record_rules
from penstock.connectors.files.text.values import MALFORMED, parse_text_rules
from penstock.connectors.option_texts import OptionTexts
from penstock.functions.casts.text_numbers import JAVA_BLANKS
from penstock.functions.core.record_fields import TextRules, text_converter
from penstock.functions.csv.lines import CsvDialect, split_line


def csv_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> CsvFormat:
    lines = parse_line_format(options, own_separator=False)
    options.only("multiLine", ["false"])  # one record per line; Spark reads other files (planner/sources.py)
    options.without_effect("inferSchema", "samplingRatio", "preferDate", "mergeSchema")
    options.only("enforceSchema", ["true"])
    options.only("unescapedQuoteHandling", ["STOP_AT_DELIMITER"])
    delimiter_name = "delimiter" if options.optional("sep") is None else "sep"
    dialect = CsvDialect(
        delimiter=options.character(delimiter_name, ","),
        quote=options.character("quote", '"', empty_allowed=True),
        escape=options.character("escape", "\\"),
        null_value=options.text("nullValue", ""),
        empty_value=options.text("emptyValue", ""),
        strip_left=options.flag("ignoreLeadingWhiteSpace", False),
        strip_right=options.flag("ignoreTrailingWhiteSpace", False),
    )
    rules = parse_record_rules(schema, options)
    texts = parse_text_rules(options, time_zone, floats=True)
    for field in rules.data_fields:
        text_converter(field.name, field.type, texts)  # refuses types that CSV cannot hold: here, not later in a slot
    header = options.flag("header", False)
    return CsvFormat(lines, dialect, rules, texts, header, options.character("comment", "", empty_allowed=True))


@dataclass(frozen=True)
class CsvFormat:
    """Format of CSV files: a function ``(path, skip_rows)`` that reads a file."""

    lines: LineFormat
    dialect: CsvDialect
    rules: RecordRules
    text_rules: TextRules
    header: bool
    comment: str

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        return read_records(path, self.lines, _CsvParser(self), self.rules, skip_rows)


class _CsvParser(LineParser):
    def __init__(self, format: CsvFormat) -> None:  # noqa: A002 - as Spark calls it
        self._format = format
        self._fields = format.rules.data_fields
        self._converters = [text_converter(f.name, f.type, format.text_rules) for f in self._fields]
        self._header_is_due = format.header

    def fast_path(self, block: Block) -> pa.RecordBatch | None:
        if self._header_is_due or not self._fields:
            return None
        texts = split_block(block.as_utf8().data, len(self._fields), self._format.dialect, self._format.comment)
        if texts is None:
            return None
        columns = []
        for text, field, convert in zip(texts, self._fields, self._converters, strict=True):
            column = plain_column(text, field.type, self._format.text_rules)
            if column is None:
                try:
                    values = [None if item is None else convert(item) for item in text.to_pylist()]
                except MALFORMED:
                    return None  # a malformed row
                column = pa.array(values, field.type)
            columns.append(column)
        return self._format.rules.well_formed(columns)

    def exact_path(self, block: Block) -> Iterator[Record]:
        null_value, comment = self._format.dialect.null_value, self._format.comment
        for number, line in enumerate(block.texts(), block.first_line):
            if not line.strip(JAVA_BLANKS) or (comment and line.startswith(comment)):
                continue
            if self._header_is_due:
                self._header_is_due = False
                continue
            texts = split_line(line, self._format.dialect)
            fields = self._fields
            problem = "" if len(texts) == len(fields) else f"{len(texts)} fields for {len(fields)} columns"
            texts += [null_value] * (len(fields) - len(texts))
            values: list[object] = []
            for field, convert, text in zip(fields, self._converters, texts, strict=False):
                try:
                    values.append(None if text == null_value else convert(text))
                except MALFORMED:
                    values.append(None)
                    problem = problem or f"{text!r} is no value of column {field.name}, {field.type}"
            yield Record(values, line, number, problem)
