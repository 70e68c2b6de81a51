"""A simple stream reader's split never ends: ``processAllAvailable`` must see that it has nothing more for now."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

from tests.support.queries.query_running import Start, rows_of

pytestmark = pytest.mark.spark

register_pickle_by_value(sys.modules[__name__])


class LinesReader(SimpleDataSourceStreamReader):
    """The lines of one growing file; the offset counts them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"line": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        lines = Path(self._path).read_text().splitlines()[start["line"] :]
        return iter([(int(line),) for line in lines]), {"line": start["line"] + len(lines)}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:  # noqa: N802
        lines = Path(self._path).read_text().splitlines()[start["line"] : end["line"]]
        return iter([(int(line),) for line in lines])


class LinesSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "growing_lines"

    def schema(self) -> str:
        return "n bigint"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802 - PySpark's name
        return LinesReader(self.options)


def test_all_available_rows_of_a_simple_reader_are_committed_each_once(
    spark: SparkSession, tmp_path: Path, out: Path, start: Start
) -> None:
    spark.dataSource.register(LinesSource)
    lines = tmp_path / "lines"
    lines.write_text("1\n2\n3\n")
    df = spark.readStream.format("growing_lines").option("path", str(lines)).load()
    query = start(df, parallelism=2)
    query.processAllAvailable()
    assert rows_of(out) == [(1,), (2,), (3,)]
    query.stop()
    with lines.open("a") as file:
        file.write("4\n5\n")
    query = start(df, parallelism=2)
    query.processAllAvailable()
    assert rows_of(out) == [(1,), (2,), (3,), (4,), (5,)]
