"""File formats of the file sink. A format writes rows to a file, and merges several files."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from penstock.connectors.files.row_groups import ROW_GROUP_ROWS
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import NotSupported

LINES_AT_ONCE = 1 << 14
"""Number of rows that are converted to text at a time. The limit saves memory: texts may be far larger than values."""
_COPY_BYTES = 1 << 20
_GZIP_LEVEL = 6  # zlib's and so Hadoop's default; Python's own is 9
CODECS = {"none": "", "uncompressed": "", "gzip": ".gz", "bzip2": ".bz2"}
"""Compressions of text files, with the suffix that each adds to the file name."""


class FileWriter(ABC):
    """Writer of one file. Its methods raise ``OSError`` or ``pa.ArrowException``."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Write one or more rows of the format's schema."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file. Called once. The caller must sync the file to make it durable."""


@dataclass(frozen=True)
class FileFormat(ABC):
    """File format for rows of one schema. It is sent to the slots.

    Attributes:
        schema: schema of the files: that of the rows without partition columns.
    """

    schema: pa.Schema

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the format in ``format(...)``."""

    @property
    def group_rows(self) -> int:
        """Number of rows to gather before they are written."""
        return ROW_GROUP_ROWS

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Suffix of file names, for example ``.snappy.parquet``."""

    @abstractmethod
    def create(self, path: Path) -> FileWriter:
        """Create a file that does not exist yet."""

    @abstractmethod
    def merge(self, sources: Sequence[Path], target: Path) -> None:
        """Write the rows of ``sources`` in order to the new file ``target``. All sources have this format."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the layout of files. Only files with equal fingerprints are merged.

        Fingerprints are stored. Renaming a class or field of a format changes its fingerprint.
        """
        columns = [f"{field.name} {field.type}" for field in self.schema]  # ``repr`` of an Arrow schema cuts long names
        return hashlib.sha256(f"{self!r}{columns}".encode()).hexdigest()[:8]


@dataclass(frozen=True)
class LineFormat(FileFormat):
    """Text file with one row per line. ``codec`` is a key of ``CODECS``."""

    codec: str

    @property
    def group_rows(self) -> int:
        """A small number of rows, because text files have no row groups."""
        return LINES_AT_ONCE

    @property
    def suffix(self) -> str:
        return f".{'txt' if self.name == 'text' else self.name}{CODECS[self.codec]}"

    def header(self) -> bytes:
        """Return the first line of every file; empty if there is none."""
        return b""

    @abstractmethod
    def encoder(self) -> Callable[[pa.RecordBatch], pa.Array]:
        """Return a function that converts rows to texts without line ends, one per row. It may drop rows."""

    def open(self, path: Path, mode: str) -> BinaryIO:
        if self.codec == "gzip":
            return cast("BinaryIO", gzip.open(path, mode, compresslevel=_GZIP_LEVEL))
        if self.codec == "bzip2":
            return cast("BinaryIO", bz2.open(path, mode))
        return cast("BinaryIO", path.open(mode))

    def create(self, path: Path) -> FileWriter:
        return _LineWriter(self.open(path, "wb"), self.header(), self.encoder())

    def merge(self, sources: Sequence[Path], target: Path) -> None:
        header = self.header()
        with self.open(target, "wb") as out:
            out.write(header)
            for source in sources:
                with self.open(source, "rb") as file:
                    if file.read(len(header)) != header:
                        raise OSError(f"{source} does not begin with the header {header!r}")
                    shutil.copyfileobj(file, out, _COPY_BYTES)


class _LineWriter(FileWriter):
    def __init__(self, file: BinaryIO, header: bytes, encode: Callable[[pa.RecordBatch], pa.Array]) -> None:
        self._file = file
        self._encode = encode
        file.write(header)

    def write(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=LINES_AT_ONCE):
            self._file.write(lines(self._encode(batch)))

    def close(self) -> None:
        self._file.close()


def lines(texts: pa.Array) -> memoryview:
    """Return the bytes of the texts, which have no nulls, with a newline after each."""
    ended = pa.compute.binary_join_element_wise(texts, "", "\n")
    _, offsets, data = ended.buffers()
    if data is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int32, count=len(ended) + 1 + ended.offset)
    return memoryview(data)[int(bounds[ended.offset]) : int(bounds[-1])]


def codec_option(options: OptionTexts) -> str:
    """Parse the option ``compression`` of a text format."""
    codec = options.text("compression", "none").strip().lower()
    if codec not in CODECS:
        raise options.bad("compression", codec, f"choose {', '.join(CODECS)}")
    return codec


def refuse_types(format_name: str, schema: pa.Schema, refused: Callable[[pa.DataType], bool]) -> None:
    """Raise NotSupported if the type of a column, or a type nested in it, cannot be written in the format."""

    def check(name: str, kind: pa.DataType) -> None:
        if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind) or refused(kind):
            raise NotSupported(f"the {format_name} sink cannot write column {name} of type {kind}: cast it")
        for i in range(kind.num_fields):
            check(f"{name}.{kind.field(i).name}", kind.field(i).type)

    for field in schema:
        check(field.name, field.type)
