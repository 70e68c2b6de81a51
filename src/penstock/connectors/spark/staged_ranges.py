"""Staged ranges of the Spark source bridge: rows that Spark jobs wrote to the checkpoint location for the slots."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa

from penstock.connectors.base import SourceReader
from penstock.connectors.files.columns import FileColumns
from penstock.connectors.files.parquet.reading import parquet_format
from penstock.connectors.files.reader import FileReader
from penstock.connectors.local_files import fsync_directory, fsync_file
from penstock.connectors.option_texts import OptionTexts
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.store.local_files import folder_of
from penstock.snapshots.store.store import is_clean_path

_RANGE = re.compile(r"(\d{10})-[0-9a-f]{1,64}")
"""Name of a range's directory: its number and a token.

The token is new for each attempt, because an older driver may still write to its own directory.
"""
_FILE = re.compile(rf"{SOURCE_FOLDER}/(?:[^/\0]+/)+{_RANGE.pattern}/part-[^/\0]+")
"""Path of a file of a range, relative to the location."""


class StagedRanges:
    """Staged ranges of one source. Call ``open`` on the driver before this object is sent to slots.

    Args:
        name: name of the source, for messages.
        schema: schema of the rows.
        time_zone: time zone of the session.
    """

    def __init__(self, name: str, schema: pa.Schema, time_zone: str) -> None:
        self._columns = FileColumns(schema, (), time_zone, with_metadata=False)
        self._format = partial(parquet_format, options=OptionTexts(name, {}), time_zone=time_zone, case_sensitive=True)
        self._location = Path()
        self._operator_id = ""

    def open(self, location: str, operator_id: str) -> None:
        self._location, self._operator_id = Path(location), operator_id

    @property
    def directory(self) -> Path:
        return self._location / SOURCE_FOLDER / self._operator_id

    def stage(self, number: int, write: Callable[[str], None]) -> list[Split]:
        """Stage a range durably and return its splits.

        Args:
            number: number of the range. Each range has the number of the range before it plus one.
            write: writes Parquet files to a directory that does not exist yet.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        directory = self.directory / f"{number:010d}-{secrets.token_hex(8)}"
        write(str(directory))
        files = sorted(path for path in directory.glob("part-*.parquet") if path.stat().st_size)
        splits = []
        for count, path in enumerate(files):
            fsync_file(path)
            status = path.stat()
            relative = path.relative_to(self._location).as_posix()
            spec: dict[str, Plain] = {"path": relative, "size": status.st_size, "modified_ns": status.st_mtime_ns}
            splits.append(Split(f"{number}/{count}", spec))
        for parent in (directory, self.directory, self.directory.parent):
            fsync_directory(parent)
        return splits

    def drop(self, is_dropped: Callable[[int], bool]) -> None:
        """Remove the ranges for whose number ``is_dropped`` returns True."""
        for path in self.directory.glob("*") if self.directory.exists() else ():
            match = _RANGE.fullmatch(path.name)
            if match and is_dropped(int(match[1])):
                relative = path.relative_to(self._location).as_posix()
                with suppress(FileNotFoundError), folder_of(str(self._location), relative) as (folder, name):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=folder)

    def reader(self) -> SourceReader:
        return FileReader(
            self._format, self._columns, _is_staged, skip_corrupt=False, skip_missing=False, below=self._location
        )


def _is_staged(path: str) -> bool:
    """Return True if ``StagedRanges.stage`` may have created a split with this path."""
    return is_clean_path(path) and _FILE.fullmatch(path) is not None
