"""``foreach``: the protocol of open, process and close, against PySpark's own wrapper of the same writer."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from pyspark import taskcontext
from pyspark.sql import Row
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from penstock.connectors.base import SinkContext, SinkWriter
from penstock.connectors.foreach import ForeachSink
from penstock.errors import ConfigError, EvaluationError, FunctionError, GenerationFailed

SCHEMA = StructType([StructField("v", LongType())])
LOG: list[Any] = []
"""What the user's code did; tests run in one process, where classes of this module keep their identity."""


class User:
    """``fails``: where it raises; ``wanted``: what ``open`` returns."""

    def __init__(self, fails: str = "", wanted: Any = True) -> None:
        self.fails, self.wanted = fails, wanted
        self.opened = 0

    def open(self, partition_id: int, epoch_id: int) -> Any:
        self.opened += 1
        LOG.append(("open", self.opened, partition_id, epoch_id))
        self._maybe("open")
        return self.wanted

    def process(self, row: Row) -> None:
        LOG.append(("process", row["v"]))
        self._maybe("process")

    def close(self, error: Exception | None) -> None:
        LOG.append(("close", repr(error)))
        self._maybe("close")

    def _maybe(self, where: str) -> None:
        if self.fails == where:
            raise ValueError(where)


class OnlyProcess:
    def process(self, row: Row) -> None:
        LOG.append(("only", row["v"]))


def function(row: Row) -> None:
    LOG.append(("function", row["v"]))


@pytest.fixture(autouse=True)
def _empty_log() -> None:
    LOG.clear()


def writer_of(f: Any, first_epoch: int = 7) -> SinkWriter:
    writer = pickle.loads(
        cloudpickle.dumps(ForeachSink(pa.schema([("v", pa.int64())]), SCHEMA.json(), f))
    ).create_writer()
    writer.open(SinkContext("query", 1, 3, 4, "aa", first_epoch, operator_id="sink-1"))
    return writer


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], names=["v"])


def as_pyspark_does(f: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], str]:
    """Run PySpark's own wrapper over the rows 1, 2 and 3, as task 3 of batch 7."""
    context = SimpleNamespace(getLocalProperty=lambda name: "7")
    monkeypatch.setattr(taskcontext.TaskContext, "get", classmethod(lambda cls: context))
    wrapped = DataStreamWriter._construct_foreach_function(pickle.loads(cloudpickle.dumps(f)))
    problem = ""
    try:
        wrapped(3, iter([Row(v=1), Row(v=2), Row(v=3)]))
    except Exception as error:  # noqa: BLE001 - whatever it is, ours has to be the same
        problem = repr(error)
    done = list(LOG)
    LOG.clear()
    return done, problem


@pytest.mark.parametrize(
    "make",
    [
        lambda: User(),
        lambda: User(wanted=False),
        lambda: User(wanted=None),
        lambda: User(fails="open"),
        lambda: User(fails="process"),
        lambda: User(fails="close"),
        lambda: OnlyProcess(),
        lambda: function,
    ],
)
def test_calls_come_as_pyspark_makes_them(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, problem = as_pyspark_does(make(), monkeypatch)
    writer = writer_of(make())
    found = operator = ""
    try:
        writer.write(batch(1, 2))
        writer.write(batch(3))
        assert writer.prepare(7) is None, "nothing to commit"
    except FunctionError as error:
        found, operator = repr(error.__cause__), error.operator
    writer.close()
    assert (LOG, found) == (expected, problem)
    assert operator == ("sink-1 (foreach)" if problem else ""), "which of several outputs it is"


def test_every_epoch_with_rows_has_a_copy_and_an_id_of_its_own() -> None:
    writer = writer_of(User())
    writer.write(batch(1))
    writer.prepare(7)
    writer.prepare(8)  # no rows
    writer.write(batch(2))
    writer.prepare(11)
    writer.write(batch(3))
    writer.prepare(12)
    assert [entry for entry in LOG if entry[0] == "open"] == [("open", 1, 3, 7), ("open", 1, 3, 9), ("open", 1, 3, 12)]


def test_an_epoch_that_is_given_up_is_closed_with_an_error() -> None:
    writer = writer_of(User())
    writer.write(batch(1))
    writer.close()
    assert LOG[-1][0] == "close"
    assert LOG[-1][1].startswith(GenerationFailed.__name__)
    LOG.clear()
    writer.close()
    assert LOG == []


def test_a_time_that_python_has_no_value_for_is_refused_by_its_columns_name() -> None:
    schema = StructType([StructField("v", LongType()), StructField("at", TimestampType())])
    arrow = pa.schema([("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    writer = ForeachSink(arrow, schema.json(), function).create_writer()
    writer.open(SinkContext("query", 1, 0, 1, ""))
    with pytest.raises(EvaluationError, match="column at holds a date or time that cannot be handed"):
        writer.write(pa.record_batch([pa.array([1]), pa.array([2**62], arrow.field(1).type)], schema=arrow))


def test_what_cannot_be_sent_to_the_slots_is_refused() -> None:
    import threading

    user = User()
    user.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"cannot be sent to the slots.*open\(\)"):
        ForeachSink(pa.schema([]), SCHEMA.json(), user)
