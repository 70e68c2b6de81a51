"""A user's own DataSource with a streamWriter as the sink, by class and by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark


def make_data_source() -> type[DataSource]:
    """Inside a function, so that it travels to the workers by value, as one typed into a notebook does."""

    @dataclass
    class Rows(WriterCommitMessage):
        values: list[int]

    class JsonLinesWriter(DataSourceStreamWriter):
        def __init__(self, directory: str) -> None:
            self.directory = directory

        def write(self, rows: Iterator[Any]) -> WriterCommitMessage:
            return Rows([row.value for row in rows])

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - PySpark's name
            values = sorted(value for message in messages if message is not None for value in message.values)
            (Path(self.directory) / f"{batchId:06d}.json").write_text(json.dumps(values))

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            raise AssertionError("epochs are not aborted")

    class JsonLines(DataSource):
        @classmethod
        def name(cls) -> str:
            return "jsonlines"

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return JsonLinesWriter(self.options["directory"])

    return JsonLines


def written(directory: Path) -> list[int]:
    return [value for file in sorted(directory.iterdir()) for value in json.loads(file.read_text())]


@pytest.mark.parametrize("registered", [False, True], ids=["class", "name"])
def test_a_python_data_source_takes_every_row_once(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start, registered: bool
) -> None:
    source: Any = make_data_source()
    target = tmp_path / "target"
    target.mkdir()
    if registered:
        spark.dataSource.register(source)
        source = "jsonlines"
    query = start(inbox.stream(spark).select("value"), format=source, directory=str(target), parallelism=2)
    for part in range(3):
        inbox.add([(0, part * 10 + number, 0.0) for number in range(10)])
        query.processAllAvailable()
        assert written(target) == list(range(part * 10 + 10))
    assert "jsonlines" in query.lastProgress.sink.description
