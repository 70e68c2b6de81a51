"""Sink of ``foreach(f)``: calls the user's code with every row, in the slots, with PySpark's protocol.

For each subtask and epoch with rows, a new copy of ``f`` is opened with the first row, gets the rows, and is closed
when the epoch ends. The epoch is then not yet part of a snapshot, so ``f`` gets rows **at least once**: a recovery
repeats the rows since the last complete checkpoint, and no commit covers the effects of ``f``.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from penstock.connectors.base import Sink, SinkCommitter, SinkContext, SinkWriter
from penstock.connectors.spark.rows import to_rows
from penstock.errors import ConfigError, GenerationFailed, SinkError
from penstock.model.commits import EpochCommit
from penstock.operators.python.user_code import user_errors

NAME = "(foreach)"
"""Last part of the operator's name in errors of user code; the first part is the id of the output."""
SPARKS_CONDITION = "[FOREACH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach sink."
"""Spark's message when the user's code raises, without the reason."""


class ForeachSink(Sink):
    """Sink that passes each row to a function or an object of the user; see the module's docstring.

    ``open(partition_id, epoch_id)`` gets the number of the subtask, and a number that rises with every epoch of this
    subtask and is never used again, even after a restart. It is not the batch id, which an epoch gets at its commit.

    Args:
        schema: schema of the rows.
        spark_schema_json: the same schema as ``StructType.json()``.
        f: a function of one Row, or an object with ``process(row)`` and, optionally, ``open(partition_id, epoch_id)``
            and ``close(error)``; checked by the caller.

    Raises:
        ConfigError: ``f`` cannot be sent to the slots.
    """

    target_is_unknown = True

    def __init__(self, schema: pa.Schema, spark_schema_json: str, f: Any) -> None:
        self.schema = schema
        self.spark_schema_json = spark_schema_json
        try:
            self.pickled: bytes = cloudpickle.dumps(f)
        except Exception as error:
            raise ConfigError(
                f"what foreach was given cannot be sent to the slots: {type(error).__name__}: {error}; open "
                "connections and locks in open(), not in the constructor"
            ) from error

    def describe(self) -> str:
        return "ForeachTable"

    def create_writer(self) -> SinkWriter:
        return _ForeachWriter(self)

    def create_committer(self) -> SinkCommitter:
        return _ForeachCommitter()


class _ForeachWriter(SinkWriter):
    def __init__(self, sink: ForeachSink) -> None:
        self._sink = sink
        self._schema = StructType.fromJson(json.loads(sink.spark_schema_json))
        self._operator = NAME
        self._subtask = 0
        self._epoch = 0
        self._user: Any = None
        self._is_open = True

    def open(self, context: SinkContext) -> None:
        self._operator = f"{context.operator_id} {NAME}"
        self._subtask = context.subtask
        self._epoch = context.first_epoch

    def write(self, batch: pa.RecordBatch) -> None:
        with user_errors(self._operator):
            if self._user is None:
                self._begin()
            if self._is_open:
                self._process(batch)

    def prepare(self, epoch: int) -> bytes | None:
        self._epoch = epoch + 1
        self._end(None)
        return None

    def close(self) -> None:
        """Close ``f`` with an error if the epoch has not ended: a recovery repeats its rows."""
        self._end(GenerationFailed("the epoch was given up: its rows come again, or the query was stopped"))

    def _begin(self) -> None:
        """Create and open a copy of ``f``. If ``open`` raises, ``close`` is not called, as in PySpark."""
        user = cloudpickle.loads(self._sink.pickled)
        opens = not callable(user) and hasattr(user, "open")
        self._is_open = bool(user.open(self._subtask, self._epoch)) if opens else True
        self._user = user

    def _process(self, batch: pa.RecordBatch) -> None:
        process = self._user if callable(self._user) else self._user.process
        try:
            for row in to_rows(batch, self._schema):
                process(row)
        except Exception as error:
            self._end(error)
            raise

    def _end(self, error: Exception | None) -> None:
        """Call ``close`` with the error of ``process``, if any. It is called even if ``open`` returned False."""
        user, self._user = self._user, None
        if user is not None and not callable(user) and hasattr(user, "close"):
            with user_errors(self._operator):
                user.close(error)


class _ForeachCommitter(SinkCommitter):
    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        """Refuse staged rows: another sink staged them, and ``foreach`` would drop them."""
        raise SinkError("foreach stages nothing: another sink staged these rows for an output of the same name")

    def commit(self, permit: EpochCommit) -> None:
        """Do nothing: nothing was staged."""
