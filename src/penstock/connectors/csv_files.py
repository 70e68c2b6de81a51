"""CSV files as rows, as Spark reads them with a given schema and ``multiLine`` off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.csv_lines import CsvDialect, split_line
from penstock.connectors.malformed import Record, RecordRules, parse_record_rules
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.text_lines import parse_line_options, read_lines
from penstock.connectors.text_values import TextRules, parse_text_rules, text_converter

_BLANKS = "".join(map(chr, range(0x21)))


def csv_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> CsvFormat:
    parse_line_options(options)
    options.without_effect("inferSchema", "samplingRatio", "preferDate")
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
        text_converter(field.name, field.type, texts)  # refuses what CSV cannot hold, now rather than in a slot
    return CsvFormat(
        dialect,
        rules,
        texts,
        options.flag("header", False),
        options.character("comment", "", empty_allowed=True),
    )


@dataclass(frozen=True)
class CsvFormat:
    """``CsvFormat(...)(path, skip_rows)`` reads a file."""

    dialect: CsvDialect
    rules: RecordRules
    text_rules: TextRules
    header: bool
    comment: str

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        return self.rules.batches(path, self._records(path), skip_rows)

    def _records(self, path: str) -> Iterator[Record]:
        fields = self.rules.data_fields
        converters = [text_converter(f.name, f.type, self.text_rules) for f in fields]
        header_is_due = self.header
        null_value = self.dialect.null_value
        for number, line in read_lines(path):
            if not line.strip(_BLANKS) or (self.comment and line.startswith(self.comment)):
                continue
            if header_is_due:
                header_is_due = False
                continue
            texts = split_line(line, self.dialect)
            problem = "" if len(texts) == len(fields) else f"{len(texts)} fields for {len(fields)} columns"
            texts += [null_value] * (len(fields) - len(texts))
            values: list[object] = []
            for field, convert, text in zip(fields, converters, texts, strict=False):
                try:
                    values.append(None if text == null_value else convert(text))
                except (ValueError, OverflowError):
                    values.append(None)
                    problem = problem or f"{text!r} is no value of column {field.name}, {field.type}"
            yield Record(values, line, number, problem)
