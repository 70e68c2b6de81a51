"""The Spark lane: what only the JVM can read, read by Spark jobs and handed to the slots as files.

Whatever is read is cut into *ranges* by the stream's own offsets, as micro-batches are. The driver plans a range, a
Spark job on a spare slot writes its rows into the checkpoint location, and each file is a split. From then on it is a
file source like any other: files are immutable, a position is a row of a file, and neither a replay nor a rescale
needs the JVM's reader again. docs/spark-lane.md argues why no row is lost or read twice.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa

from penstock.connectors.base import Discovery, Source, SourceReader, Split
from penstock.connectors.file_columns import FileColumns
from penstock.connectors.file_reader import FileReader
from penstock.connectors.local_files import fsync_directory, fsync_file
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.parquet_files import parquet_format
from penstock.errors import NotSupported
from penstock.operators.base import Plain
from penstock.snapshot.location import KEPT_FOLDER

_RANGE = re.compile(r"^(\d{10})-[0-9a-f]+$")
"""A staged range: its number and a token, new for each try, since an older driver may still be writing its own."""


class Lane(Protocol):
    """Spark's reader of one stream. Offsets are JSON texts. Called by one thread at a time; may block."""

    def open(self, directory: str) -> None:
        """Called first. The stream may keep in this directory what it has to remember over restarts."""

    def initial(self) -> str:
        """Where a new query begins."""

    def latest(self, start: str) -> str:
        """The end of the next range, within the source's own limits; ``start`` if there is nothing new."""

    def freeze(self, start: str) -> str | None:
        """The end of what there is now; None if ``latest`` itself ends there from now on."""

    def stage(self, start: str, end: str, directory: str) -> None:
        """Write the rows between two offsets as Parquet files into a directory that does not exist yet."""

    def committed(self, offset: str) -> None:
        """Nothing before this is read again."""

    def stop(self) -> None: ...


class SparkLaneSource(Source):
    """A stream of Spark's, through the lane.

    Args:
        name: of the source in Spark.
        lane: Spark's side; stays on the driver.
        schema: of the rows.
        time_zone: the session's.
    """

    runs_spark_jobs = True

    def __init__(self, name: str, lane: Lane, schema: pa.Schema, time_zone: str) -> None:
        self.schema = schema
        self._name = name
        self._lane: Lane | None = lane
        self._columns = FileColumns(schema, (), time_zone)
        self._read = parquet_format(schema, OptionTexts(self.describe(), {}), time_zone)
        self._location: Path | None = None
        self._operator_id = ""
        self._state: Plain = None
        self._frozen = False
        self._until: str | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_lane": None, "_state": None}

    def describe(self) -> str:
        return f"SparkLane[{self._name}]"

    def open(self, location: str, operator_id: str) -> None:
        self._location, self._operator_id = Path(location), operator_id
        self._on_driver().open(str(self._root() / "stream"))

    def create_reader(self) -> SourceReader:
        return FileReader(self._read, self._columns, skip_corrupt=False, skip_missing=False, below=self._location)

    def freeze(self) -> None:
        self._frozen = True
        start = self._on_driver().initial() if self._state is None else _offset(self._state)
        self._until = self._on_driver().freeze(start)

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        lane = self._on_driver()
        if state is None:
            state = {"offset": lane.initial(), "range": 0}
        number, start = _number(state), _offset(state)
        if state is not self._state:
            self._drop(lambda staged: staged >= number)  # of looks that were lost
        self._state = state
        end = lane.latest(start) if self._until is None else self._until
        if end == start:
            return Discovery((), state, finished=self._frozen)
        splits = self._stage(number, start, end)
        self._state = {"offset": end, "range": number + 1}
        return Discovery(splits, self._state, finished=self._frozen and self._until is not None)

    def committed(self, state: Plain) -> None:
        if state is not None:
            number = _number(state)
            self._drop(lambda staged: staged < number)
            self._on_driver().committed(_offset(state))

    def close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.stop()

    def _on_driver(self) -> Lane:
        assert self._lane is not None, "the lane is the driver's"
        return self._lane

    def _root(self) -> Path:
        if self._location is None:
            raise NotSupported(f"{self.describe()} stages what it reads and needs a checkpoint location")
        return self._location / KEPT_FOLDER / self._operator_id

    def _stage(self, number: int, start: str, end: str) -> list[Split]:
        self._root().mkdir(parents=True, exist_ok=True)
        directory = self._root() / f"{number:010d}-{secrets.token_hex(8)}"
        self._on_driver().stage(start, end, str(directory))
        files = sorted(path for path in directory.glob("part-*.parquet") if path.stat().st_size)
        splits = []
        for count, path in enumerate(files):
            fsync_file(path)
            status = path.stat()
            place = f"{KEPT_FOLDER}/{self._operator_id}/{directory.name}/{path.name}"
            spec: dict[str, Plain] = {"path": place, "size": status.st_size, "modified_ns": status.st_mtime_ns}
            splits.append(Split(f"{number}/{count}", spec))
        for parent in (directory, self._root(), self._root().parent):
            fsync_directory(parent)
        return splits

    def _drop(self, which: Callable[[int], bool]) -> None:
        """Remove staged ranges by number."""
        for path in self._root().glob("*") if self._root().exists() else ():
            match = _RANGE.match(path.name)
            if match and which(int(match[1])):
                shutil.rmtree(path, ignore_errors=True)


def _offset(state: Plain) -> str:
    return str(cast("dict[str, Plain]", state)["offset"])


def _number(state: Plain) -> int:
    return cast("int", cast("dict[str, Plain]", state)["range"])
