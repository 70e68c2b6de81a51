"""The ``parquet`` sink: files that appear exactly once.

Below the output directory::

    part-00002-<query id>-e0000000007-c000.snappy.parquet     committed: subtask 2, epoch 7
    _penstock/owner.json                                      the one query that writes here
    _penstock/staged/g3-<token>-00002-000005.parquet          not committed: Generation 3

Names that start with ``_`` are invisible to Spark and to pyarrow's datasets. A commit is one rename per file; the
final name says which epoch it belongs to, so that a commit begun before a crash is finished by looking: whatever has
its final name is done, whatever is still staged is renamed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.base import EpochCommit, Sink, SinkCommitter, SinkContext, SinkWriter
from penstock.connectors.local_files import create_exclusively, fsync_directory, fsync_file, local_path
from penstock.errors import CommitFailed, CommitUnknown, ConfigError, NotSupported, SinkError

PRIVATE_DIRECTORY = "_penstock"
SPARK_METADATA = "_spark_metadata"
ROW_GROUP_ROWS = 1 << 17
"""Rows are gathered to row groups of this many, so that small slices do not make small row groups ..."""
ROW_GROUP_BYTES = 32 << 20
"""... unless their Arrow bytes reach this: what a writer holds in memory is bounded."""

_CODECS = {
    "none": ("NONE", ""),
    "uncompressed": ("NONE", ""),
    "snappy": ("SNAPPY", ".snappy"),
    "gzip": ("GZIP", ".gz"),
    "zstd": ("ZSTD", ".zstd"),
    "lz4_raw": ("LZ4_RAW", ".lz4raw"),
    "brotli": ("BROTLI", ".br"),
}
_STAGED_NAME = re.compile(r"^g(\d+)-.*\.parquet$")


class StagedFile(msgspec.Struct, frozen=True):
    """A file of one epoch. Both names are relative to the output directory."""

    staged: str
    final: str
    rows: int
    size: int


class ParquetMessage(msgspec.Struct, frozen=True):
    """What one subtask staged in one epoch."""

    files: list[StagedFile]


class ParquetSink(Sink):
    """``format("parquet")``: every committed row in the directory exactly once.

    Args:
        path: output directory, on a file system that all slots and the driver share; created if missing.
        schema: of the rows, names as they go into the files.
        options: ``compression`` (snappy); anything else is refused.

    Raises:
        ConfigError: an unknown option, or column names that are equal but for case.
        NotSupported: a column type that Parquet as Spark writes it cannot hold.
    """

    def __init__(self, path: str, schema: pa.Schema, options: Mapping[str, str] | None = None) -> None:
        self.path = local_path(path)
        self.schema = _writable(schema)
        self.codec = _codec(options or {})

    def describe(self) -> str:
        return f"FileSink[file:{self.path}]"

    def create_writer(self) -> SinkWriter:
        return ParquetSinkWriter(Path(self.path), self.schema, self.codec)

    def create_committer(self) -> SinkCommitter:
        return ParquetSinkCommitter(Path(self.path))


def _codec(options: Mapping[str, str]) -> str:
    codec = "snappy"
    for name, value in options.items():
        if name.lower() == "path":
            continue
        if name.lower() != "compression":
            raise ConfigError(f"option {name} of the parquet sink is not known; known: path, compression")
        codec = value.lower()
    if codec not in _CODECS:
        raise ConfigError(f"option compression={codec} of the parquet sink; choose one of {', '.join(_CODECS)}")
    return codec


def _writable(schema: pa.Schema) -> pa.Schema:
    seen: dict[str, str] = {}
    for field in schema:
        if field.name.lower() in seen:
            raise ConfigError(
                f"the parquet sink cannot write columns {seen[field.name.lower()]} and {field.name}: rename one"
            )
        seen[field.name.lower()] = field.name
        _check_type(field.name, field.type)
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _check_type(name: str, kind: pa.DataType) -> None:
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise NotSupported(f"the parquet sink cannot write column {name} of type {kind}: cast it")
    for i in range(kind.num_fields):
        _check_type(f"{name}.{kind.field(i).name}", kind.field(i).type)


class ParquetSinkWriter(SinkWriter):
    """Writes one file per epoch, gathered into row groups."""

    def __init__(self, directory: Path, schema: pa.Schema, codec: str) -> None:
        self._directory = directory
        self._schema = schema
        self._codec, self._suffix = _CODECS[codec]
        self._context = SinkContext("", 0, 0, 0, "")
        self._opened = 0
        self._writer: pq.ParquetWriter | None = None
        self._staged = ""
        self._rows = 0
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0

    def open(self, context: SinkContext) -> None:
        self._context = context

    def write(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        self._gathered_rows += batch.num_rows
        self._gathered_bytes += batch.nbytes
        if self._gathered_rows >= ROW_GROUP_ROWS or self._gathered_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def prepare(self, epoch: int) -> bytes | None:
        self._flush()
        if self._writer is None:
            return None
        staged = self._directory / self._staged
        try:
            self._writer.close()
            fsync_file(staged)
            fsync_directory(staged.parent)
            size = staged.stat().st_size
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {staged}: {error}") from error
        file = StagedFile(self._staged, self._final_name(epoch), self._rows, size)
        self._writer, self._rows = None, 0
        return msgspec.json.encode(ParquetMessage([file]))

    def close(self) -> None:
        """Let go of an unfinished file. It stays until its Generation is abandoned: no message names it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except (OSError, pa.ArrowException) as error:
                raise SinkError(f"cannot close {self._directory / self._staged}: {error}") from error

    def _final_name(self, epoch: int) -> str:
        context = self._context
        return f"part-{context.subtask:05d}-{context.query_id}-e{epoch:010d}-c000{self._suffix}.parquet"

    def _flush(self) -> None:
        if not self._gathered:
            return
        try:
            if self._writer is None:
                self._writer = self._start_file()
            table = pa.Table.from_batches(self._gathered)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        except (OSError, pa.ArrowException) as error:
            raise SinkError(f"cannot write {self._directory / self._staged}: {error}") from error
        self._rows += table.num_rows
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0

    def _start_file(self) -> pq.ParquetWriter:
        context = self._context
        name = f"g{context.generation}-{context.attempt_token}-{context.subtask:05d}-{self._opened:06d}.parquet"
        self._opened += 1
        self._staged = f"{PRIVATE_DIRECTORY}/staged/{name}"
        path = self._directory / self._staged
        path.parent.mkdir(parents=True, exist_ok=True)
        # As Spark writes: microseconds, decimals of up to 18 digits as integers.
        return pq.ParquetWriter(
            path, self._schema, compression=self._codec, coerce_timestamps="us", store_decimal_as_integer=True
        )


class ParquetSinkCommitter(SinkCommitter):
    """Renames staged files to their final names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, query_id: str) -> None:
        """Take the directory for this query.

        Raises:
            SinkError: a file, another query's, Spark's own sink's, or not writable.
        """
        if self._directory.exists() and not self._directory.is_dir():
            raise SinkError(f"output path {self._directory} is a file; give a directory")
        if (self._directory / SPARK_METADATA).exists():
            raise SinkError(
                f"{self._directory} holds {SPARK_METADATA}: Spark's readers would see only what Spark's own sink "
                "wrote there; write to another directory"
            )
        owner = self._directory / PRIVATE_DIRECTORY / "owner.json"
        content = json.dumps({"query_id": query_id, "format_version": 1}).encode()
        try:
            (self._directory / PRIVATE_DIRECTORY / "staged").mkdir(parents=True, exist_ok=True)
            if not create_exclusively(owner, content) and _owner(owner) != query_id:
                raise SinkError(
                    f"{self._directory} is written by another query ({_owner(owner)}); two queries cannot share an "
                    f"output directory: write to another one, or delete {owner} if that query is gone for good"
                )
        except OSError as error:
            raise SinkError(f"cannot write to {self._directory}: {error}; give a writable directory") from error

    def commit(self, permit: EpochCommit) -> None:
        published = 0
        for _, message in sorted(permit.messages.items()):
            for file in msgspec.json.decode(message, type=ParquetMessage).files:
                try:
                    self._publish(file, permit.epoch)
                except OSError as error:
                    kind = CommitUnknown if published else CommitFailed
                    names = f"{self._directory / file.staged} to {file.final}"
                    raise kind(f"epoch {permit.epoch}: cannot rename {names}: {error}") from error
                published += 1
        if published:
            try:
                fsync_directory(self._directory)
            except OSError as error:
                raise CommitUnknown(f"epoch {permit.epoch}: cannot sync {self._directory}: {error}") from error

    def _publish(self, file: StagedFile, epoch: int) -> None:
        """Give one file its final name, unless it has it already."""
        staged, final = self._directory / file.staged, self._directory / file.final
        if final.exists():
            if final.stat().st_size != file.size:
                raise CommitUnknown(f"epoch {epoch}: {final} has {final.stat().st_size} bytes, not {file.size}")
        elif staged.exists():
            os.rename(staged, final)
        else:
            raise CommitUnknown(f"epoch {epoch}: neither {staged} nor {final} exists; someone removed {file.rows} rows")

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        """Remove what Generations up to ``generation`` staged and no message in ``pending`` names."""
        needed = {f.staged for message in pending for f in msgspec.json.decode(message, type=ParquetMessage).files}
        for path in sorted((self._directory / PRIVATE_DIRECTORY / "staged").glob("g*.parquet")):
            match = _STAGED_NAME.match(path.name)
            relative = path.relative_to(self._directory).as_posix()
            if match is not None and int(match[1]) <= generation and relative not in needed:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise SinkError(f"cannot remove {path}: {error}") from error


def _owner(path: Path) -> str:
    return str(json.loads(path.read_bytes()).get("query_id"))
