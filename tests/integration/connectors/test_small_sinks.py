"""The memory, console and noop sinks."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from zoneinfo import ZoneInfo

import cloudpickle
import pyarrow as pa
import pytest

from penstock.connectors.arrow_message import MERGED_ROWS, RowsMessage, decode_rows
from penstock.connectors.base import SinkContext
from penstock.connectors.console import ConsoleSink
from penstock.connectors.memory import MemorySink
from penstock.connectors.noop import NoopSink
from penstock.connectors.show import render_table
from penstock.errors import ConfigError, SinkError
from penstock.model.commits import EpochCommit
from tests.support.connectors.kits import QUERY_ID, check_commits_once, rows_of, stage

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64()), pa.array([str(v) for v in values])], schema=SCHEMA)


def test_memory_keeps_each_epoch_once_and_in_subtask_order() -> None:
    sink = MemorySink("t", SCHEMA)
    assert sink.table().schema == SCHEMA
    first = stage(sink, {1: batch(3), 0: batch(1, 2)}, 1)
    check_commits_once(sink, first, lambda: sink.table().num_rows, 3)
    check_commits_once(sink, stage(sink, {0: batch(4)}, 2), lambda: sink.table().num_rows, 1)
    assert [row[0] for row in rows_of(sink.table())] == [1, 2, 3, 4]
    assert cloudpickle.loads(cloudpickle.dumps(sink)).table().num_rows == 0


def test_memory_is_replaced_by_a_whole_result_be_it_empty() -> None:
    sink = MemorySink("t", SCHEMA, replaces=True)
    committer = sink.create_committer()
    committer.commit(stage(sink, {0: batch(1, 2)}, 1))
    committer.commit(stage(sink, {0: batch(3)}, 2))
    assert [row[0] for row in rows_of(sink.table())] == [3]
    writer = sink.create_writer()
    assert writer.prepare(3) is None, "nothing changed"
    writer.replace()
    message = writer.prepare(4)
    assert message is not None
    committer.commit(EpochCommit(QUERY_ID, 4, {0: message}))
    assert rows_of(sink.table()) == []
    assert writer.prepare(5) is None


def test_memory_takes_rows_of_an_earlier_plan_by_name_and_refuses_other_columns() -> None:
    older = pa.schema([("b", pa.string()), ("a", pa.int32())])
    rows = pa.record_batch([pa.array(["x"]), pa.array([7], pa.int32())], schema=older)
    waiting = stage(MemorySink("t", older), {0: rows}, 1)
    sink = MemorySink("t", SCHEMA)
    sink.create_committer().check_pending(waiting, same_columns=False)
    sink.create_committer().commit(waiting)
    assert (sink.table().schema, rows_of(sink.table())) == (SCHEMA, [(7, "x")])
    narrower = MemorySink("t", pa.schema([("a", pa.int32()), ("b", pa.string())]))
    other = MemorySink("t", pa.schema([("a", pa.int64()), ("bb", pa.string())]))
    for refusing, permit in ((narrower, stage(sink, {0: batch(1)}, 2)), (other, stage(sink, {0: batch(1)}, 2))):
        with pytest.raises(
            SinkError, match=r"its rows have the columns \(a int64, b string\), and the memory table has"
        ):
            refusing.create_committer().check_pending(permit, same_columns=False)


def test_memory_gives_back_the_rows_of_some_epochs() -> None:
    sink = MemorySink("t", SCHEMA)
    committer = sink.create_committer()
    for epoch in (1, 2, 3):
        committer.commit(stage(sink, {0: batch(epoch)}, epoch))
    before = sink.epochs()[0]
    assert committer.retraction_problem(1, 3) == ""
    committer.retract(1, 3)
    assert [row[0] for row in rows_of(sink.table())] == [1, 3]
    assert sink.epochs()[0] > before


def test_memory_renames_columns_by_position() -> None:
    sink = MemorySink("t", SCHEMA)
    other = pa.record_batch([pa.array([1]), pa.array(["x"])], names=["x#1", "y#2"])
    sink.create_committer().commit(stage(sink, {0: other}, 1))
    assert sink.table().schema == SCHEMA


@pytest.mark.parametrize("sizes", [(1, 0, 2), (0,), (1, MERGED_ROWS, 1, 1), (MERGED_ROWS - 1, 1), (5,) * 2_000])
def test_a_message_has_the_rows_in_order_in_few_batches(sizes: tuple[int, ...]) -> None:
    message, at = RowsMessage(SCHEMA), 0
    for size in sizes:
        message.add(batch(*range(at, at + size)))
        at += size
        assert sum(one.num_rows for one in message._small) < MERGED_ROWS, "the rest is encoded before the epoch ends"
    table = decode_rows({0: message.finish()})
    assert table.schema == SCHEMA
    assert table.column("a").to_pylist() == list(range(at))
    assert table.column("a").num_chunks <= 1 + 2 * at // MERGED_ROWS


def test_noop_stages_nothing() -> None:
    sink = NoopSink()
    writer = sink.create_writer()
    writer.open(SinkContext(QUERY_ID, 1, 0, 1, "aa"))
    writer.write(batch(1))
    assert writer.prepare(1) is None
    sink.create_committer().commit(EpochCommit(QUERY_ID, 1, {}))


def test_console_prints_the_first_rows(capsys: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(SCHEMA, num_rows=2)
    permit = replace(stage(sink, {0: batch(1, 2, 3, 4, 5), 1: batch(6)}, 70), batch=7)
    assert sum(pa.ipc.open_stream(m).read_all().num_rows for m in permit.messages.values()) == 4, "bounded"
    sink.create_committer().commit(permit)
    sink.create_committer().commit(EpochCommit(QUERY_ID, 8, {}))
    rule = "-" * 43
    assert capsys.readouterr().out == (
        f"{rule}\nBatch: 7\n{rule}\n+---+---+\n|  a|  b|\n+---+---+\n|  1|  1|\n|  2|  2|\n+---+---+\n"
        "only showing top 2 rows\n"
    )
    with pytest.raises(ConfigError, match="numRows=0"):
        ConsoleSink(SCHEMA, 0)


@pytest.mark.spark
@pytest.mark.parametrize("truncate", [20, 0, 3])
def test_rows_look_as_spark_shows_them(spark, capsys: pytest.CaptureFixture[str], truncate: int) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 120000, tzinfo=ZoneInfo("UTC"))
    ddl = (
        "b BOOLEAN, i INT, d DOUBLE, f FLOAT, s STRING, n BINARY, t DATE, ts TIMESTAMP, z TIMESTAMP_NTZ, "
        "c DECIMAL(20,3), a ARRAY<STRING>, st STRUCT<p: INT, q: DOUBLE>, m MAP<STRING, INT>"
    )
    doubles = [1.0, 0.1, 1e7, 16777216.0, 1e-3, 1.5e-5, -0.0, float("nan"), float("-inf"), 1e300, 9999999.5]
    rows = [
        (True, i, d, d if abs(d) < 1e30 else 0.1, "a longer text than twenty", b"\x01\xff", moment.date(), moment,
         moment.replace(tzinfo=None, microsecond=0), Decimal("12.5"), ["x", None], (i, d), {"k": i})
        for i, d in enumerate(doubles)
    ]  # fmt: skip
    frame = spark.createDataFrame([*rows, (None,) * 13, *[(None, 1, None, None, "tab\tnl\n", *(None,) * 8)]], ddl)
    far = [
        "timestamp_micros(253402300799900000 + i * 50000) AS far",
        "array(date_from_unix_date(i * 10000000)) AS days",
    ]
    frame = frame.selectExpr("*", *far)
    frame.show(12, truncate)
    shown = capsys.readouterr().out
    assert render_table(frame.toArrow(), 12, truncate, "UTC") + "\n" == shown
