"""Work of a Spark task before it becomes a slot."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import GenerationFailed
from penstock.spark.slot_task import run_slot
from penstock.worker import slot


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """Slots that were begun: index and host."""
    slots: list[tuple[int, str | None]] = []
    monkeypatch.setattr(slot, "slot_main", lambda index, task, *, own_process, host: slots.append((index, host)))
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    return slots


def task(host: str = "10.0.0.1") -> Any:
    return SimpleNamespace(generation=3, control_host=host)


def context(partition: int, attempt: int = 0, addresses: str | None = None) -> Any:
    told = {"addresses": addresses}
    return SimpleNamespace(partitionId=lambda: partition, attemptNumber=lambda: attempt, getLocalProperty=told.get)


def test_a_task_that_spark_repeats_does_not_join_the_gang(begun: list[tuple[int, str | None]]) -> None:
    run_slot(context(2), task(), gang=True)
    with pytest.raises(GenerationFailed, match=r"slot 2 of Generation 3 .* \(attempt 1\)"):
        run_slot(context(2, attempt=1), task(), gang=True)
    assert begun == [(2, None)]


def test_a_slot_is_where_spark_says_its_executor_is(
    begun: list[tuple[int, str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = "node-a:4040, node-b:4041"
    run_slot(context(1, addresses=addresses), task(), gang=False)
    run_slot(context(0), task(), gang=True)
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.9")
    run_slot(context(0), task(), gang=True)
    run_slot(context(1, addresses=addresses), task("127.0.0.1"), gang=False)
    assert begun == [(1, "node-b"), (0, None), (0, "10.0.0.9"), (1, None)]


def test_a_slot_does_not_search_what_its_worker_has_imported_for_garbage(
    begun: list[tuple[int, str | None]],
) -> None:
    """A worker collects garbage when a slot ends: without this a stop took 0.1 s longer."""
    gc.unfreeze()
    run_slot(context(0), task(), gang=False)
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


@pytest.mark.spark
def test_spark_tells_each_barrier_task_where_the_others_are(spark: SparkSession) -> None:
    """A slot reads its executor's host from this list."""

    def addresses(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for _ in batches:
            continue
        told = TaskContext.get().getLocalProperty("addresses")
        yield pa.RecordBatch.from_pydict({"addresses": [told]})

    told = spark.range(0, 2, 1, 2).mapInArrow(addresses, "addresses string", barrier=True).collect()
    assert len(told) == 2
    for row in told:
        hosts = [address.strip().rpartition(":")[0] for address in row.addresses.split(",")]
        assert hosts == ["127.0.0.1", "127.0.0.1"]


@pytest.mark.spark
def test_a_worker_of_our_daemon_does_not_look_for_garbage_among_what_the_daemon_has_imported(
    spark: SparkSession,
) -> None:
    """It looks for some after every task; all of Penstock and pandas are tens of thousands of objects."""

    def looked_through(_: int) -> tuple[int, list[str]]:
        import gc
        import sys

        objects = {id(each) for each in gc.get_objects()}
        imported = ["pandas", "pyspark.worker", "penstock.worker.slot", "penstock.connectors.python.source"]
        return gc.get_freeze_count(), [name for name in imported if id(sys.modules[name]) in objects]

    for frozen, names in spark.sparkContext.parallelize(range(2), 2).map(looked_through).collect():
        assert frozen > 10_000
        assert names == []
