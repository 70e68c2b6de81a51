"""Reading of text files, with one row per line or per file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.connectors.files.columns import rows_without_columns
from penstock.connectors.files.text.lines import UTF8, LineFormat, parse_line_format
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError
from penstock.functions.text.java_utf8 import decode_as_java


def text_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> TextFormat:
    if len(schema) > 1 or not all(pa.types.is_string(field.type) for field in schema):
        raise ConfigError(f"text files hold one string column, not {', '.join(schema.names)}")
    whole = options.flag("wholetext", False)
    lines = parse_line_format(options)
    # Spark's text reader uses the encoding for the separator only.
    return TextFormat(schema, replace(lines, encoding=UTF8), whole)


@dataclass(frozen=True)
class TextFormat:
    """Format of text files: a function ``(path, skip_rows)`` that reads a file. Empty lines are rows."""

    schema: pa.Schema
    lines: LineFormat
    whole: bool

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        if self.whole:
            texts = [] if skip_rows else [decode_as_java(self.lines.whole(path))]
            yield self._batch(texts)
            return
        for block in self.lines.blocks(path):
            texts = block.texts()
            dropped = min(skip_rows, len(texts))
            skip_rows -= dropped
            if dropped < len(texts):
                yield self._batch(texts[dropped:])

    def _batch(self, texts: list[str]) -> pa.RecordBatch:
        if not len(self.schema):
            return rows_without_columns(len(texts))
        return pa.record_batch([pa.array(texts, pa.string())], schema=self.schema)
