"""Sinks without a fence behave as in ``docs/fencing.md``, with the example of that page."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.errors import SinkError
from penstock.queries.streaming_query import StreamingQuery
from tests.support.places import DOCS
from tests.support.queries.query_running import Inbox

pytestmark = pytest.mark.spark

PAGE = DOCS / "fencing.md"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "rows.sqlite", check_same_thread=False)) as connection:
        connection.execute("CREATE TABLE batches (query TEXT, batch INTEGER, PRIMARY KEY (query, batch))")
        connection.execute("CREATE TABLE rows (query TEXT, key INTEGER)")
        yield connection


@pytest.fixture
def write(database: sqlite3.Connection) -> Callable[[Any, int], None]:
    """The example of the page."""
    (example,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "def write(" in text]
    names: dict[str, Any] = {"database": database}
    exec(example, names)
    return names["write"]  # type: ignore[no-any-return]


@pytest.fixture
def run(
    spark: SparkSession, inbox: Inbox, write: Callable[[Any, int], None], tmp_path: Path
) -> Callable[..., StreamingQuery]:
    """``run(key, **options)`` adds a row, has it written, and stops."""

    def run_once(key: int, beside: bool = False, **options: str) -> StreamingQuery:
        inbox.add([(key, key, float(key))])
        keys = inbox.stream(spark).select("key")
        settings = {"checkpointLocation": str(tmp_path / "checkpoint"), "checkpoint.interval": "200ms"} | options
        writers = [penstock.writeStream(keys).foreachBatch(write).options(parallelism=1, **settings)]
        if beside:
            writers.append(penstock.writeStream(keys).format("parquet").option("path", str(tmp_path / "keys")))
        query = penstock.start(writers)
        query.processAllAvailable()
        query.stop()
        return query

    return run_once


def put_back(tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "backup", tmp_path / "checkpoint")


def rows(database: sqlite3.Connection) -> list[tuple[str, int]]:
    return list(database.execute("SELECT query, key FROM rows ORDER BY rowid"))


def test_a_location_that_was_put_back_repeats_identities_and_a_fork_does_not(
    run: Callable[..., StreamingQuery], database: sqlite3.Connection, tmp_path: Path
) -> None:
    query = run(1)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    run(2)
    run(3)
    assert rows(database) == [(query.id, 1), (query.id, 2), (query.id, 3)]
    put_back(tmp_path)
    run(4)  # one batch with rows 2 and 3 has the id that row 2 had
    assert rows(database) == [(query.id, 1), (query.id, 2), (query.id, 3)], "row 4 is lost, as the page says"
    put_back(tmp_path)
    forked = run(
        5, checkpointLocation=str(tmp_path / "fork"), startFrom=str(tmp_path / "checkpoint"), sinkTarget="shared"
    )
    assert {key for _, key in rows(database)} == {1, 2, 3, 4, 5}
    assert sorted(key for query_id, key in rows(database) if query_id == forked.id) == [2, 3, 4, 5]


def test_a_fenced_output_guards_the_others(
    run: Callable[..., StreamingQuery], database: sqlite3.Connection, tmp_path: Path
) -> None:
    query = run(1, beside=True)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "backup")
    run(2, beside=True)
    put_back(tmp_path)
    with pytest.raises(SinkError, match="newer output"):
        run(3, beside=True)
    assert rows(database) == [(query.id, 1), (query.id, 2)]
