"""Queries that are edited while an epoch is pending: all sinks, all edits, all ways to leave it pending."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

import penstock
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.machines.checkpoint_events import CommitEpoch, CommitFailed
from penstock.queries.streaming_query import StreamingQuery
from tests.support.newest_snapshot import newest_snapshot
from tests.support.queries.query_running import eventually

BASE = ("a", "b", "c")
EDITS = {
    "swap": ("b", "a", "c"),
    "drop": ("a", "c"),
    "insert": ("a", "text", "b", "c"),
    "rename": ("a", "b AS bb", "c"),
    "widen": ("CAST(a AS bigint) AS a", "b", "c"),
}
STAGED = ("one", "several")
ENDS = ("killed", "failing", "starved")
"""The driver dies between a commit and its log entry; the sink fails; no slot is free, so no commit begins."""
OPTIONS = {"parallelism": 1, "checkpoint.interval": "200ms", "sink.retryTimeout": "1h", "restart.maxDelay": "500ms"}
OTHER_FILE_SINKS = ("rolled", "partitioned", "json", "csv")
SINKS = ("foreachBatch", "table", "python", "memory", "console", "foreach", "parquet", *OTHER_FILE_SINKS)
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    sink: str
    edit: str
    staged: str
    end: str

    def __str__(self) -> str:
        return f"{self.sink}-{self.edit}-{self.staged}-{self.end}"


def names(columns: Sequence[str]) -> list[str]:
    return [column.rpartition(" AS ")[2] for column in columns]


class Input:
    """File i has rows with ``a`` = 10 i, 10 i + 1 and 10 i + 2, ``b`` = a + 100 and ``c`` = a + 200."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def add(self, number: int) -> None:
        a = pa.array(range(10 * number, 10 * number + 3), pa.int32())
        table = pa.table({name: pa.compute.add(a, more) for name, more in zip(BASE, (0, 100, 200), strict=True)})
        hidden = self.directory / f".{number}"
        pq.write_table(table.cast(pa.schema([(name, pa.int32()) for name in BASE])), hidden)
        hidden.rename(self.directory / f"{number}.parquet")

    def read(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        rows = spark.readStream.schema("a int, b int, c int").parquet(str(self.directory))
        return rows.selectExpr("*", "concat('t', a) AS text").selectExpr(*columns)


def check_row(row: Row) -> None:
    a = int(row["a"])
    right = {"a": a, "b": a + 100, "bb": a + 100, "c": a + 200, "text": f"t{a}"}
    for name, value in row.items():
        assert str(value) == str(right[name]), row


class Target:
    """One kind of sink: how a query writes to it, and which rows it has.

    Args:
        folder: for the output.
    """

    ordered = True
    """Rows are read in the order of the columns that they were produced with."""
    at_least_once = False

    def __init__(self, kind: str, spark: SparkSession, folder: Path, output: Callable[[], str]) -> None:
        self.kind, self.spark, self.folder, self._output = kind, spark, folder, output
        self.name = f"pending_{uuid.uuid4().hex}"
        self.batches: dict[int, list[Row]] = {}
        self.fails = False
        self.printed = ""
        folder.mkdir()
        if kind in ("table", "memory"):
            self.ordered = False
        if kind == "table":
            spark.sql(f"CREATE TABLE {self.name} (a INT, b INT, c INT, text STRING, bb INT) USING parquet")
        self.at_least_once = kind == "foreach"

    def start(self, df: DataFrame, **options: Any) -> StreamingQuery:
        writer = penstock.writeStream(df)
        match self.kind:
            case "foreachBatch":
                return writer.foreachBatch(self._batch).start(**options)
            case "foreach":
                return writer.foreach(keeper(str(self.folder))).start(**options)
            case "table":
                return writer.toTable(self.name, **options)
            case "python":
                return writer.format(folder_source()).start(folder=str(self.folder), **options)
            case "memory":
                return writer.format("memory").queryName(self.name).start(**options)
            case "console":
                return writer.format("console").start(numRows=100, truncate="false", **options)
            case "partitioned":
                return writer.format("parquet").partitionBy("c").start(str(self.folder), **options)
            case "rolled":
                return writer.format("parquet").start(str(self.folder), rollInterval="1h", **options)
            case "csv":
                return writer.format("csv").start(str(self.folder), header="true", **options)
            case _:
                return writer.format(self.kind).start(str(self.folder), **options)

    def _batch(self, df: DataFrame, batch: int) -> None:
        if self.fails:
            raise RuntimeError("a bug of the user")
        rows = [row.asDict() for row in df.collect()]
        assert self.batches.setdefault(batch, rows) == rows, "a batch that comes again is the same"

    def rows(self) -> list[Row]:
        """Return all rows of the output, repeated ones too."""
        match self.kind:
            case "foreachBatch":
                return [row for rows in self.batches.values() for row in rows]
            case "table" | "memory":
                found = [row.asDict() for row in self.spark.table(self.name).collect()]
                return [{name: value for name, value in row.items() if value is not None} for row in found]
            case "console":
                self.printed += self._output()
                return printed_rows(self.printed)
            case "foreach" | "python" | "json":
                texts = (path.read_text() for path in sorted(self._files()))
                return [json.loads(line) for text in texts for line in text.splitlines()]
            case "csv":
                lines = (path.read_text().splitlines() for path in self._files())
                return [
                    dict(zip(head.split(","), line.split(","), strict=True)) for head, *rest in lines for line in rest
                ]
            case _:
                return [self._with_partition(path, row) for path in self._files() for row in _parquet_rows(path)]

    def _files(self) -> Iterator[Path]:
        for path in self.folder.rglob("*"):
            inside = path.relative_to(self.folder).parts
            if path.is_file() and not any(part.startswith(("_", ".")) for part in inside):
                yield path

    @staticmethod
    def _with_partition(path: Path, row: Row) -> Row:
        name, equals, value = path.parent.name.partition("=")
        return {**row, name: value} if equals else row


def _parquet_rows(path: Path) -> list[Row]:
    rows: list[Row] = pq.ParquetFile(path).read().to_pylist()
    return rows


def printed_rows(text: str) -> list[Row]:
    """Return the rows of the console's tables; a batch that is printed twice counts once."""
    rows: list[Row] = []
    seen: set[str] = set()
    header: list[str] = []
    batch = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("Batch: "):
            batch, header = line, []
        elif line.startswith("|") and not header:
            header = cells
        elif line.startswith("|") and f"{batch} {line}" not in seen:
            seen.add(f"{batch} {line}")
            rows.append(dict(zip(header, cells, strict=True)))
    return rows


def keeper(folder: str) -> Any:
    """Return a function pickled by value, because slots do not have this module."""

    def keep(row: Any) -> None:
        import json
        import os
        import uuid

        path = os.path.join(folder, uuid.uuid4().hex)
        with open(path + ".json", "w") as file:
            file.write(json.dumps(row.asDict()) + "\n")

    return keep


def folder_source() -> type[DataSource]:
    """Return a data source pickled by value, as one typed into a notebook.

    A batch becomes one file whose lines have the writer's column names.
    """

    class Values(WriterCommitMessage):
        def __init__(self, rows: list[list[Any]]) -> None:
            self.rows = rows

    class Writer(DataSourceStreamWriter):
        def __init__(self, folder: str, names: list[str]) -> None:
            self.folder, self.names = folder, names

        def write(self, rows: Iterator[Any]) -> WriterCommitMessage:
            return Values([list(row) for row in rows])

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - PySpark's name
            import json

            rows = [row for message in messages if message is not None for row in message.rows]
            lines = [json.dumps(dict(zip(self.names, row, strict=True))) for row in rows]
            (Path(self.folder) / f"{batchId:06d}.json").write_text("\n".join(lines))

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            raise AssertionError("epochs are not aborted")

    class Folder(DataSource):
        @classmethod
        def name(cls) -> str:
            return "folder"

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Writer(self.options["folder"], schema.fieldNames())

    return Folder


class Interrupted:
    """Context in which commits do not finish, in one of the ways of ``ENDS``."""

    def __init__(self, end: str, target: Target, patch: pytest.MonkeyPatch) -> None:
        self._end, self._target, self._patch = end, target, patch
        self._released = threading.Event()
        self.tried = threading.Event()
        """Set when a commit was tried."""

    def __enter__(self) -> Interrupted:
        real = CommandExecutor._commit

        def commit(effects: CommandExecutor, command: CommitEpoch) -> Any:
            said: Any = CommitFailed(command.epoch, command.operator_id, "interrupted")
            if self._released.is_set():
                return said
            if self._end == "killed":
                real(effects, command)
            elif self._end == "failing" and self._target.kind == "foreachBatch":
                said = real(effects, command)
            self.tried.set()
            if self._end == "starved":
                self._released.wait(60)
            return said

        self._target.fails = self._end == "failing"
        self._patch.setattr(CommandExecutor, "_commit", commit)
        return self

    def __exit__(self, *_: object) -> None:
        self._target.fails = False

    def release(self) -> None:
        self._released.set()


def pending(checkpoint: Path) -> set[int]:
    """Return the pending epochs of the newest snapshot."""
    slots = newest_snapshot(checkpoint).slots
    return {epoch for slot in slots for subtask in slot.subtasks for epoch in subtask.pending_messages}


def leave_waiting(query: StreamingQuery, case: Case, interrupted: Interrupted, checkpoint: Path, epochs: int) -> None:
    """Take snapshots until one has this many pending epochs, then stop the query."""

    def waits() -> bool:
        query.snapshot()
        return interrupted.tried.is_set() and len(pending(checkpoint)) >= epochs

    eventually(waits, f"{epochs} epochs that wait")
    interrupted.release()
    query.stop()
