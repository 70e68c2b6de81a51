"""Lines of a text file as Hadoop's reader sees them."""

from __future__ import annotations

import bz2
import gzip
import io
from collections.abc import Iterator
from typing import BinaryIO, cast

from penstock.connectors.option_texts import OptionTexts
from penstock.errors import DataError

_UNREADABLE = (".zst", ".lz4", ".snappy", ".deflate", ".xz")


def parse_line_options(options: OptionTexts) -> None:
    """UTF-8 and ordinary line ends only."""
    options.only("encoding", ["UTF-8"])
    options.only("charset", ["UTF-8"])
    options.only("lineSep", [])
    options.only("multiLine", ["false"])


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line, without its end (newline, carriage return or both) and byte order mark.

    Bytes that are not UTF-8 become U+FFFD. ``.gz`` and ``.bz2`` files are uncompressed, as Spark does by name.

    Raises:
        DataError: another compression.
    """
    if path.endswith(_UNREADABLE):
        raise DataError(f"{path}: text files are read uncompressed, as .gz or as .bz2")
    with _open(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=None) as file:
        for number, line in enumerate(file, start=1):
            yield number, line[:-1] if line.endswith("\n") else line


def _open(path: str) -> BinaryIO:
    if path.endswith(".gz"):
        return cast("BinaryIO", gzip.open(path, "rb"))
    if path.endswith(".bz2"):
        return cast("BinaryIO", bz2.open(path, "rb"))
    return open(path, "rb")
