"""Writing of CSV files in the format of Spark's writer (univocity, with Spark's settings)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.files.format import LineFormat, codec_option, lines, refuse_types
from penstock.connectors.files.text.sink_texts import file_texts
from penstock.connectors.files.text.sink_time_options import default_times
from penstock.connectors.option_texts import OptionTexts
from penstock.functions.casts.text_numbers import JAVA_BLANKS
from penstock.functions.core.zones import Zone

_COMMENT = "#"
"""A first field that starts with this character is quoted, although Spark's readers ignore comments by default."""
_GARBLED = "with the one and not the other Spark's own writer garbles texts of blanks"


@dataclass(frozen=True)
class CsvStyle:
    """Characters and rules of the files; see Spark's options of the same names."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = "\\"
    quote_all: bool = False
    null_value: str = ""
    empty_value: str = '""'
    strip_left: bool = True
    strip_right: bool = True


def csv_sink_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> CsvFormat:
    """Parse the options. ``time_zone``: the session's default for that option."""
    refuse_types("csv", schema, lambda kind: pa.types.is_nested(kind) or pa.types.is_binary(kind))
    zone = default_times(options, time_zone)
    options.only("lineSep", ["\n"])
    options.only("escapeQuotes", ["true"])
    for name in ("encoding", "charset"):
        options.only(name, ["UTF-8"])
    delimiter_name = "delimiter" if options.optional("sep") is None else "sep"
    style = CsvStyle(
        delimiter=options.character(delimiter_name, ","),
        quote=_printable(options, "quote", '"'),
        escape=_printable(options, "escape", "\\"),
        quote_all=options.flag("quoteAll", False),
        null_value=options.text("nullValue", ""),
        empty_value=options.text("emptyValue", '""'),
        strip_left=options.flag("ignoreLeadingWhiteSpace", True),
        strip_right=options.flag("ignoreTrailingWhiteSpace", True),
    )
    if style.strip_right and not style.strip_left:
        raise options.bad("ignoreLeadingWhiteSpace", "false", "set ignoreTrailingWhiteSpace=false, too: " + _GARBLED)
    return CsvFormat(schema, codec_option(options), zone, options.flag("header", False), style)


def _printable(options: OptionTexts, name: str, default: str) -> str:
    """Return a character option. NUL is refused, because Spark's writer and readers treat it differently."""
    character = options.character(name, default)
    if character == "\0":
        raise options.bad(name, character, "NUL is not supported")
    return character


@dataclass(frozen=True)
class CsvFormat(LineFormat):
    time_zone: str
    with_header: bool
    style: CsvStyle

    @property
    def name(self) -> str:
        return "csv"

    def header(self) -> bytes:
        if not self.with_header:
            return b""
        names = [pa.array([field.name], pa.string()) for field in self.schema]
        return bytes(lines(_LineEncoder(self.style).rows(names)))

    def encoder(self) -> Callable[[pa.RecordBatch], pa.Array]:
        zone, texts = Zone(self.time_zone), _LineEncoder(self.style)
        return lambda batch: texts.rows([file_texts(column, zone) for column in batch.columns])


class _LineEncoder:
    """Encoder of columns of texts as lines: trims fields, quotes them if necessary, and joins them."""

    def __init__(self, style: CsvStyle) -> None:
        self._style = style
        codes = "".join(f"\\x{{{ord(character):x}}}" for character in (style.delimiter, style.quote))
        self._triggers = f"[{codes}\\n\\r]"

    def rows(self, columns: list[pa.Array]) -> pa.Array:
        fields = [self._field(texts, index == 0) for index, texts in enumerate(columns)]
        joined = pc.binary_join_element_wise(*fields, self._style.delimiter)
        # A single column can result in an empty line. Spark does not write such lines: its readers skip them.
        return joined if len(columns) > 1 else joined.filter(pc.not_equal(joined, ""))

    def _field(self, texts: pa.Array, leads: bool) -> pa.Array:
        texts = self._trimmed(texts)
        written = pc.if_else(self._needs_quotes(texts, leads), self._quoted(texts), texts)
        written = pc.if_else(pc.equal(texts, ""), self._empty_text(self._style.empty_value, leads), written)
        return written.fill_null(self._empty_text(self._style.null_value, leads))

    def _trimmed(self, texts: pa.Array) -> pa.Array:
        if self._style.strip_left:
            texts = pc.utf8_ltrim(texts, JAVA_BLANKS)
        return pc.utf8_rtrim(texts, JAVA_BLANKS) if self._style.strip_right else texts

    def _needs_quotes(self, texts: pa.Array, leads: bool) -> pa.Array:
        """Return True for the texts that must be quoted. ``leads``: they are in the first column."""
        if self._style.quote_all:
            return texts.is_valid()
        needs_quotes = pc.match_substring_regex(texts, self._triggers)
        return pc.or_(needs_quotes, pc.starts_with(texts, _COMMENT)) if leads else needs_quotes

    def _quoted(self, texts: pa.Array) -> pa.Array:
        style = self._style
        if style.escape != style.quote:
            texts = pc.replace_substring(texts, style.escape, style.escape * 2)
        texts = pc.replace_substring(texts, style.quote, style.escape + style.quote)
        return pc.binary_join_element_wise(style.quote, texts, style.quote, "")

    def _empty_text(self, text: str, leads: bool) -> str:
        """Return the field for null or for empty strings; ``text`` itself if it already has quotes."""
        quote = self._style.quote
        if len(text) >= 2 and text.startswith(quote) and text.endswith(quote):
            return text
        texts = self._trimmed(pa.array([text], pa.string()))
        return str(pc.if_else(self._needs_quotes(texts, leads), self._quoted(texts), texts)[0])
