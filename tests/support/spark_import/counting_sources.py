"""Python data sources that both engines read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules


class Counter(DataSource):
    """Numbers up to the option ``end``, four per range, in two partitions."""

    @classmethod
    def name(cls) -> str:
        return "counter"

    def schema(self) -> str:
        return "n LONG, s STRING"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return _CounterReader(int(self.options["end"]))


class _Numbers(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class _CounterReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, end: int) -> None:
        self.end = end

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the available data does not change."""

    def initialOffset(self) -> dict:  # noqa: N802
        return {"n": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        return {"n": min(start["n"] + 4, self.end)}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [_Numbers(start["n"], middle), _Numbers(middle, end["n"])]

    def read(self, partition: Any) -> Iterator[Any]:
        return iter([(n, str(n)) for n in range(partition.start, partition.end)])


class Simple(Counter):
    """Numbers up to what the file of the option ``file`` says, three at a time."""

    @classmethod
    def name(cls) -> str:
        return "simple"

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return DataSource.streamReader(self, schema)

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return _SimpleReader(Path(self.options["file"]))


class _SimpleReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, file: Path) -> None:
        self.file = file

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Do nothing: the available data does not change."""

    def initialOffset(self) -> dict:  # noqa: N802
        return {"at": 0}

    def read(self, start: dict) -> tuple[Iterator[Any], dict]:
        end = {"at": min(start["at"] + 3, int(self.file.read_text()))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[Any]:  # noqa: N802
        return iter([(n, str(n)) for n in range(start["at"], end["at"])])
