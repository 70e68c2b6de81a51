"""Writing of text files, with one string column and one line per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.files.format import LineFormat, codec_option
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import NotSupported


def text_sink_format(schema: pa.Schema, options: OptionTexts) -> TextFormat:
    """Parse the options. As in Spark, null becomes an empty line, and a text with line ends several lines."""
    options.only("lineSep", ["\n"])
    if len(schema) != 1 or not pa.types.is_string(schema.field(0).type):
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        raise NotSupported(f"the text sink writes exactly one string column, not {columns}: concatenate or cast")
    return TextFormat(schema, codec_option(options))


@dataclass(frozen=True)
class TextFormat(LineFormat):
    @property
    def name(self) -> str:
        return "text"

    def encoder(self) -> Callable[[pa.RecordBatch], pa.Array]:
        return lambda batch: batch.column(0).fill_null("")
