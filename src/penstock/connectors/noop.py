"""Sink ``noop``: drops all rows."""

from __future__ import annotations

import pyarrow as pa

from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.model.commits import EpochCommit


class NoopSink(Sink):
    """Sink of ``format("noop")``, for measuring a query without its sink."""

    def describe(self) -> str:
        return "org.apache.spark.sql.execution.datasources.noop.NoopTable$"

    def create_writer(self) -> SinkWriter:
        return _NoopWriter()

    def create_committer(self) -> SinkCommitter:
        return _NoopCommitter()


class _NoopWriter(SinkWriter):
    def write(self, batch: pa.RecordBatch) -> None:
        """Drop the rows."""

    def prepare(self, epoch: int) -> bytes | None:
        return None


class _NoopCommitter(SinkCommitter):
    def commit(self, permit: EpochCommit) -> None:
        """Do nothing: nothing was staged."""

    def retraction_problem(self, above: int, below: int) -> str:
        return ""

    def retract(self, above: int, below: int) -> None:
        """Do nothing: nothing was written."""
