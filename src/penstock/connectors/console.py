"""Sink ``console``: prints the first rows of every epoch as Spark prints a micro-batch."""

from __future__ import annotations

import sys

import pyarrow as pa

from penstock.connectors.arrow_message import RowsMessage, decode_rows
from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.connectors.show import render_table
from penstock.errors import CommitInterrupted, ConfigError
from penstock.model.commits import EpochCommit

_RULE = "-" * 43


class ConsoleSink(Sink):
    """Sink of ``format("console")``. Each subtask sends at most ``num_rows + 1`` rows per epoch to the driver.

    An epoch without rows prints nothing, except in complete mode. If the driver crashes after printing an epoch and
    before logging its commit, the epoch is printed again: the driver cannot read what the terminal already shows.

    Args:
        schema: schema of the rows.
        num_rows: number of rows to print of each epoch.
        truncate: True cuts cells at 20 characters, False prints them whole.
        time_zone: time zone of printed timestamps.
    """

    def __init__(self, schema: pa.Schema, num_rows: int = 20, truncate: bool = True, time_zone: str = "UTC") -> None:
        if num_rows < 1:
            raise ConfigError(f"option numRows={num_rows} of the console sink: must be at least 1")
        self.schema = schema
        self.num_rows = num_rows
        self.truncate = truncate
        self.time_zone = time_zone

    def describe(self) -> str:
        return f"ConsoleTable$[numRows={self.num_rows}, truncate={str(self.truncate).lower()}]"

    def create_writer(self) -> SinkWriter:
        return _ConsoleWriter(self.schema, self.num_rows)

    def create_committer(self) -> SinkCommitter:
        return _ConsoleCommitter(self)


class _ConsoleWriter(SinkWriter):
    def __init__(self, schema: pa.Schema, num_rows: int) -> None:
        self._schema = schema
        self._limit = num_rows + 1  # the additional row shows that rows were left out
        self._kept: RowsMessage | None = None
        self._rows = 0

    def replace(self) -> None:
        self._kept = self._kept or RowsMessage(self._schema)

    def write(self, batch: pa.RecordBatch) -> None:
        rows = min(batch.num_rows, self._limit - self._rows)
        if rows > 0:
            self._kept = self._kept or RowsMessage(self._schema)
            self._kept.add(batch.slice(0, rows))
            self._rows += rows

    def prepare(self, epoch: int) -> bytes | None:
        kept, self._kept, self._rows = self._kept, None, 0
        return None if kept is None else kept.finish()


class _ConsoleCommitter(SinkCommitter):
    def __init__(self, sink: ConsoleSink) -> None:
        self._sink = sink

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        """Check that the rows can be decoded. Each epoch is printed with its own columns."""
        decode_rows(permit.messages)

    def commit(self, permit: EpochCommit) -> None:
        if not permit.messages:
            return
        table = decode_rows(permit.messages)
        text = render_table(table, self._sink.num_rows, 20 if self._sink.truncate else 0, self._sink.time_zone)
        try:
            sys.stdout.write(f"{_RULE}\nBatch: {permit.batch}\n{_RULE}\n{text}\n")
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # ValueError: stdout was closed
            raise CommitInterrupted(f"console, batch {permit.batch}: cannot print: {error}") from error
