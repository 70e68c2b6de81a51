"""Splitting of one line of CSV into fields, as Spark's parser does (univocity with Spark's settings).

Quotes are special only at the start of a field. In a quoted field the escape character gives a literal quote. If a
quote is followed by a character other than a delimiter, the rest up to the delimiter is taken unchanged, including the
quotes.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.functions.casts.text_numbers import JAVA_BLANKS


@dataclass(frozen=True)
class CsvDialect:
    """Options of a CSV line.

    The delimiter and the escape are single characters; ``quote`` is a character or empty (no quotes).
    """

    delimiter: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    empty_value: str = ""
    strip_left: bool = False
    strip_right: bool = False


def split_line(line: str, dialect: CsvDialect) -> list[str]:
    """Return the fields of a line.

    An empty field is the dialect's ``null_value``. An empty quoted field is its ``empty_value``.
    """
    if not dialect.quote or dialect.quote not in line:
        return [_plain(text, dialect) for text in line.split(dialect.delimiter)]
    return _QuotedLine(line, dialect).fields()


def _plain(text: str, dialect: CsvDialect) -> str:
    if dialect.strip_left:
        text = text.lstrip(JAVA_BLANKS)
    if dialect.strip_right:
        text = text.rstrip(JAVA_BLANKS)
    return text or dialect.null_value


_NONE = "\0"


class _EndOfLine(Exception):
    """The line ended inside a quoted field."""


class _QuotedLine:
    """Parser of a line that contains quotes.

    The result of Spark's parser for quotes and escapes at unusual positions follows no grammar. It follows from a loop
    over the current and the previous character, and this class has the same loop. Both characters are NUL after an
    escape was resolved.
    """

    def __init__(self, line: str, dialect: CsvDialect) -> None:
        self._line = line
        self._dialect = dialect
        self._at = 0
        self._ch = _NONE
        self._prev = _NONE
        self._value: list[str] = []
        self._raw = False
        self._trim = False

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
            while self._at < len(self._line) and dialect.delimiter != self._line[self._at] <= " ":
                self._at += 1
        if not self._line.startswith(dialect.quote, self._at):
            return _plain(self._until(dialect.delimiter), dialect)
        self._ch, self._prev, self._value, self._raw, self._trim = dialect.quote, _NONE, [], False, False
        self._at += 1
        empty = dialect.empty_value
        try:
            self._quoted()
            self._at -= 1  # back to the delimiter
        except _EndOfLine:
            self._at = len(self._line)
            if self._ch == dialect.quote and self._prev != dialect.quote and not self._raw:
                self._value.append(dialect.quote)
            if self._prev == _NONE:
                empty = dialect.null_value
        text = "".join(self._value)
        return (text.rstrip(JAVA_BLANKS) if self._trim else text) or empty

    def _next(self) -> str:
        if self._at >= len(self._line):
            raise _EndOfLine
        self._at += 1
        return self._line[self._at - 1]

    def _until(self, *stops: str) -> str:
        """Return the text before the first of ``stops``, or up to the end, and move to its end."""
        ends = [end for stop in stops if (end := self._line.find(stop, self._at)) >= 0]
        start, self._at = self._at, min(ends, default=len(self._line))
        return self._line[start : self._at]

    def _take_until(self, *stops: str) -> None:
        """Take the text from the current character to the first of ``stops``, which becomes the current character."""
        self._at -= 1
        self._value.append(self._until(*stops))
        self._ch = self._next()

    def _quoted(self) -> None:
        """Read from the first character after the opening quote to the delimiter.

        On return, the delimiter is the current character.
        """
        quote, escape, delimiter = self._dialect.quote, self._dialect.escape, self._dialect.delimiter
        stops = (_NONE,) if quote == escape and not self._closes_plainly() else ()
        self._ch = self._next()
        while not (self._prev == quote and (self._ch <= " " or self._ch == delimiter)):
            if self._ch in (quote, escape):
                self._resolve()
                self._prev = self._ch
                self._ch = self._next()
                continue
            if self._prev == quote:
                # A quote in the middle: the quote and everything that follows it are taken unchanged.
                self._raw = True
                self._value += (quote, self._ch)
                self._rest_as_it_is()
                return
            if self._prev == escape:
                self._value.append(escape)
            self._take_until(quote, escape, *stops)
            self._prev = self._ch
            self._ch = self._next()
        self._behind_closing_quote()

    def _closes_plainly(self) -> bool:
        """Return True if the next quote closes the field.

        Otherwise, if quotes are escaped by doubling, Spark's parser skips a NUL, because it uses NUL as the character
        that escapes the escape.
        """
        end = self._line.find(self._dialect.quote, self._at)
        return end > self._at and self._line.startswith(self._dialect.delimiter, end + 1)

    def _resolve(self) -> None:
        """Resolve a quote or an escape at the current character, which may represent itself.

        If quotes are escaped by doubling, the escape itself cannot be escaped.
        """
        quote, escape = self._dialect.quote, self._dialect.escape
        if self._ch == escape and escape != quote and self._prev == escape:
            self._value.append(escape)
            self._ch = _NONE
        elif self._prev == escape:
            if self._ch == quote:
                self._value.append(quote)
                self._ch = _NONE
            else:
                self._value.append(self._prev)
        elif self._ch == quote and self._prev == quote:
            self._value.append(quote)
        elif self._prev == quote:
            self._value.append(quote)
            self._prev = self._ch
            self._unquoted()

    def _unquoted(self) -> None:
        """Read to the delimiter after an escape that follows a quote. Escapes are still resolved."""
        quote, escape, delimiter = self._dialect.quote, self._dialect.escape, self._dialect.delimiter
        while self._ch != delimiter:
            if self._ch in (quote, escape):
                self._resolve()
            elif self._prev == quote:
                self._value.append(quote)
                self._prev = self._ch
                self._unquoted()
                return
            else:
                self._value.append(self._ch)
            self._prev = self._ch
            self._ch = self._next()

    def _rest_as_it_is(self) -> None:
        self._prev = self._ch
        self._value.insert(0, self._dialect.quote)
        self._ch = self._next()
        self._trim = self._dialect.strip_right
        if self._ch != self._dialect.delimiter:
            self._take_until(self._dialect.delimiter)

    def _behind_closing_quote(self) -> None:
        """Drop blanks up to the delimiter. If another character follows them, the quote did not close the field."""
        delimiter = self._dialect.delimiter
        blanks = ""
        while self._ch != delimiter and self._ch <= " ":
            blanks += self._ch
            self._ch = self._next()
        if blanks and self._ch != delimiter:
            self._value += (self._dialect.quote, blanks, self._ch)
            self._rest_as_it_is()
