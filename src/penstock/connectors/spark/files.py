"""Files of a format that only Spark reads, through the Spark lane: a range is a list of files.

Which files there are is found out as for every file source. Those of one look are read by a Spark job on a spare slot
and staged in the checkpoint location; the slots read what is staged. See docs/spark-lane.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.discovery import FileDiscovery, without_waiting
from penstock.connectors.files.reader import check_as_listed
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.spark.staged_ranges import StagedRanges
from penstock.errors import DataError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split


class SparkReader(Protocol):
    """Spark's side. Called by one thread at a time; may block."""

    def stage(self, files: Mapping[str, Sequence[str]], options: Mapping[str, str], directory: str) -> None:
        """Write the rows of these files as Parquet files into a directory that does not exist yet.

        Args:
            files: by the directory whose subdirectories are partitions; the key is empty without partitions.
            options: the user's of the format, and Spark's.

        Raises:
            UnfitFile: they cannot be read as declared.
        """


class SparkFilesSource(Source):
    """``spark.readStream.format(...)`` of a format that has no reader of ours, or for what ours does not read.

    Args:
        format: as Spark calls it, for messages.
        path: a file, a directory or a pattern with wildcards.
        schema: the columns to read.
        options: Spark's of file streams; all others are the format's and go to Spark as they are.
        reader: Spark's side; stays on the driver.
        time_zone: the session's.
        partitions: names of the partition columns.
        declared: names of all columns of the DataFrame; None: those of ``schema``.
        case_sensitive: compare names of columns with their case.

    Raises:
        ConfigError: an option of file streams that is not supported.
    """

    runs_spark_jobs = True
    keeps_files = True

    def __init__(
        self,
        format: str,  # noqa: A002 - as Spark calls it
        path: str,
        schema: pa.Schema,
        options: Mapping[str, str],
        reader: SparkReader,
        time_zone: str,
        partitions: Sequence[str] = (),
        declared: Sequence[str] | None = None,
        case_sensitive: bool = False,
    ) -> None:
        texts = OptionTexts(f"{format} source", options)
        self.schema = schema
        columns = FileColumns(schema, partitions, time_zone, declared=declared, case_sensitive=case_sensitive)
        self._files = FileDiscovery(path, texts, columns)
        self._skips_missing = texts.flag("ignoreMissingFiles", False)
        self._options = texts.unread() | {"ignoreMissingFiles": str(self._skips_missing).lower()}
        self._reader: SparkReader | None = reader
        self._ranges = StagedRanges(self.describe(), schema, time_zone)
        self._state: Plain = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_reader": None, "_state": None}

    def describe(self) -> str:
        return f"FileStreamSource[file:{self._files.path}]"

    def open(self, location: str, operator_id: str) -> None:
        self._ranges.open(location, operator_id)

    def create_reader(self) -> SourceReader:
        return self._ranges.reader()

    @property
    def files(self) -> FileDiscovery:
        """Which files there are; the driver's side."""
        return self._files

    def takes_away(self) -> str:
        return self._files.takes_away()

    def freeze(self) -> None:
        self._files.freeze()

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        number, files = _parts(state)
        if state is None or state is not self._state:
            self._ranges.drop(lambda staged: staged >= number)  # of looks that were lost
        found = self._files.discover(files)
        splits: list[Split] = []
        if found.splits:
            splits = self._ranges.stage(number, lambda directory: self._stage(found.splits, directory))
            number += 1
        self._state = {"files": found.state, "range": number}
        return Discovery(splits, self._state, found.finished)

    def committed(self, state: Plain) -> None:
        if state is not None:
            number, files = _parts(state)
            self._ranges.drop(lambda staged: staged < number)
            self._files.committed(files)

    def of_another_query(self, state: Plain) -> Plain:
        if state is None:
            return None
        number, files = _parts(state)
        return {"files": without_waiting(files), "range": number}

    def _stage(self, files: Sequence[Split], directory: str) -> None:
        """A file that changes while Spark reads it may have been read half old, half new."""
        assert self._reader is not None, "Spark is on the driver"
        there: dict[str, list[str]] = {}
        for file in files:
            if (path := self._as_listed(file)) is not None:
                there.setdefault(cast("str", file.spec.get("root", "")), []).append(path)
        if there:
            self._reader.stage(there, self._options, directory)
        else:
            os.mkdir(directory)
        for file in files:
            self._as_listed(file)

    def _as_listed(self, file: Split) -> str | None:
        """Its path; None if it is gone and may be."""
        path = cast("str", file.spec["path"])
        try:
            check_as_listed(path, file)
        except FileNotFoundError as error:
            if self._skips_missing:
                return None
            raise DataError(f"input file {path} was listed but is gone; ignoreMissingFiles=true skips it") from error
        return path


def _parts(state: Plain) -> tuple[int, Plain]:
    """The next range's number, and what is known of the files."""
    content = cast("dict[str, Plain]", state or {"range": 0, "files": None})
    return cast("int", content["range"]), content["files"]
