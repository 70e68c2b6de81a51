"""Sink of ``toTable``: writes each epoch exactly once to a table of Spark's catalog that consists of files.

Spark's own writer writes the files, on the driver, to a private directory of the table's location. Renames make them
visible. Their final names contain the epoch. Below the location::

    part-<query id>-<sink>-e0000000007-00000-<uuid>.snappy.parquet     committed: epoch 7 (in its partition's directory)

and in the directory of ``files.private_directory``::

    <query id>-<sink>/fence/..., work/<token>/...           the fence of this output: see ``fence``; in ``work``:
        committed.json                                      the last epoch that is completely visible
        e0000000008.ready/                                  Spark's files of epoch 8, and their list
    <query id>-<sink>-e0000000008-<token>.writing/          Spark has not finished it; a crash leaves it

The next commit of the epoch finishes a commit that a crash interrupted. Without ``.ready``, no row of the epoch is
visible, so Spark writes the files again. With ``.ready``, the files that are still in it are renamed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from penstock.connectors.base import FenceOpener, SinkCommitter
from penstock.connectors.fence import Fence, LocalFence
from penstock.connectors.files.private_directory import HOME, make_home, move_home
from penstock.connectors.local_files import fsync_directory, fsync_file, replace_durably
from penstock.connectors.spark.staged_rows import StagedRowsCommitter, StagingSink
from penstock.decoding import decode_json
from penstock.errors import CommitFailed, CommitInterrupted, CommitUnknown, PenstockError, SinkError
from penstock.grammar import TablePath
from penstock.model.commits import EpochCommit, LogPosition
from penstock.model.manifest import Count

MARKER = "committed.json"
_LIST = "_files.json"
_EPOCH_DIGITS = 10
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_T = TypeVar("_T")


class _Marker(msgspec.Struct, frozen=True):
    """Last epoch that is completely visible."""

    epoch: Count


Partition = Mapping[str, str | None]
"""Column -> value, as text."""


class TableWriter(Protocol):
    """Spark's writer of a table, on the driver. Its methods block."""

    def open(self) -> str:
        """Create the table if it does not exist, and return its directory. Raise SinkError on failure."""

    def check(self, columns: str) -> None:
        """Raise a PenstockError if rows with these columns do not fit the table.

        Called if they differ from the query's current columns.
        """

    def write(self, files: Sequence[str], columns: str, directory: str) -> None:
        """Write the rows of staged files to a new directory, in the table's format and with its partitions.

        Args:
            columns: columns of the rows; see ``row_columns``.
        """

    def published(self, partitions: Sequence[Partition]) -> None:
        """Update the catalog after files were added or removed. May be called repeatedly.

        Args:
            partitions: partitions to which files were added; empty if files were removed, or without partitions.
        """


class TableSink(StagingSink):
    """Sink that writes to a table; see the module's docstring.

    Args:
        name: name of the table.
        schema, columns: see ``StagingSink``.
        writer: creates the writer. It is called on the driver only.
    """

    def __init__(self, name: str, schema: pa.Schema, columns: str, writer: Callable[[], TableWriter] | None) -> None:
        self.name = name
        self._writer = writer
        super().__init__(schema, columns)

    def describe(self) -> str:
        return f"Table[{self.name}]"

    def target(self) -> str:
        return f"table:{self.name}"

    def create_committer(self) -> SinkCommitter:
        assert self._writer is not None, "committers are created on the driver"
        return _TableCommitter(self, self._writer())

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_writer": None}


class _TableCommitter(StagedRowsCommitter):
    def __init__(self, sink: TableSink, writer: TableWriter) -> None:
        super().__init__(sink)
        self._name = sink.name
        self._sink_id = sink.directory.name
        self._writer = writer
        self._location = Path()
        self._home = HOME
        self._key = ""
        self._fence: Fence | None = None
        self._work: Path | None = None
        self._lock = threading.Lock()

    def open(self, query_id: str) -> None:
        self._key = f"{query_id}-{self._sink_id}"
        self._location = Path(self._writer.open())
        with self._writable():
            self._home = make_home(self._location)
        self._fence = self._new_fence()

    def _new_fence(self) -> Fence:
        return Fence(LocalFence(self._private / self._key), f"table {self._name}")

    def check_fence(self, opener: FenceOpener) -> bool:
        assert self._fence is not None, "open comes first"
        with self._writable():
            return self._fence.check(opener)

    def written_from(self) -> str:
        assert self._fence is not None, "open comes first"
        with self._writable():
            return self._fence.written_from()

    def fence(self, opener: FenceOpener) -> str:
        assert self._fence is not None, "open comes first"
        with self._writable():
            if self._work is None:
                self._fence.check(opener)  # raises before any file is moved
                move_home(self._location)
                if self._home != HOME:
                    self._home = HOME
                    self._fence = self._new_fence()
            token = self._fence.open(opener)
        work = LocalFence(self._private / self._key).work(token)
        if work == self._work:
            return token
        with self._lock, self._writable():
            self._work = work
            for left in self._private.glob(f"{self._key}-e*.writing"):
                shutil.rmtree(left)
            self._move_unfenced(work)
        return token

    def _move_unfenced(self, work: Path) -> None:
        """Move files of a release without a fence to the work directory."""
        marker = self._private / f"{self._key}.json"
        if marker.is_file():
            os.rename(marker, work / MARKER)
        elif marker.is_dir():
            marker.rmdir()  # in format 2, this directory stops drivers of such a release
        for ready in self._private.glob(f"{self._key}-e*.ready"):
            os.rename(ready, work / ready.name.removeprefix(f"{self._key}-"))

    def check_held(self) -> None:
        if self._fence is not None and self._fence.is_lost():
            raise self._fence.lost()

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        with self._lock:
            self._hold(position, next_batch)

    def _hold(self, position: LogPosition, next_batch: int) -> None:
        if self._fence is not None and self._work is not None:
            try:
                self._fence.record(position, next_batch)
            except OSError as error:
                raise CommitFailed(f"table {self._name}: cannot write to {self._location}: {error}") from error

    def next_batch(self) -> int:
        return 0 if self._fence is None else self._fence.next_batch

    def newest_epoch(self) -> int:
        ready = [] if self._work is None else self._work.glob("e*.ready")
        return max([_last_epoch(self._marker), *(int(path.name[1:11]) for path in ready)])

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.check_held()  # another driver may have renamed the work directory in the meantime
            raise SinkError(f"table {self._name}: cannot write to {self._location}: {error}") from error

    @property
    def _marker(self) -> Path:
        return self._private / f"{self._key}.json" if self._work is None else self._work / MARKER

    def _ready(self, epoch: int) -> Path:
        name = f"e{epoch:010d}.ready"
        return self._private / f"{self._key}-{name}" if self._work is None else self._work / name

    @property
    def _private(self) -> Path:
        return self._location / self._home

    def retraction_problem(self, above: int, below: int) -> str:
        """Return an empty text: file names contain the epoch, so every epoch can be taken back."""
        return ""

    def retract(self, above: int, below: int) -> None:
        """Remove pending files, then visible files, so that no further rows of these epochs become visible."""
        try:
            with self._lock:
                self._retract(above, below)
                self._writer.published(())
        except Exception as error:
            self.check_held()
            if isinstance(error, PenstockError):
                raise
            raise SinkError(f"table {self._name}: cannot take back what was written to it: {error}") from error

    def _retract(self, above: int, below: int) -> None:
        prefix = self._ready(0).name.partition("e0")[0] + "e"
        for ready in list(self._ready(0).parent.glob(f"{prefix}*.ready")):
            if above < _epoch_after(ready.name, prefix) < below:
                shutil.rmtree(ready, ignore_errors=True)
        for path in list(self._location.rglob(f"part-{self._key}-e*")):
            if above < _epoch_after(path.name, f"part-{self._key}-e") < below and path.exists():
                # A driver that has lost the output has no work directory, so its rename fails.
                hidden = self._ready(0).with_name(f".{secrets.token_hex(8)}")
                os.rename(path, hidden)
                hidden.unlink()
                fsync_directory(path.parent)

    def check_columns(self, columns: str) -> None:
        self._writer.check(columns)

    def deliver(self, permit: EpochCommit, files: Sequence[str], columns: str) -> None:
        with self._lock:
            self._deliver(permit, files, columns)

    def _deliver(self, permit: EpochCommit, files: Sequence[str], columns: str) -> None:
        marker, ready = self._marker, self._ready(permit.epoch)
        begun = False
        try:
            if _last_epoch(marker) < permit.epoch:
                if not ready.exists():
                    self._write(files, columns, ready, permit)
                begun = True
                self._publish(ready, f"part-{self._key}-e{permit.epoch:010d}")
                replace_durably(marker, json.dumps({"epoch": permit.epoch}).encode())
            shutil.rmtree(ready, ignore_errors=True)
        except Exception as error:
            self.check_held()
            if isinstance(error, PenstockError):
                raise
            kind = CommitInterrupted if begun else CommitFailed
            where = f"table {self._name} in {self._location}, epoch {permit.epoch}"
            raise kind(f"{where}: {type(error).__name__}: {error}") from error

    def _write(self, files: Sequence[str], columns: str, ready: Path, permit: EpochCommit) -> None:
        """Write Spark's files and their list to one directory, which appears atomically under its final name.

        Spark creates missing directories, so it must not write to the work directory. Otherwise it could create that
        directory again after another driver has renamed it.
        """
        writing = self._private / f"{self._key}-e{permit.epoch:010d}-{secrets.token_hex(8)}.writing"
        try:
            self._writer.write(files, columns, str(writing))
            written = [path.relative_to(writing) for path in sorted(writing.rglob("*")) if path.is_file()]
            visible = [path for path in written if not path.name.startswith(("_", "."))]
            for path in visible:
                fsync_file(writing / path)
            replace_durably(writing / _LIST, json.dumps([path.as_posix() for path in visible]).encode())
            if permit.position is not None:
                self._hold(permit.position, permit.batch + 1)
            os.rename(writing, ready)
        except BaseException:
            shutil.rmtree(writing, ignore_errors=True)
            raise
        fsync_directory(ready.parent)

    def _publish(self, ready: Path, prefix: str) -> None:
        paths = [Path(text) for text in _decoded(ready / _LIST, list[TablePath])]
        for path in paths:
            directory = self._location / path.parent
            final = directory / f"{prefix}-{path.name.removeprefix('part-')}"
            directory.mkdir(parents=True, exist_ok=True)
            if (ready / path).exists():
                os.rename(ready / path, final)
            elif not final.exists():
                raise CommitUnknown(
                    f"table {self._name}: neither {ready / path} nor {final} exists; someone removed it"
                )
        for directory in sorted({self._location / path.parent for path in paths}):
            fsync_directory(directory)
        parents = dict.fromkeys(path.parent for path in paths if path.parent != Path())
        self._writer.published([_partition(parent) for parent in parents])


def _partition(directory: Path) -> Partition:
    """Parse the path of a partition, such as ``a=1/b=x%2Fy``, with Spark's escapes."""
    pairs = (part.partition("=") for part in directory.parts)
    return {unquote(name): None if value == _NULL_PARTITION else unquote(value) for name, _, value in pairs}


def _epoch_after(name: str, prefix: str) -> int:
    """Return the number that the ten digits after the prefix form; -1 if there are no ten digits."""
    digits = name.removeprefix(prefix)[:_EPOCH_DIGITS]
    return int(digits) if len(digits) == _EPOCH_DIGITS and digits.isascii() and digits.isdigit() else -1


def _last_epoch(marker: Path) -> int:
    try:
        return _decoded(marker, _Marker).epoch
    except FileNotFoundError:
        return 0


def _decoded(path: Path, kind: type[_T]) -> _T:
    """Decode one of Penstock's own files at a table. Its content decides which files are renamed.

    Raises:
        SinkError: a field does not follow its grammar.
    """
    try:
        return decode_json(path.read_bytes(), kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(
            f"{path} is not what a table sink wrote: it was damaged or forged, and nothing was touched: {error!s:.200}"
        ) from error
