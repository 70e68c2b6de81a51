"""File source: each new file of a directory is a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.csv.reading import csv_format
from penstock.connectors.files.discovery import FileDiscovery, without_uncleaned
from penstock.connectors.files.json.reading import json_format
from penstock.connectors.files.orc.reading import orc_format
from penstock.connectors.files.parquet.reading import parquet_format
from penstock.connectors.files.reader import FileReader, ReadFile
from penstock.connectors.files.text.reading import text_format
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery

FORMATS: dict[str, Callable[..., ReadFile]] = {
    "parquet": parquet_format,
    "orc": orc_format,
    "csv": csv_format,
    "json": json_format,
    "text": text_format,
}
"""For each format, a function that takes a schema, options and a time zone and returns the reading function."""
COLUMNAR = ("parquet", "orc")
"""Formats whose files have named columns."""


class FileSource(Source):
    """Source of ``spark.readStream.format("parquet" | "orc" | "csv" | "json" | "text")``.

    A discovered file is read completely, in order. It must not change until it has been read. A split has the size and
    modification time of its file: a reader that finds a changed file raises ``DataError``, and so does a reader that
    finds no file unless ``ignoreMissingFiles`` is set.

    Args:
        format: a key of ``FORMATS``.
        path: a file, a directory or a pattern with wildcards.
        schema: the columns to read. If the corrupt-record column is among them, it gets the texts of malformed rows.
        options: Spark's options of the format and of file streams.
        time_zone: time zone of the session, for texts without a time zone.
        partitions: names of all partition columns, whether they are in ``schema`` or not.
        declared: names of all columns of the DataFrame; None: those of ``schema``.
        case_sensitive: compare column names case-sensitively.

    Raises:
        ConfigError: an option is not supported.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - as Spark calls it
        path: str,
        schema: pa.Schema,
        options: Mapping[str, str] | None = None,
        time_zone: str = "UTC",
        partitions: Sequence[str] = (),
        declared: Sequence[str] | None = None,
        case_sensitive: bool = False,
    ) -> None:
        if format not in FORMATS:
            raise ConfigError(f"file source of format {format}: choose one of {', '.join(FORMATS)}")
        texts = OptionTexts(f"{format} source", options or {})
        texts.optional("path")  # given as a parameter
        self.schema = schema
        zone = texts.time_zone(time_zone)
        self._columns = FileColumns(schema, partitions, zone, declared=declared, case_sensitive=case_sensitive)
        self._file_discovery = FileDiscovery(path, texts, self._columns)
        self._skips = texts.flag("ignoreCorruptFiles", False), texts.flag("ignoreMissingFiles", False)
        by_case = {"case_sensitive": case_sensitive} if format in COLUMNAR else {}
        self._format = partial(FORMATS[format], options=texts, time_zone=zone, **by_case)
        self._format(self._columns.file_schema)  # raises here, not later in a slot
        texts.finish()

    def describe(self) -> str:
        return f"FileStreamSource[file:{self._file_discovery.path}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        return self._file_discovery.discover(state)

    @property
    def file_discovery(self) -> FileDiscovery:
        """Discovery of the files, on the driver."""
        return self._file_discovery

    def removes_input(self) -> str:
        return self._file_discovery.removes_input()

    def freeze(self) -> None:
        self._file_discovery.freeze()

    def committed(self, state: Plain) -> None:
        self._file_discovery.committed(state)

    def adopt_state(self, state: Plain) -> Plain:
        return without_uncleaned(state)

    def create_reader(self) -> SourceReader:
        return FileReader(self._format, self._columns, self._file_discovery.paths.admits, *self._skips)
