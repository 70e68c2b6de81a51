"""Sink ``memory``: keeps committed rows on the driver, as Arrow tables."""

from __future__ import annotations

import threading

import pyarrow as pa

from penstock.connectors.arrow_message import RowsMessage, decode_rows
from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.connectors.files.nested_arrays import cast_table
from penstock.errors import SinkError
from penstock.model.commits import EpochCommit
from penstock.snapshots.restoring.widening import can_widen


class MemorySink(Sink):
    """Sink of ``format("memory")``. It keeps committed rows in the driver's memory until the driver ends, as in Spark.

    Rows are sent in commit messages and therefore are part of snapshots, so use it for small results only. A new driver
    starts with an empty table and adds the epochs that are committed from then on.

    Args:
        name: name of the query, under which the rows can be read.
        schema: schema of the rows.
        replaces: each epoch with a message replaces the table (complete mode) instead of adding to it.
    """

    def __init__(self, name: str, schema: pa.Schema, replaces: bool = False) -> None:
        self.name = name
        self.schema = schema
        self.replaces = replaces
        self._lock = threading.Lock()
        self._version = 0
        self._newest = ("", 0)
        self._epochs: list[tuple[int, pa.Table]] = []

    def describe(self) -> str:
        return "MemorySink"

    def table(self) -> pa.Table:
        """Return the committed rows in the order of their epochs. May be called on any thread."""
        return pa.concat_tables([self.schema.empty_table(), *self.epochs()[1]])

    def epochs(self) -> tuple[int, tuple[pa.Table, ...]]:
        """Return a version number, which rises with each change, and the rows of each epoch that had a message.

        With ``replaces`` only the rows of the last such epoch are returned.
        """
        with self._lock:
            return self._version, tuple(rows for _, rows in self._epochs)

    def create_writer(self) -> SinkWriter:
        return _MemoryWriter(self.schema)

    def create_committer(self) -> SinkCommitter:
        return _MemoryCommitter(self)

    def keep(self, permit: EpochCommit) -> None:
        """Add the rows of an epoch. Epochs are added in order. The last one may be added again, without effect."""
        if not permit.messages:
            return
        rows = self.fitted(decode_rows(permit.messages))
        with self._lock:
            if self._newest == (permit.query_id, permit.epoch):
                return
            self._newest = permit.query_id, permit.epoch
            self._epochs = [*([] if self.replaces else self._epochs), (permit.epoch, rows)]
            self._version += 1

    def fitted(self, rows: pa.Table) -> pa.Table:
        """Convert rows to the columns of the table, which are the current columns of the query.

        Columns are matched by name, and their types may be widened.

        Raises:
            SinkError: the rows have other columns.
        """
        if rows.schema.names == self.schema.names:
            places = list(range(len(self.schema)))
        elif sorted(rows.schema.names) == sorted(set(self.schema.names)):
            places = [rows.schema.get_field_index(name) for name in self.schema.names]
        else:
            raise self._other_columns(rows.schema)
        if not all(
            can_widen(f" {rows.schema.field(p).type}", f" {f.type}") for p, f in zip(places, self.schema, strict=True)
        ):
            raise self._other_columns(rows.schema)
        return cast_table(rows.select(places), self.schema)

    def _other_columns(self, stored: pa.Schema) -> SinkError:
        both = ({f.name: str(f.type) for f in schema} for schema in (stored, self.schema))
        before, now = (", ".join(f"{name} {kind}" for name, kind in columns.items()) for columns in both)
        return SinkError(f"its rows have the columns ({before}), and the memory table has ({now})")

    def forget(self, above: int, below: int) -> None:
        """Remove the rows of epochs between ``above`` and ``below``, both exclusive."""
        with self._lock:
            self._epochs = [kept for kept in self._epochs if not above < kept[0] < below]
            self._version += 1

    def __getstate__(self) -> dict[str, object]:
        # Slots only write, so rows and lock stay on the driver.
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

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        self._sink.fitted(decode_rows(permit.messages))

    def retraction_problem(self, above: int, below: int) -> str:
        return ""

    def retract(self, above: int, below: int) -> None:
        self._sink.forget(above, below)

    def commit(self, permit: EpochCommit) -> None:
        self._sink.keep(permit)
