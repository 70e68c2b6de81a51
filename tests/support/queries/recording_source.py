"""A data source that writes down what is asked of it."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

register_pickle_by_value(sys.modules[__name__])


class Recording(DataSource):
    """Numbers up to what the file in option ``end`` says, four at a time; calls go to the file in option ``log``."""

    @classmethod
    def name(cls) -> str:
        return "recording"

    def schema(self) -> str:
        return "n int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return OldReader(self.options) if self.options.get("old") else RecordingReader(self.options)


class _Reader(DataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.log = options["log"]
        self.end = options["end"]
        self.reader = uuid.uuid4().hex

    def told(self, *call: Any) -> None:
        with open(self.log, "a") as log:
            log.write(json.dumps([self.reader, *call]) + "\n")

    def initialOffset(self) -> dict:  # noqa: N802
        self.told("initialOffset")
        return {"n": 0}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        self.told("partitions", start, end)
        return [] if start == end else [InputPartition((start["n"], end["n"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((n,) for n in range(*partition.value))


class OldReader(_Reader):
    """Reader with the interface before PySpark 4.2."""

    def latestOffset(self) -> dict:  # type: ignore[override]  # noqa: N802
        self.told("latestOffset")
        return {"n": int(Path(self.end).read_text())}


class RecordingReader(_Reader, SupportsTriggerAvailableNow):
    frozen = 0

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(4)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.told("prepareForTriggerAvailableNow")
        self.frozen = int(Path(self.end).read_text())

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        self.told("latestOffset", start, repr(limit))
        return {"n": min(start["n"] + 4, self.frozen)}
