"""Fixtures of the tests that read and write snapshots as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import penstock
from penstock.queries.streaming_query import StreamingQuery


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """``start(df, **options)`` starts a Parquet query with quick checkpoints; all are stopped at the end."""
    queries: list[StreamingQuery] = []

    def start_query(df: DataFrame, **options: Any) -> StreamingQuery:
        settings = {"format": "parquet", "checkpointLocation": str(tmp_path / "checkpoint"), "parallelism": 1}
        settings |= {"checkpoint.interval": "200ms"} | options
        if settings["format"] == "parquet":
            settings.setdefault("path", str(tmp_path / "out"))
        query = penstock.writeStream(df).start(**{name: value for name, value in settings.items() if value is not None})
        queries.append(query)
        return query

    yield start_query
    for query in queries:
        query.stop()


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
