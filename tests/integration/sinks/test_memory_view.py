"""The view of a memory sink shows every committed row once, whatever its parts are."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.api.memory_view import MERGED, MemoryView
from penstock.connectors.arrow_message import RowsMessage
from penstock.connectors.memory import MemorySink
from penstock.model.commits import EpochCommit
from penstock.spark.arrow_frames import LOCAL_BYTES, ArrowFrames

SCHEMA = pa.schema([("n", pa.int64())])
COLUMNS = StructType().add("n", "long")


def commit(sink: MemorySink, epoch: int, numbers: list[int]) -> None:
    batch = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
    message = RowsMessage(SCHEMA)
    message.add(batch)
    sink.keep(EpochCommit("query", epoch, {0: message.finish()}))


def shown(spark: SparkSession, name: str) -> list[int]:
    return [row[0] for row in spark.table(name).collect()]


@pytest.mark.spark
def test_epochs_are_added_in_order_and_parts_stay_few(spark: SparkSession) -> None:
    sink = MemorySink("parts", SCHEMA)
    view = MemoryView(spark, sink, COLUMNS)
    view.refresh()
    assert (shown(spark, "parts"), view.parts) == ([], 0)
    for epoch in range(1, 25):
        commit(sink, epoch, [2 * epoch, 2 * epoch + 1])
        if epoch % 7 != 2:  # two commits may come before one look
            view.refresh()
        assert view.parts < 2 * MERGED
    assert shown(spark, "parts") == list(range(2, 50))
    assert view.parts < MERGED


@pytest.mark.spark
def test_a_commit_hands_over_its_own_rows_only(spark: SparkSession) -> None:
    sink = MemorySink("own_rows", SCHEMA)
    view = MemoryView(spark, sink, COLUMNS)
    commit(sink, 1, list(range(1000)))
    view.refresh()
    commit(sink, 2, [1000])
    with patch.object(ArrowFrames, "frame", autospec=True, side_effect=ArrowFrames.frame) as made:
        view.refresh()
        view.refresh()
    assert [call.args[1].num_rows for call in made.call_args_list] == [1]
    assert shown(spark, "own_rows") == list(range(1001))


@pytest.mark.spark
def test_a_whole_result_replaces_the_view(spark: SparkSession) -> None:
    sink = MemorySink("replaced", SCHEMA, replaces=True)
    view = MemoryView(spark, sink, COLUMNS)
    for epoch, numbers in enumerate(([1, 2], [3], []), 1):
        commit(sink, epoch, numbers)
        view.refresh()
        assert shown(spark, "replaced") == numbers
        assert view.parts == 1


@pytest.mark.spark
def test_many_rows_are_converted_when_they_are_read(spark: SparkSession) -> None:
    sink = MemorySink("many", SCHEMA)
    view = MemoryView(spark, sink, COLUMNS)
    before = spark.conf.get("spark.sql.execution.arrow.localRelationThreshold")
    commit(sink, 1, list(range(LOCAL_BYTES // 4)))
    commit(sink, 2, [-1])
    view.refresh()
    assert spark.conf.get("spark.sql.execution.arrow.localRelationThreshold") == before
    assert "LocalRelation" not in spark.table("many")._jdf.queryExecution().analyzed().toString()
    assert shown(spark, "many") == [*range(LOCAL_BYTES // 4), -1]
    commit(sink, 3, [-2])
    view.refresh()
    assert shown(spark, "many")[-2:] == [-1, -2]


@pytest.mark.spark
def test_the_session_of_the_program_stays_the_active_one(spark: SparkSession) -> None:
    active = spark._jvm.SparkSession.getActiveSession
    own = spark.newSession()
    own.createDataFrame([(1,)], "n int")  # this makes it the active one
    sink = MemorySink("active", SCHEMA)
    view = MemoryView(spark, sink, COLUMNS)
    commit(sink, 1, list(range(LOCAL_BYTES)))
    view.refresh()
    assert SparkSession.getActiveSession() is own
    assert active().get().equals(own._jsparkSession)
    spark.createDataFrame([(1,)], "n int")
