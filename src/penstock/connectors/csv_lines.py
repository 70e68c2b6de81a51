"""One line of CSV as fields, the way Spark's parser (univocity, with Spark's settings) reads it.

Quotes count only at the start of a field. Inside, the escape character gives a literal quote; after a quote that is
followed by something else than a delimiter, the rest up to the delimiter is taken as it is, quotes included.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CsvDialect:
    """Single characters; ``quote`` and ``comment`` may be empty: none."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    empty_value: str = ""
    strip_left: bool = False
    strip_right: bool = False


def split_line(line: str, dialect: CsvDialect) -> list[str]:
    """The fields of a line; an empty field is the dialect's ``null_value``, an empty quoted one its ``empty_value``."""
    if not dialect.quote or dialect.quote not in line:
        return [_plain(text, dialect) for text in line.split(dialect.delimiter)]
    return _QuotedLine(line, dialect).fields()


def _plain(text: str, dialect: CsvDialect) -> str:
    if dialect.strip_left:
        text = text.lstrip(_BLANKS)
    if dialect.strip_right:
        text = text.rstrip(_BLANKS)
    return text or dialect.null_value


_BLANKS = "".join(map(chr, range(0x21)))


class _QuotedLine:
    """Walks over a line that holds quotes."""

    def __init__(self, line: str, dialect: CsvDialect) -> None:
        self._line = line
        self._at = 0
        self._dialect = dialect

    def fields(self) -> list[str]:
        fields = []
        while True:
            fields.append(self._field())
            if self._at >= len(self._line):
                return fields
            self._at += 1  # the delimiter

    def _field(self) -> str:
        dialect = self._dialect
        if dialect.strip_left:
            self._skip_blanks()
        if self._line.startswith(dialect.quote, self._at):
            return self._quoted()
        return _plain(self._until_delimiter(), dialect)

    def _skip_blanks(self) -> None:
        while self._at < len(self._line) and self._line[self._at] <= " " != self._dialect.delimiter:
            self._at += 1

    def _until_delimiter(self) -> str:
        end = self._line.find(self._dialect.delimiter, self._at)
        start, self._at = self._at, len(self._line) if end < 0 else end
        return self._line[start : self._at]

    def _quoted(self) -> str:
        start = self._at
        self._at += 1
        content: list[str] = []
        while self._at < len(self._line):
            char = self._line[self._at]
            following = self._line[self._at + 1 : self._at + 2]
            if char == self._dialect.escape and following and following in (self._dialect.quote, self._dialect.escape):
                content.append(following)
                self._at += 2
            elif char == self._dialect.quote:
                return self._after_quote(start, content)
            else:
                content.append(char)
                self._at += 1
        return self._line[start:]  # never closed: the rest of the line, as it is

    def _after_quote(self, start: int, content: list[str]) -> str:
        """At a quote that may close the field: it does if only blanks follow up to the delimiter."""
        self._at += 1
        rest_start = self._at
        rest = self._until_delimiter()
        if not rest.strip(_BLANKS):
            return "".join(content) or self._dialect.empty_value
        return '"' + "".join(content) + self._line[rest_start - 1 : self._at]
