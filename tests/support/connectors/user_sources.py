"""Data sources as users write them; a module of its own, so that commit messages have a class that can be found."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)


class Range(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class Counter(DataSource):
    """Numbers up to the option ``end``, ten per offset range, two partitions each; ``yields`` says as what."""

    @classmethod
    def name(cls) -> str:
        return "counter"

    def schema(self) -> str:
        return "n LONG, s STRING"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return CounterReader(self.options)


class CounterReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.end = int(options["END"])
        self.yields = options.get("yields", "tuple")
        self.commits: list[dict] = []

    def initialOffset(self) -> dict:  # noqa: N802
        return {"n": 0}

    def latestOffset(self) -> dict:  # type: ignore[override]  # noqa: N802 - as before PySpark 4.2
        self.given = min(getattr(self, "given", 0) + 10, self.end)
        return {"n": self.given}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        middle = (start["n"] + end["n"]) // 2
        return [Range(start["n"], middle), Range(middle, end["n"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        numbers = range(partition.start, partition.end)
        if self.yields == "batch":
            yield pa.record_batch({"n": pa.array(numbers, pa.int64()), "s": [str(n) for n in numbers]})
            return
        for n in numbers:
            if self.yields == "fails" and n == 7:
                raise ValueError("seven")
            yield {"row": Row(s=str(n), n=n), "wide": (n, "s", 0), "text": "ab"}.get(self.yields, (n, str(n)))

    def commit(self, end: dict) -> None:
        self.commits.append(end)


class Limited(Counter):
    """``latestOffset`` as since PySpark 4.2."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return LimitedReader(self.options)


class LimitedReader(CounterReader):
    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        return {"n": min(start["n"] + 4, self.end)}


class Planned(Counter):
    """Counts on from where it was last planned to."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return PlannedReader(self.options)


class PlannedReader(CounterReader):
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.calls: list[tuple[int, int]] = []

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        self.calls.append((start["n"], end["n"]))
        self.given = end["n"]
        return [] if start == end else super().partitions(start, end)


class Unstable(Counter):
    """Source whose rows change from read to read, as the option ``how`` says."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return UnstableReader(self.options)


class UnstableReader(CounterReader):
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self.how = options["how"]
        self.state = Path(options["state"])

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        planned = super().partitions(start, end)
        return planned[:1] if self.how == "partitions" and self.state.exists() else planned

    def read(self, partition: InputPartition) -> Iterator[Any]:
        again = self.state.exists()
        self.state.touch()
        for n in range(partition.start, partition.end):
            if again and self.how == "fewer" and n > partition.start + 1:
                return
            yield (n, "other" if again and self.how == "values" else str(n))


class Simple(DataSource):
    """Numbers from a file that holds the end; three at a time."""

    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return super().streamReader(schema)

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return SimpleReader(Path(self.options["file"]))


class SimpleReader(SimpleDataSourceStreamReader):
    def __init__(self, file: Path) -> None:
        self.file = file
        self.commits: list[dict] = []

    def initialOffset(self) -> dict:  # noqa: N802
        return {"at": 0}

    def read(self, start: dict) -> tuple[Iterator[Any], dict]:
        end = {"at": min(start["at"] + 3, int(self.file.read_text()))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[Any]:  # noqa: N802
        return iter([(n, str(n)) for n in range(start["at"], end["at"])])

    def commit(self, end: dict) -> None:
        self.commits.append(end)


class Slow(Counter):
    """Blocks before each row, until ``SlowReader.may_go_on`` is released for it."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return SlowReader(self.options)


class SlowReader(CounterReader):
    may_go_on = threading.Semaphore(0)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for row in super().read(partition):
            self.may_go_on.acquire(timeout=60)
            yield row


@dataclass
class Written(WriterCommitMessage):
    """A message of plain values."""

    path: str
    rows: int
    tags: list[str]


@dataclass
class WrittenBytes(WriterCommitMessage):
    """A message that JSON cannot hold."""

    content: tuple[int, bytes]


class Folder(DataSource):
    """Writes JSON lines to files and renames them on commit; ``message`` and ``fails`` are options."""

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        kind = FolderArrowWriter if self.options.get("arrow") else FolderWriter
        return kind(Path(self.options["Folder"]), self.options)


class FolderWriter(DataSourceStreamWriter):
    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        self.folder = folder
        self.options = options

    def lines(self, iterator: Iterator[Any]) -> Iterator[str]:
        for row in iterator:
            yield json.dumps(row.asDict(), default=str)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        rows = 0
        staged = self.folder / f"{os.getpid()}-{time.monotonic_ns()}.staged"
        with staged.open("w") as file:
            for line in self.lines(iterator):
                if self.options.get("fails") == "write":
                    raise ValueError("cannot write")
                if self.options.get("fails") == "early" and rows == 1:
                    break
                rows += 1
                file.write(line + "\n")
        if self.options.get("fails") == "message":
            return "no message"  # type: ignore[return-value]
        if self.options.get("message") == "bytes":
            return WrittenBytes((rows, str(staged).encode()))
        return Written(str(staged), rows, ["a"])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self.options.get("fails") == "commit":
            raise ValueError("cannot commit")
        for i, message in enumerate(messages):
            staged = Path(message.path if isinstance(message, Written) else message.content[1].decode())
            if staged.exists():
                staged.rename(self.folder / f"{batchId}-{i}.json")


class FolderArrowWriter(DataSourceStreamArrowWriter, FolderWriter):
    def lines(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[str]:
        for batch in iterator:
            for row in batch.to_pylist():
                yield json.dumps(row, default=str)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return FolderWriter.write(self, iterator)


class Modern(DataSource):
    """Source as since PySpark 4.2, with admission control; ``limit``, ``empty`` and ``bad`` are options.

    ``empty``: ranges below it have no partitions. ``prepares``: supports Trigger.AvailableNow.
    """

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return PreparedReader(self.options) if self.options.get("prepares") else ModernReader(self.options)


class ModernReader(DataSourceStreamReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.end = Path(options["end"])
        self.options = options
        self.calls: list[Any] = []

    def initialOffset(self) -> dict:  # noqa: N802
        self.calls.append("initialOffset")
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        kinds: dict[str, Any] = {"rows": ReadMaxRows(4), "own": OwnLimit(), "all": ReadAllAvailable()}
        return kinds[self.options.get("limit", "rows")]  # type: ignore[no-any-return]

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:  # noqa: N802
        self.calls.append(("latestOffset", start["n"], type(limit).__name__))
        if self.options.get("bad") == "offset":
            return "n"  # type: ignore[return-value]
        end = self.target()
        return {"n": min(end, start["n"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else end}

    def reportLatestOffset(self) -> dict | None:  # noqa: N802
        return {"n": self.target()}

    def target(self) -> int:
        return int(self.end.read_text())

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        self.calls.append(("partitions", start["n"], end["n"]))
        if self.options.get("bad") == "partitions":
            return [start["n"]]
        if start == end or end["n"] <= int(self.options.get("empty", "0")):
            return []
        return [Range(start["n"], end["n"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = [(n, str(n)) for n in range(partition.start, partition.end)]
        return rows if self.options.get("bad") == "list" else iter(rows)  # type: ignore[return-value]

    def stop(self) -> None:
        self.calls.append("stop")


class PreparedReader(ModernReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.calls.append("prepare")
        self.frozen_at = super().target()

    def target(self) -> int:
        return getattr(self, "frozen_at", None) or super().target()


@dataclass
class OwnLimit(ReadLimit):
    """Not one of Spark's."""


class PreparedSimple(Simple):
    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return PreparedSimpleReader(Path(self.options["file"]))


class PreparedSimpleReader(SimpleReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        frozen = self.file.with_suffix(".frozen")
        frozen.write_text(self.file.read_text())
        self.file = frozen


class ToldSimple(Simple):
    """Writes down what it is told; the option ``blocks``: its read never returns."""

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return ToldSimpleReader(Path(self.options["file"]))


class ToldSimpleReader(SimpleReader):
    def commit(self, end: dict) -> None:
        with self.file.with_suffix(".told").open("a") as told:
            told.write(f"{end['at']}\n")


class Batches(Counter):
    """RecordBatches of as many rows as the file in option ``rows`` says now."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return BatchesReader(self.options)


class BatchesReader(CounterReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = int(Path(self.yields).read_text())
        batch = pa.record_batch(
            {
                "n": pa.array([None if n % 3 == 0 else n for n in range(partition.start, partition.end)], pa.int64()),
                "s": pa.array(["x" * n for n in range(partition.start, partition.end)]),
            }
        )
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)


class Given(DataSource):
    """One partition with the rows of ``GIVEN``."""

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return GivenReader()


GIVEN: list[Any] = []


class GivenReader(CounterReader):
    def __init__(self) -> None:
        super().__init__({"END": "1"})

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [Range(0, 1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(GIVEN)
