"""Writer of the file sink: stages rows in durable files that readers do not see yet."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.connectors.base import SinkContext, SinkWriter
from penstock.connectors.files.format import FileFormat, FileWriter
from penstock.connectors.files.partitions import Partitioning
from penstock.connectors.files.row_groups import ROW_GROUP_ROWS, RowGroup
from penstock.connectors.files.sink_plan import (
    PRIVATE_DIRECTORY,
    FilesMessage,
    StagedFile,
    final_name,
    work_directory,
)
from penstock.connectors.local_files import fsync_directory, fsync_file
from penstock.errors import SinkError

MEMORY_BYTES = 64 << 20
"""Limit for the size of the gathered rows of all directories. Beyond it, the largest row group is written early."""
MAX_OPEN_FILES = 16
"""Limit for the open files of a subtask. Beyond it, the least recently written file is completed."""


class _DirectoryOutput:
    """Output of one epoch in one directory: gathered rows, the file being written, and completed files."""

    def __init__(self) -> None:
        self.group = RowGroup()
        self.writer: FileWriter | None = None
        self.path = Path()
        self.rows = 0
        self.ended: list[tuple[Path, int, int]] = []  # rows, bytes


class FileSinkWriter(SinkWriter):
    """Writer of one or more files per epoch and directory.

    A file is completed when it reaches ``target_bytes``, or when another directory needs one of the open files.
    """

    def __init__(
        self,
        directory: Path,
        file_format: FileFormat,
        partitions: Partitioning | None,
        target_bytes: int,
        private: str = PRIVATE_DIRECTORY,
    ) -> None:
        self._root = directory
        self._private = private
        self._staging = directory / work_directory(private, "") / "staged"
        self._format = file_format
        self._partitions = partitions
        self._target_bytes = target_bytes
        self._context = SinkContext("", 0, 0, 0, "")
        self._started = 0
        self._directories: dict[str, _DirectoryOutput] = {}
        self._open: list[_DirectoryOutput] = []  # the least recently written first
        self._gathered_bytes = 0

    def open(self, context: SinkContext) -> None:
        self._context = context
        self._staging = self._root / work_directory(self._private, context.fence) / "staged"

    def write(self, batch: pa.RecordBatch) -> None:
        parts = [("", batch)] if self._partitions is None else self._partitions.split(batch)
        for name, rows in parts:
            self._gather(name, pa.RecordBatch.from_arrays(rows.columns, schema=self._format.schema))
        while self._gathered_bytes > MEMORY_BYTES:
            self._flush(max(self._directories.values(), key=lambda directory: directory.group.bytes))

    def prepare(self, epoch: int) -> bytes | None:
        files: list[StagedFile] = []
        for name, directory in sorted(self._directories.items()):
            self._flush(directory)
            self._end_file(directory)
            for count, (path, rows, size) in enumerate(directory.ended):
                final = self._final(name, epoch, count)
                files.append(StagedFile(f"{self._private}/staged/{path.name}", final, rows, size))
        self._directories.clear()
        if not files:
            return None
        try:
            fsync_directory(self._staging)
        except OSError as error:
            raise SinkError(f"cannot write {self._staging}: {error}") from error
        return msgspec.json.encode(FilesMessage(files, self._format.fingerprint))

    def close(self) -> None:
        """Close unfinished files. No message names them, so ``abandon`` of their generation removes them."""
        unfinished, self._open = self._open, []
        self._directories.clear()
        for directory in unfinished:
            assert directory.writer is not None
            try:
                directory.writer.close()
            except (OSError, pa.ArrowException) as error:
                raise SinkError(f"cannot close {directory.path}: {error}") from error

    def _final(self, directory: str, epoch: int, count: int) -> str:
        name = final_name(self._context.query_id, self._context.subtask, epoch, count, self._format.suffix)
        return f"{directory}/{name}" if directory else name

    def _gather(self, name: str, rows: pa.RecordBatch) -> None:
        directory = self._directories.setdefault(name, _DirectoryOutput())
        directory.group.add(rows)
        self._gathered_bytes += rows.nbytes
        if directory.group.is_full(self._rows_at_once(directory)):
            self._flush(directory)

    def _rows_at_once(self, directory: _DirectoryOutput) -> int:
        """Return the number of rows to gather before a flush.

        If a flush must complete the file of another directory, more rows are gathered first. Otherwise there would be
        many small files.
        """
        if directory.writer is None and len(self._open) >= MAX_OPEN_FILES:
            return ROW_GROUP_ROWS
        return self._format.group_rows

    def _flush(self, directory: _DirectoryOutput) -> None:
        """Write the gathered rows, and complete the file if it is large enough."""
        if not directory.group:
            return
        self._gathered_bytes -= directory.group.bytes
        table = directory.group.take()
        writer = directory.writer or self._start_file(directory)
        try:
            writer.write(table)
            size = directory.path.stat().st_size
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {directory.path}: {error}") from error
        directory.rows += table.num_rows
        if size >= self._target_bytes:
            self._end_file(directory)
        else:
            self._open.remove(directory)
            self._open.append(directory)

    def _start_file(self, directory: _DirectoryOutput) -> FileWriter:
        if len(self._open) >= MAX_OPEN_FILES:
            self._end_file(self._open[0])
        context = self._context
        name = f"g{context.generation}-{context.attempt_token}-{context.subtask:05d}-{self._started:06d}"
        self._started += 1
        directory.path = self._staging / f"{name}.{self._format.name}"
        try:
            # With a fence, the driver creates the directory. It moves away when another driver takes over the output,
            # and must not be created again.
            if not context.fence:
                self._staging.mkdir(parents=True, exist_ok=True)
            directory.writer = self._format.create(directory.path)
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {directory.path}: {error}") from error
        directory.rows = 0
        self._open.append(directory)
        return directory.writer

    def _end_file(self, directory: _DirectoryOutput) -> None:
        writer, directory.writer = directory.writer, None
        if writer is None:
            return
        self._open.remove(directory)
        try:
            writer.close()
            fsync_file(directory.path)
            size = directory.path.stat().st_size
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {directory.path}: {error}") from error
        directory.ended.append((directory.path, directory.rows, size))
