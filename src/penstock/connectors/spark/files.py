"""Source of files that only Spark can read, through the Spark source bridge: a range is a list of files.

Files are discovered as in Penstock's own file source. A Spark job on a spare slot reads the files of one discovery and
stages their rows in the checkpoint location, from which the slots read them. See docs/spark-source-bridge.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.discovery import FileDiscovery, without_uncleaned
from penstock.connectors.files.reader import check_as_listed
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.spark.staged_ranges import StagedRanges
from penstock.errors import DataError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split


class SparkFileReader(Protocol):
    """Spark's batch reader of files. Called by one thread at a time; may block."""

    def stage(self, files: Mapping[str, Sequence[str]], options: Mapping[str, str], directory: str) -> None:
        """Write the rows of these files as Parquet files to a directory that does not exist yet.

        Args:
            files: paths of the files, by the root of their partition directories; the key is empty without partitions.
            options: options of the format.

        Raises:
            UnfitFile: the files cannot be read as declared.
        """


class SparkFilesSource(Source):
    """Source of ``spark.readStream.format(...)`` for formats and options that Penstock's own readers do not support.

    Args:
        format: name of the format in Spark, for messages.
        path: a file, a directory or a pattern with wildcards.
        schema: the columns to read.
        options: Spark's options of file streams, and those of the format, which are passed to Spark unchanged.
        reader: Spark's reader, which stays on the driver.
        time_zone: time zone of the session.
        partitions: names of the partition columns.
        declared: names of all columns of the DataFrame; None: those of ``schema``.
        case_sensitive: compare column names case-sensitively.

    Raises:
        ConfigError: an option of file streams is not supported.
    """

    runs_spark_jobs = True
    keeps_files = True

    def __init__(
        self,
        format: str,  # noqa: A002 - as Spark calls it
        path: str,
        schema: pa.Schema,
        options: Mapping[str, str],
        reader: SparkFileReader,
        time_zone: str,
        partitions: Sequence[str] = (),
        declared: Sequence[str] | None = None,
        case_sensitive: bool = False,
    ) -> None:
        texts = OptionTexts(f"{format} source", options)
        self.schema = schema
        columns = FileColumns(schema, partitions, time_zone, declared=declared, case_sensitive=case_sensitive)
        self._file_discovery = FileDiscovery(path, texts, columns)
        self._skips_missing = texts.flag("ignoreMissingFiles", False)
        self._options = texts.unread() | {"ignoreMissingFiles": str(self._skips_missing).lower()}
        self._reader: SparkFileReader | None = reader
        self._ranges = StagedRanges(self.describe(), schema, time_zone)
        self._state: Plain = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_reader": None, "_state": None}

    def describe(self) -> str:
        return f"FileStreamSource[file:{self._file_discovery.path}]"

    def open(self, location: str, operator_id: str) -> None:
        self._ranges.open(location, operator_id)

    def create_reader(self) -> SourceReader:
        return self._ranges.reader()

    @property
    def file_discovery(self) -> FileDiscovery:
        """Discovery of the files, on the driver."""
        return self._file_discovery

    def removes_input(self) -> str:
        return self._file_discovery.removes_input()

    def freeze(self) -> None:
        self._file_discovery.freeze()

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        number, files = _fields(state)
        if state is None or state is not self._state:
            self._ranges.drop(lambda staged: staged >= number)  # staged by discoveries whose results were lost
        found = self._file_discovery.discover(files)
        splits: list[Split] = []
        if found.splits:
            splits = self._ranges.stage(number, lambda directory: self._stage(found.splits, directory))
            number += 1
        self._state = {"files": found.state, "range": number}
        return Discovery(splits, self._state, found.finished)

    def committed(self, state: Plain) -> None:
        if state is not None:
            number, files = _fields(state)
            self._ranges.drop(lambda staged: staged < number)
            self._file_discovery.committed(files)

    def adopt_state(self, state: Plain) -> Plain:
        if state is None:
            return None
        number, files = _fields(state)
        return {"files": without_uncleaned(files), "range": number}

    def _stage(self, files: Sequence[Split], directory: str) -> None:
        """Stage the files. Check them before and after: Spark may read a mixture of old and new content from a file."""
        assert self._reader is not None, "Spark is on the driver"
        paths: dict[str, list[str]] = {}
        for file in files:
            if (path := self._checked_path(file)) is not None:
                paths.setdefault(cast("str", file.spec.get("root", "")), []).append(path)
        if paths:
            self._reader.stage(paths, self._options, directory)
        else:
            os.mkdir(directory)
        for file in files:
            self._checked_path(file)

    def _checked_path(self, file: Split) -> str | None:
        """Return the path of a file, which must not have changed since it was listed.

        Return None if the file no longer exists and ``ignoreMissingFiles`` is set.
        """
        path = cast("str", file.spec["path"])
        try:
            check_as_listed(path, file)
        except FileNotFoundError as error:
            if self._skips_missing:
                return None
            raise DataError(f"input file {path} was listed but is gone; ignoreMissingFiles=true skips it") from error
        return path


def _fields(state: Plain) -> tuple[int, Plain]:
    """Return the number of the next range and the state of the file discovery."""
    content = cast("dict[str, Plain]", state or {"range": 0, "files": None})
    return cast("int", content["range"]), content["files"]
