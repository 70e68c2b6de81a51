"""Reading of text files in blocks of whole lines. Lines are split as in Hadoop's reader."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

from penstock.config import size_bytes
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import DataError
from penstock.functions.text.java_utf8 import decode_as_java

BLOCK_BYTES = 1 << 18
"""Approximate size of a block, which takes some milliseconds to decode."""

MOST_RECORD_BYTES = 2**31 - 1
"""Largest size of one text in a column of Arrow or Spark, in bytes."""
_RECORD_BYTES = "128m"
"""Default limit for a record, because a compressed file of 1 MB can become 1 GB without a line end."""

_UNREADABLE = (".zst", ".lz4", ".snappy", ".deflate", ".xz")
UTF8 = "utf-8"
_ENCODINGS = {
    "utf-8": UTF8, "utf8": UTF8, "us-ascii": "ascii", "iso-8859-1": "latin-1", "latin1": "latin-1",
}  # fmt: skip
"""Python codecs by their names in options. All of them are supersets of ASCII."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Block of whole lines that end with ``separator``; only the last line of a file may lack it.

    Args:
        data: the bytes of the lines.
        separator: the end of each line; no line contains it.
        first_line: number of the first line in the file, starting at 1.
        encoding: the Python codec of the data.
    """

    data: bytes
    separator: bytes
    first_line: int
    encoding: str = UTF8

    def lines(self) -> list[bytes]:
        return self.data.removesuffix(self.separator).split(self.separator) if self.data else []

    def texts(self) -> list[str]:
        """Return the decoded lines. Malformed bytes become U+FFFD."""
        if self.separator.isascii() and self.is_utf8():
            return self._split()
        return [decode_text(line, self.encoding) for line in self.lines()]

    def _split(self) -> list[str]:
        separator = self.separator.decode()
        return self.data.decode().removesuffix(separator).split(separator) if self.data else []

    def is_utf8(self) -> bool:
        """Return True if the data are valid UTF-8 and the encoding is UTF-8, or if all bytes are ASCII."""
        if self.data.isascii():
            return True
        if self.encoding != UTF8:
            return False
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def as_utf8(self) -> Block:
        """Return the same lines in valid UTF-8."""
        if self.is_utf8():
            return self
        separator = decode_text(self.separator, self.encoding).encode()
        return Block(separator.join(text.encode() for text in [*self.texts(), ""]), separator, self.first_line)

    @property
    def line_count(self) -> int:
        ended = self.data.count(self.separator)
        return ended if self.data.endswith(self.separator) else ended + bool(self.data)

    def halves(self) -> tuple[Block, Block]:
        """Split the block into two of similar size. Neither is empty if this block has more than one line."""
        middle = self.data.find(self.separator, len(self.data) // 2) + len(self.separator)
        if not len(self.separator) <= middle < len(self.data):
            middle = self.data.rfind(self.separator, 0, len(self.data) // 2) + len(self.separator)
        first = replace(self, data=self.data[:middle])
        return first, replace(self, data=self.data[middle:], first_line=self.first_line + first.line_count)


@dataclass(frozen=True)
class LineFormat:
    """Rules for splitting files into lines.

    Args:
        separator: line end that the options set; None: newline, carriage return or both.
        encoding: the Python codec of the texts.
        record_bytes: limit in bytes after decompression, for a line or for a file that is read as one record. A line
            may exceed it by up to ``BLOCK_BYTES``.
    """

    separator: bytes | None = None
    encoding: str = UTF8
    record_bytes: int = MOST_RECORD_BYTES

    def blocks(self, path: str) -> Iterator[Block]:
        """Read the file from its start. As in Spark, decompress files whose names end with ``.gz`` or ``.bz2``.

        Raises:
            DataError: the file has another compression, or a line is too long.
            OSError, EOFError, zlib.error: the file cannot be read to its end.
        """
        separator = self.separator or b"\n"
        line, rest, after_return = 1, b"", False
        with _open(path) as file:
            while chunk := file.read(max(BLOCK_BYTES, min(len(rest), self.record_bytes - len(rest) + 1))):
                if line == 1 and not rest:
                    chunk = chunk.removeprefix(_BYTE_ORDER_MARK)
                if self.separator is None:
                    chunk, after_return = _with_newlines(chunk, after_return)
                rest += chunk
                end = rest.rfind(separator) + len(separator)
                if end < len(separator):
                    if len(rest) > self.record_bytes:
                        raise self._too_long(f"{path}, line {line}")
                    continue
                block = Block(rest[:end], separator, line, self.encoding)
                rest = rest[end:]
                line += block.line_count
                yield block
        if rest:
            yield Block(rest, separator, line, self.encoding)

    def whole(self, path: str) -> bytes:
        """Return the content of a file; see ``blocks``."""
        with _open(path) as file:
            content = file.read(self.record_bytes + 1)
        if len(content) > self.record_bytes:
            raise self._too_long(path)
        return content

    def _too_long(self, where: str) -> DataError:
        return DataError(
            f"{where} has a record of more than {self.record_bytes} bytes after decompression; to read it, set a "
            "larger maxRecordBytes (up to 2g), and give the source's slots several times as much memory"
        )


def decode_text(data: bytes, encoding: str) -> str:
    """Return the text as Java decodes it."""
    return decode_as_java(data) if encoding == UTF8 else data.decode(encoding, errors="replace")


def _with_newlines(chunk: bytes, after_return: bool) -> tuple[bytes, bool]:
    """Replace each line end by a newline.

    Args:
        chunk: the next bytes of a file.
        after_return: True if the previous chunk ended with a carriage return.

    Returns:
        The bytes, and True if the chunk ended with a carriage return.
    """
    if after_return:
        chunk = chunk.removeprefix(b"\n")
    ends_with_return = chunk.endswith(b"\r")
    if b"\r" in chunk:
        chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return chunk, ends_with_return


def parse_encoding(options: OptionTexts) -> str | None:
    """Return the Python codec that the options name; None if they name none."""
    encoding, charset = options.optional("encoding"), options.optional("charset")
    name = encoding or charset
    if name is None:
        return None
    if name.lower() not in _ENCODINGS:
        raise options.bad("encoding" if encoding else "charset", name, "supported: UTF-8, ISO-8859-1, US-ASCII")
    return _ENCODINGS[name.lower()]


def parse_line_format(options: OptionTexts, own_separator: bool = True) -> LineFormat:
    """Parse the options about lines. ``own_separator``: the option ``lineSep`` may be given."""
    encoding = parse_encoding(options) or UTF8
    separator = options.optional("lineSep") if own_separator else options.only("lineSep", [])
    if separator == "":
        raise options.bad("lineSep", separator, "it must not be empty")
    separator_bytes = None if separator is None else separator.encode(encoding, errors="replace")
    return LineFormat(separator_bytes, encoding, _record_bytes(options))


def _record_bytes(options: OptionTexts) -> int:
    text = options.text("maxRecordBytes", _RECORD_BYTES)
    size = size_bytes("maxRecordBytes", text)
    if size < 1:
        raise options.bad("maxRecordBytes", text, "no record is so small")
    return min(size, MOST_RECORD_BYTES)


def is_compressed(path: str) -> bool:
    return path.endswith((".gz", ".bz2"))


def _open(path: str) -> BinaryIO:
    if path.endswith(_UNREADABLE):
        raise DataError(f"{path}: text files are read uncompressed, as .gz or as .bz2")
    if path.endswith(".gz"):
        return cast("BinaryIO", gzip.open(path, "rb"))
    if path.endswith(".bz2"):
        return cast("BinaryIO", bz2.open(path, "rb"))
    return open(path, "rb")
