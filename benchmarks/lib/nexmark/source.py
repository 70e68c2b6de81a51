"""The events as a stream: Parquet files, or a Python data source that replays them by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.lib.nexmark.generator import SPARK_SCHEMA, events

BATCH = 10_000
"""Events made at once."""


def write_parquet(folder: Path, count: int, files: int, seed: int = 0) -> None:
    """So many events in so many files, the earlier ones in the earlier files. Of Parquet's forms the one that costs
    readers the least: what is compared with them reads columns that need no decoding."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        first, end = count * number // files, count * (number + 1) // files
        batch = events(first, end - first, seed)
        path = folder / f"events-{number:05d}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), path, compression="none", use_dictionary=False)


class EventRange(InputPartition):
    """Events ``first`` to ``end - 1``."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__((first, end))
        self.first, self.end = first, end


class NexmarkReader(DataSourceStreamReader):
    """Offsets are numbers of events: ``{"next": n}``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._count = int(options.get("events", "1000000"))
        self._partitions = int(options.get("partitions", "2"))
        self._seed = int(options.get("seed", "0"))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"next": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"next": self._count}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[EventRange]:
        first, count = start["next"], end["next"] - start["next"]
        edges = [first + count * number // self._partitions for number in range(self._partitions + 1)]
        return [EventRange(*pair) for pair in pairwise(edges)]

    def read(self, partition: EventRange) -> Iterator[pa.RecordBatch]:
        for first in range(partition.first, partition.end, BATCH):
            yield events(first, min(BATCH, partition.end - first), self._seed)


class Nexmark(DataSource):
    """``format("nexmark")``. Options: ``events`` (how many, 1,000,000), ``partitions`` (2), ``seed`` (0)."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        return NexmarkReader(self.options)
