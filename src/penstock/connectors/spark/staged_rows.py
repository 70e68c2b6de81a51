"""Staged rows: an epoch's rows as Parquet files, for sinks that pass a DataFrame to Spark on the driver.

Below the sink's staging directory (``Sink.stage_in``)::

    g3-<token>-00002-000005.parquet       generation 3, subtask 2, the sixth file of its writer

In the files, columns are named by position, so that the query's column names can be arbitrary. The message has the
original columns, with which the rows are delivered. It names the file relative to the directory, so that a checkpoint
location can be moved. A file is needed until the log records its epoch as committed, because until then the epoch may
be committed again. The next ``commits_logged`` removes the file. ``abandon`` removes files that a crash left.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from io import BufferedWriter
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.connectors.arrow_message import empty_batch
from penstock.connectors.base import COLUMNS_NOT_STORED, Sink, SinkCommitter, SinkContext, SinkWriter
from penstock.connectors.files.format import FileWriter
from penstock.connectors.files.parquet.sink import ParquetFormat
from penstock.connectors.files.row_groups import RowGroup
from penstock.connectors.local_files import fsync_directory, fsync_file
from penstock.connectors.row_columns import columns_of_epoch, parsed_columns
from penstock.decoding import decode_json
from penstock.errors import CommitFailed, CommitUnknown, CorruptSnapshot, NotSupported, SinkError
from penstock.grammar import Columns, StagedFileName
from penstock.logs import get_logger
from penstock.model.commits import EpochCommit
from penstock.model.manifest import Count
from penstock.snapshots.store.local_files import new_file, remove_file

log = get_logger(__name__)

_GENERATION = re.compile(r"g(\d+)-")


class StagedRows(msgspec.Struct, frozen=True):
    """Commit message: the file that one subtask staged in one epoch. ``columns``: see the module ``row_columns``."""

    file: StagedFileName
    rows: Count
    size: Count
    columns: Columns = ""


def decode_staged(message: bytes) -> StagedRows:
    """Decode a message of a writer of staged rows.

    Raises:
        SinkError: the message has another format, or a field does not follow its grammar. The check is necessary,
            because files are delivered and removed by these names.
    """
    try:
        return decode_json(message, StagedRows)
    except msgspec.ValidationError as error:
        raise SinkError(
            f"a stored commit message is none that a writer of staged rows wrote: it was forged, and nothing was "
            f"touched: {error!s:.200}"
        ) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise SinkError(f"a stored commit message is none of staged rows: {error!s:.200}") from error


class StagingSink(Sink):
    """Base class of sinks whose writers stage rows in files.

    Args:
        schema: schema of the rows; names may repeat.
        columns: the same schema as ``StructType.json()``.

    Raises:
        NotSupported: a column's type cannot be stored in Parquet.
    """

    keeps_files = True

    def __init__(self, schema: pa.Schema, columns: str) -> None:
        for field in schema:
            _check_type(field.name, field.type, self.describe())
        self.schema = schema
        self.columns = columns
        self._directory = ""

    def stage_in(self, directory: str) -> None:
        self._directory = directory

    @property
    def directory(self) -> Path:
        if not self._directory:
            raise SinkError(f"{self.describe()} was not told where to stage rows")
        return Path(self._directory)

    def create_writer(self) -> SinkWriter:
        return StagedRowsWriter(self.directory, self.schema, self.columns)


def positional_names(count: int) -> list[str]:
    """Return the names of the columns in staged files."""
    return [f"c{position}" for position in range(count)]


class StagedRowsWriter(SinkWriter):
    """Writer of one staged file per epoch. It gathers rows into row groups."""

    def __init__(self, directory: Path, schema: pa.Schema, columns: str) -> None:
        self._directory = directory
        self._columns = columns
        names = positional_names(len(schema))
        fields = [pa.field(name, field.type) for name, field in zip(names, schema, strict=True)]
        self._format = ParquetFormat(pa.schema(fields), "snappy")
        self._context = SinkContext("", 0, 0, 0, "")
        self._opened = 0
        self._path: Path | None = None
        self._writer: FileWriter | None = None
        self._rows = 0
        self._group = RowGroup()

    def open(self, context: SinkContext) -> None:
        self._context = context

    def write(self, batch: pa.RecordBatch) -> None:
        self._group.add(pa.RecordBatch.from_arrays(batch.columns, schema=self._format.schema))
        if self._group.is_full():
            self._flush()

    def replace(self) -> None:
        """Write an empty file if the result is empty."""
        if self._writer is None:
            self._group.add(empty_batch(self._format.schema))

    def prepare(self, epoch: int) -> bytes | None:
        self._flush()
        path, writer = self._path, self._writer
        if path is None or writer is None:
            return None
        try:
            writer.close()
            fsync_file(path)
            fsync_directory(path.parent)
            staged = StagedRows(path.name, self._rows, path.stat().st_size, self._columns)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {path}: {error}") from error
        self._path, self._writer, self._rows = None, None, 0
        return msgspec.json.encode(staged)

    def close(self) -> None:
        """Remove an unfinished file, which no message names."""
        path, writer = self._path, self._writer
        self._path = self._writer = None
        if path is None or writer is None:
            return
        try:
            writer.close()
            with suppress(FileNotFoundError):
                remove_file(*_in_location(path))
        except (OSError, pa.ArrowException, CorruptSnapshot) as error:
            raise SinkError(f"cannot close {path}: {error}") from error

    def _flush(self) -> None:
        if not self._group:
            return
        try:
            writer = self._writer or self._start_file()
            table = self._group.take()
            writer.write(table)
        except (OSError, pa.ArrowException, CorruptSnapshot) as error:
            raise SinkError(f"cannot write {self._path or self._directory}: {error}") from error
        self._rows += table.num_rows

    def _start_file(self) -> FileWriter:
        context = self._context
        name = f"g{context.generation}-{context.attempt_token}-{context.subtask:05d}-{self._opened:06d}.parquet"
        self._opened += 1
        self._directory.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = self._directory / name
        self._writer = self._format.create(BufferedWriter(new_file(*_in_location(self._path))))
        return self._writer


class StagedRowsCommitter(SinkCommitter):
    """Base class of committers that deliver the files of each epoch, and later remove them.

    Args:
        sink: the sink of the staged files.
    """

    def __init__(self, sink: StagingSink) -> None:
        self._directory = sink.directory
        self._columns = sink.columns
        self._committed: dict[int, list[str]] = {}

    @abstractmethod
    def deliver(self, permit: EpochCommit, files: Sequence[str], columns: str) -> None:
        """Make the rows in ``files`` visible, see ``SinkCommitter.commit``.

        Args:
            files: absolute paths, at least one.
            columns: the columns with which the rows were produced; see the module ``row_columns``.
        """

    def check_columns(self, columns: str) -> None:
        """Raise a PenstockError if rows with these columns can never be delivered.

        Called if they differ from the query's current columns.
        """

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        staged = [decode_staged(message) for _, message in sorted(permit.messages.items())]
        if not same_columns and not all(one.columns for one in staged):
            raise SinkError(COLUMNS_NOT_STORED)
        for one in staged:
            self._check(permit.epoch, one)
        columns = columns_of_epoch((one.columns for one in staged), self._columns)
        parsed_columns(columns, self._columns)
        if columns != self._columns:
            self.check_columns(columns)

    def commit(self, permit: EpochCommit) -> None:
        staged = [decode_staged(message) for _, message in sorted(permit.messages.items())]
        if not staged:
            return
        for one in staged:
            self._check(permit.epoch, one)
        columns = columns_of_epoch((one.columns for one in staged), self._columns)
        self.deliver(permit, [str(self._directory / one.file) for one in staged], columns)
        self._committed[permit.epoch] = [one.file for one in staged]

    def commits_logged(self, epoch: int) -> None:
        for committed in [known for known in self._committed if known <= epoch]:
            for file in self._committed.pop(committed):
                try:
                    self._remove(self._directory / file)
                except SinkError as error:
                    log.warning("%s; it only takes up space", error)

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        """Remove the files that generations up to ``generation`` staged, except files that may be delivered again.

        Files that may be delivered again are those in ``pending``, and those of epochs whose commit is not logged yet.
        """
        needed = {file for files in self._committed.values() for file in files}
        needed |= {decode_staged(message).file for message in pending}
        for path in sorted(self._directory.glob("g*.parquet")):
            match = _GENERATION.match(path.name)
            if match is not None and int(match[1]) <= generation and path.name not in needed:
                self._remove(path)

    def _check(self, epoch: int, staged: StagedRows) -> None:
        path = self._directory / staged.file
        try:
            size = path.lstat().st_size
        except OSError as error:
            is_missing = isinstance(error, FileNotFoundError)
            raise (CommitUnknown if is_missing else CommitFailed)(
                f"epoch {epoch}: {path} with {staged.rows} rows cannot be read ({error}); staged files belong to the "
                "checkpoint location and must not be removed"
            ) from error
        if size != staged.size or path.is_symlink():
            raise CommitUnknown(f"epoch {epoch}: {path} has {size} bytes, not {staged.size}; someone changed it")

    def _remove(self, path: Path) -> None:
        try:
            remove_file(*_in_location(path))
        except FileNotFoundError:
            return
        except (OSError, CorruptSnapshot) as error:
            raise SinkError(f"cannot remove {path}: {error}") from error


def _in_location(path: Path) -> tuple[str, str]:
    """Split the path of a staged file into its location and its path there, for access that follows no links."""
    location = path.parents[2]
    return str(location), path.relative_to(location).as_posix()


def _check_type(name: str, kind: pa.DataType, sink: str) -> None:
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise NotSupported(f"{sink} cannot stage column {name} of type {kind}: cast it")
    for i in range(kind.num_fields):
        _check_type(f"{name}.{kind.field(i).name}", kind.field(i).type, sink)
