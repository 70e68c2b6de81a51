"""A Python data source that makes rows as fast as it is asked: the input of every benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

POOL = 8
"""Distinct batches per partition, sent in turn, so that making rows is not what is measured."""


class MaxRatePartition(InputPartition):
    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class MaxRateReader(DataSourceStreamReader):
    """``batches`` batches of ``batchRows`` rows in each of ``partitions`` partitions, all there from the start."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.batches = int(options.get("batches", "1000000"))
        self.batch_rows = int(options.get("batchRows", "65536"))
        self.keys = int(options.get("keys", "10000"))
        self.partition_count = int(options.get("partitions", "2"))
        self.payload_bytes = int(options.get("payloadBytes", "0"))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"round": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"round": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[MaxRatePartition]:
        return [MaxRatePartition(index) for index in range(self.partition_count)]

    def read(self, partition: MaxRatePartition) -> Iterator[pa.RecordBatch]:
        random = np.random.default_rng(partition.index)
        pool = [self._batch(random) for _ in range(POOL)]
        for number in range(self.batches):
            yield pool[number % POOL]

    def _batch(self, random: np.random.Generator) -> pa.RecordBatch:
        columns = {
            "key": pa.array(random.integers(0, self.keys, self.batch_rows, dtype=np.int64)),
            "value": pa.array(random.integers(0, 1_000, self.batch_rows, dtype=np.int64)),
        }
        if self.payload_bytes:
            letters = "x" * self.payload_bytes
            columns["payload"] = pa.array([letters] * self.batch_rows)
        return pa.RecordBatch.from_pydict(columns)


class MaxRateSource(DataSource):
    """``format("max-rate")``: columns key long, value long and, with option payloadBytes, payload string."""

    @classmethod
    def name(cls) -> str:
        return "max-rate"

    def schema(self) -> str:
        payload = ", payload string" if int(self.options.get("payloadBytes", "0")) else ""
        return f"key bigint, value bigint{payload}"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        return MaxRateReader(self.options)
