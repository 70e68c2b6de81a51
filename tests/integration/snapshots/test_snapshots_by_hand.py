"""Snapshots that a user takes: with a note, without waiting, and as the last thing of a query."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.errors import CheckpointFailed, ConfigError
from penstock.model.manifest import MAX_NOTE
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark


def held_by(gate: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on, but none while there is a file ``gate``; it says by ``gate.reached`` that it has some."""

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while os.path.exists(gate):
                open(f"{gate}.reached", "w").close()
                time.sleep(0.01)
            yield batch

    return hold


def test_a_snapshot_keeps_its_note_and_need_not_be_waited_for(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    gate = tmp_path / "gate"
    inbox.add([(1, 1, 1.0)])
    query = start(inbox.stream(spark).mapInArrow(held_by(str(gate)), SCHEMA))
    query.processAllAvailable()
    assert query.snapshot("mine", note="before the move").note == "before the move"
    future = query.snapshot(label="later", note="", wait=False)
    assert isinstance(future, Future)
    assert future.result(30).label == "later"
    for wrong in ({"note": "x" * (MAX_NOTE + 1)}, {"label": "x" * 201}, {"timeout": -1}):
        with pytest.raises(ConfigError):
            query.snapshot(wait=False, **wrong)  # type: ignore[call-overload]
    gate.touch()
    inbox.add([(2, 2, 2.0)])
    eventually((tmp_path / "gate.reached").exists, "the function to be called")
    with pytest.raises(CheckpointFailed):
        query.snapshot(timeout=0.1, wait=False).result(30)
    gate.unlink()
    query.stop()
    with pytest.raises(CheckpointFailed, match="not running"):
        query.snapshot(wait=False)


def test_stop_with_a_snapshot_ends_exactly_there_and_a_restart_goes_on(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    rows = [(n, n, float(n)) for n in range(20)]
    inbox.add(rows[:10])
    query = start(inbox.stream(spark).select("key"))
    query.processAllAvailable()
    with pytest.raises(ConfigError, match="choose one"):
        query.stop(drain=True, snapshot=True)
    with pytest.raises(ConfigError, match="say snapshot=True"):
        query.stop(format="portable")
    with pytest.raises(ConfigError, match="native or portable"):
        query.stop(snapshot=True, format="avro")
    assert query.isActive
    inbox.add(rows[10:])
    snapshot = query.stop(snapshot=True)
    assert snapshot is not None
    assert snapshot.requested
    assert not query.isActive
    assert query.exception() is None
    at_the_end = Counter(key for (key,) in rows_of(out))
    with pytest.raises(CheckpointFailed, match="not running"):
        query.stop(snapshot=True)
    assert query.stop() is None
    again = start(inbox.stream(spark).select("key"))
    assert again.generation == snapshot.generation + 1
    again.processAllAvailable()
    assert Counter(key for (key,) in rows_of(out)) == Counter(range(20))
    assert at_the_end <= Counter(range(20))


@pytest.mark.parametrize(
    ("option", "form", "written"),
    [("portable", None, True), ("portable", "native", False), ("native", "portable", True), ("native", None, False)],
)
def test_stop_writes_its_snapshot_in_the_format_that_was_asked_for(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start, option: str, form: str | None, written: bool
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark).dropDuplicates(["key"]), **{"snapshots.format": option})
    query.processAllAvailable()
    snapshot = query.stop(snapshot=True, format=form)
    assert snapshot is not None
    assert not query.isActive
    assert [folder.name for folder in tmp_path.glob("**/portable/*")] == ([snapshot.id] if written else [])
