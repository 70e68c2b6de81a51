"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "in")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def start(tmp_path: Path, out: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """``start(df, **options)`` starts a Parquet query with quick checkpoints; all are stopped at the end. An option
    that is None is not given."""
    queries: list[StreamingQuery] = []

    def start_query(df: DataFrame, **options: Any) -> StreamingQuery:
        settings = {"format": "parquet", "checkpointLocation": str(tmp_path / "checkpoint"), "parallelism": 1}
        settings |= {"checkpoint.interval": "200ms", "restart.attempts": 2, "restart.delay": "10ms"} | options
        if settings["format"] == "parquet":
            settings.setdefault("path", str(out))
        query = penstock.writeStream(df).start(**{name: value for name, value in settings.items() if value is not None})
        queries.append(query)
        return query

    yield start_query
    for query in queries:
        query.stop()


@pytest.fixture
def start_writer() -> Iterator[Callable[..., StreamingQuery]]:
    """``start_writer(writer, **options)`` starts any writer with quick checkpoints; all are stopped at the end."""
    queries: list[StreamingQuery] = []

    def start_query(writer: penstock.DataStreamWriter, **options: Any) -> StreamingQuery:
        settings = {"parallelism": 1, "checkpoint.interval": "200ms", "restart.attempts": 2, "restart.delay": "10ms"}
        query = writer.start(**(settings | options))
        queries.append(query)
        return query

    yield start_query
    for query in queries:
        query.stop()
