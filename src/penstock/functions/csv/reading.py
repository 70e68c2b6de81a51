"""``from_csv``: converts lines to values of a schema, one at a time, like Spark's ``UnivocityParser``.

A field that does not have its type, or a wrong number of fields, makes the record malformed. Its other fields are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import DataError, EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.record_fields import TextRules, text_converter
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import map_distinct
from penstock.functions.csv.lines import CsvDialect, split_line

MAX_COLUMNS = 20_480
"""Spark's maximum number of columns. More columns raise in Spark too."""

_END_OF_LINE = "\uffff"
"""Character with which Spark marks the end of a line for its parser. After it, the parser reads remains of earlier
lines."""


@dataclass(frozen=True)
class CsvOptions:
    """Options of ``from_csv``.

    Attributes:
        dialect: the delimiter, quotes and similar options.
        texts: the rules for converting fields.
        fails_fast: a malformed record raises. Otherwise the fields that could be read are kept.
        corrupt_field: the field that receives the text of a malformed record, if the schema has it.
        requested: positions of the columns to return. None: all columns; a line with another number of columns is then
            malformed.
    """

    dialect: CsvDialect
    texts: TextRules
    fails_fast: bool
    corrupt_field: str
    requested: tuple[int, ...] | None = None


class FromCsv(Strict):
    """``from_csv``. The result for a text is never null.

    Raises:
        EvaluationError: a record is malformed and the mode is FAILFAST, or a line has too many columns.
        DataError: the text contains U+FFFF. Spark's result for such a text is not deterministic.
    """

    def __init__(self, child: Expression, data_type: pa.DataType, options: CsvOptions, nullable: bool) -> None:
        super().__init__((child,), data_type, nullable)
        self.options = options

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return map_distinct(LineReader(self.data_type, self.options), arrays, self.data_type, rows)


class LineReader:
    """Converter from a line to a struct of the type."""

    def __init__(self, data_type: pa.StructType, options: CsvOptions) -> None:
        self._options = options
        self._fields = [field for field in data_type if field.name != options.corrupt_field]
        self._has_corrupt = len(self._fields) < data_type.num_fields
        self._converters = [text_converter(field.name, field.type, options.texts) for field in self._fields]

    def __call__(self, line: object) -> object:
        text = str(line)
        if _END_OF_LINE in text:
            raise DataError(f"from_csv: the text {text[:100]!r} holds U+FFFF, no character; replace() it first")
        if not text:
            return self._record([], None, bad=True)
        tokens: list[str] = split_line(text, self._options.dialect)
        if len(tokens) > MAX_COLUMNS:
            raise EvaluationError(f"from_csv: the text {text[:100]!r}... has more than {MAX_COLUMNS} fields")
        requested = self._options.requested
        if requested is None:
            return self._record(tokens, text, bad=len(tokens) != len(self._fields))
        null_value = self._options.dialect.null_value
        return self._record([tokens[i] if i < len(tokens) else null_value for i in requested], text, bad=False)

    def _record(self, tokens: list[str], text: str | None, bad: bool) -> object:
        null_value = self._options.dialect.null_value
        record: dict[str, object] = {}
        for field, convert, token in zip(self._fields, self._converters, tokens, strict=False):
            if token != null_value:
                try:
                    record[field.name] = convert(token)
                except (ValueError, OverflowError):
                    bad = True
        if bad and self._options.fails_fast:
            raise EvaluationError(
                f"[MALFORMED_RECORD_IN_PARSING] Malformed records are detected in record parsing: {text or ''!r:.99}. "
                "Parse Mode: FAILFAST. To process malformed records as null result, try setting the option 'mode' as "
                "'PERMISSIVE'."
            )
        if bad and self._has_corrupt:
            record[self._options.corrupt_field] = None if text is None else _without_line_end(text)
        return record


def _without_line_end(text: str) -> str:
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text[:-1] if text[-1:] in ("\r", "\n") else text
