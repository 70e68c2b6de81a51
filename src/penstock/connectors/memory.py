"""The ``memory`` sink: committed rows on the driver, as Arrow."""

from __future__ import annotations

import threading

import pyarrow as pa

from penstock.connectors.arrow_message import RowsMessage, decode_rows
from penstock.connectors.base import EpochCommit, Sink, SinkCommitter, SinkWriter


class MemorySink(Sink):
    """``format("memory")``. Keeps every committed row in the driver's memory until the driver ends, as Spark's does.

    Rows travel inside commit messages and so through snapshots: for small results only. A new driver starts with an
    empty table and sees the epochs committed since.

    Args:
        name: the query's name, under which the rows can be read.
        schema: of the rows.
        replaces: each epoch with rows replaces the table (complete mode), instead of adding to it.
    """

    def __init__(self, name: str, schema: pa.Schema, replaces: bool = False) -> None:
        self.name = name
        self.schema = schema
        self.replaces = replaces
        self._lock = threading.Lock()
        self._version = 0
        self._newest = ("", 0)
        self._epochs: list[pa.Table] = []

    def describe(self) -> str:
        return "MemorySink"

    def table(self) -> pa.Table:
        """The rows committed so far, epoch by epoch. May be called from any thread."""
        return pa.concat_tables([self.schema.empty_table(), *self.epochs()[1]])

    def epochs(self) -> tuple[int, tuple[pa.Table, ...]]:
        """The rows of each epoch that has some (with ``replaces``, of the last one), and a number that rises whenever
        they change."""
        with self._lock:
            return self._version, tuple(self._epochs)

    def create_writer(self) -> SinkWriter:
        return _MemoryWriter(self.schema)

    def create_committer(self) -> SinkCommitter:
        return _MemoryCommitter(self)

    def keep(self, permit: EpochCommit) -> None:
        """Take an epoch's rows; epochs come in order, and the last one may come again."""
        tables = [decode_rows(message) for _, message in sorted(permit.messages.items())]
        if not tables:
            return
        rows = pa.concat_tables(tables).cast(self.schema)
        with self._lock:
            if self._newest == (permit.query_id, permit.epoch):
                return
            self._newest = permit.query_id, permit.epoch
            self._epochs = [rows] if self.replaces else [*self._epochs, rows]
            self._version += 1

    def __getstate__(self) -> dict[str, object]:
        # The copies in the slots write only; rows and lock stay on the driver.
        return {"name": self.name, "schema": self.schema, "replaces": self.replaces}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class _MemoryWriter(SinkWriter):
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._message: RowsMessage | None = None

    def replace(self) -> None:
        self._message = self._message or RowsMessage(self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._message = self._message or RowsMessage(self._schema)
        self._message.add(batch)

    def prepare(self, epoch: int) -> bytes | None:
        message, self._message = self._message, None
        return None if message is None else message.finish()


class _MemoryCommitter(SinkCommitter):
    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def commit(self, permit: EpochCommit) -> None:
        self._sink.keep(permit)
