"""A tiny job: numbers -> hash edge -> running count per key -> files. Everything it needs, nothing of the frontend.

What comes out is known: of ``total`` rows with ``value = 0..total-1`` and ``key = value % keys`` each value once, and
per key the counts 1..n. A lost row, a row twice or a state that does not fit the position breaks one of the two.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.connectors.base import Sink, SinkCommitter, SinkContext, SinkWriter, Source, SourceReader
from penstock.errors import FunctionError
from penstock.model.commits import EpochCommit
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.base import Operator, OperatorContext, OperatorState, RestoredState
from penstock.state.stored_form import KEY_GROUP_COLUMN
from penstock.state.table import TableSpec

ROWS = pa.schema([("key", pa.int64()), ("value", pa.int64())])
COUNTED = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("count", pa.int64())])
STATE = pa.schema([pa.field(KEY_GROUP_COLUMN, pa.int16(), nullable=False), ("key", pa.int64()), ("count", pa.int64())])
MAX_PARALLELISM = 128


@dataclass(frozen=True)
class Numbers(Source):
    """``total`` numbers in splits of ``per_split``; ``rate``: rows per second and reader, None for no limit."""

    total: int
    per_split: int = 1000
    keys: int = 17
    rate: float | None = None
    schema = ROWS

    def describe(self) -> str:
        return f"Numbers[{self.total}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        start = 0 if state is None else int(state)  # type: ignore[call-overload]
        splits = []
        while start < self.total and len(splits) < 4:
            rows = min(self.per_split, self.total - start)
            splits.append(Split(f"n{start}", {"start": start, "rows": rows}))
            start += rows
        return Discovery(splits, start)

    def create_reader(self) -> NumbersReader:
        return NumbersReader(self)


class NumbersReader(SourceReader):
    def __init__(self, source: Numbers) -> None:
        self._source = source
        self._splits: list[Split] = []
        self._next_at = 0.0

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._splits or time.monotonic() < self._next_at:
            return None
        split = self._splits[0]
        done = int(split.position.get("rows", 0))  # type: ignore[call-overload]
        rows = min(max_rows, int(split.spec["rows"]) - done)  # type: ignore[call-overload]
        start = int(split.spec["start"]) + done  # type: ignore[call-overload]
        if done + rows == split.spec["rows"]:
            self._splits.pop(0)
        else:
            self._splits[0] = Split(split.split_id, split.spec, {"rows": done + rows})
        if self._source.rate is not None:
            self._next_at = time.monotonic() + rows / self._source.rate
        values = np.arange(start, start + rows, dtype=np.int64)
        return pa.RecordBatch.from_arrays([pa.array(values % self._source.keys), pa.array(values)], schema=ROWS)

    def snapshot(self) -> list[Split]:
        return list(self._splits)


@dataclass(frozen=True)
class CountSpec(OperatorSpec):
    """``slow_file``: while it exists, each row takes as many microseconds as it says. ``fail_at``: raises there."""

    slow_file: str = ""
    fail_at: int | None = None
    operator_id = "count"
    name = "RunningCount"
    output_schema = COUNTED

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {"counts": STATE}

    def create(self) -> Count:
        return Count(self)


class Count(Operator):
    def __init__(self, spec: CountSpec) -> None:
        self._spec = spec

    def open(self, context: OperatorContext) -> None:
        schema = pa.schema(list(STATE)[1:])
        self._counts = context.backend.create_table("counts", TableSpec(schema, 1, MAX_PARALLELISM))

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        be_slow(self._spec.slow_file, batch.num_rows)
        if self._spec.fail_at in batch.column(1).to_pylist():
            raise FunctionError("count (RunningCount)", f"ValueError: {self._spec.fail_at}", "Traceback of the user\n")
        counts = []
        with self._counts.edit([batch.column(0)], batch.num_rows) as edited:
            data, valid = edited.values[0].write()
            valid[:] = True
            for row in edited.rows.tolist():
                data[row] += 1
                counts.append(int(data[row]))
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), batch.column(1), pa.array(counts, pa.int64())], schema=COUNTED
        )

    def snapshot(self) -> OperatorState:
        return OperatorState({"counts": self._counts.capture()})

    def restore(self, state: RestoredState) -> None:
        self._counts = state.fill("counts", self._counts)

    def counters(self) -> dict[str, int]:
        return {"state_rows": len(self._counts), "rows_dropped_late": 0}

    def close(self) -> None:
        self._counts.close()


def be_slow(slow_file: str, rows: int) -> None:
    """Sleep per row; see ``CountSpec``."""
    if slow_file:
        with contextlib.suppress(FileNotFoundError):
            time.sleep(rows * float(Path(slow_file).read_text() or 0) / 1e6)


@dataclass(frozen=True)
class SlowSpec(OperatorSpec):
    """Passes rows on. ``slow_file``: see ``CountSpec``."""

    slow_file: str
    operator_id = "slow"
    name = "Slow"
    output_schema = ROWS

    def create(self) -> Operator:
        return Slow(self.slow_file)


class Slow(Operator):
    def __init__(self, slow_file: str) -> None:
        self._slow_file = slow_file

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        be_slow(self._slow_file, batch.num_rows)
        yield batch


@dataclass(frozen=True)
class Files(Sink):
    """``<folder>/staged/*.arrow``, made visible by ``<folder>/committed/<epoch>.json``."""

    folder: str

    def describe(self) -> str:
        return f"Files[{self.folder}]"

    def create_writer(self) -> FilesWriter:
        return FilesWriter(self.folder)

    def create_committer(self) -> FilesCommitter:
        return FilesCommitter(self.folder)


class FilesWriter(SinkWriter):
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._rows: list[pa.RecordBatch] = []

    def open(self, context: SinkContext) -> None:
        self._context = context
        os.makedirs(f"{self._folder}/staged", exist_ok=True)

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)

    def prepare(self, epoch: int) -> bytes | None:
        if not self._rows:
            return None
        c = self._context
        name = f"{c.generation}-{c.attempt_token}-{c.subtask}-{epoch}.arrow"
        with (
            pa.OSFile(f"{self._folder}/staged/{name}", "wb") as file,
            pa.ipc.new_stream(file, self._rows[0].schema) as writer,
        ):
            for batch in self._rows:
                writer.write_batch(batch)
        self._rows.clear()
        return name.encode()


class FilesCommitter(SinkCommitter):
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def open(self, query_id: str) -> None:
        (self._folder / "committed").mkdir(parents=True, exist_ok=True)

    def commit(self, permit: EpochCommit) -> None:
        names = [message.decode() for _, message in sorted(permit.messages.items())]
        target = self._folder / "committed" / f"{permit.epoch:08}.json"
        temporary = target.with_suffix(".tmp")
        temporary.write_text(json.dumps(names))
        temporary.replace(target)


def visible(folder: Path) -> Iterator[pa.Table]:
    """Return the rows that each subtask wrote in each epoch, epoch by epoch."""
    for epoch in sorted((folder / "committed").glob("*.json")):
        for name in json.loads(epoch.read_text()):
            with pa.OSFile(str(folder / "staged" / name)) as file, pa.ipc.open_stream(file) as reader:
                yield reader.read_all()


def committed(folder: Path) -> list[tuple[int, int, int]]:
    """(key, value, count) of everything visible."""
    rows: list[tuple[int, int, int]] = []
    for table in visible(folder):
        rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return rows


def assert_exact(folder: Path, total: int, keys: int = 17) -> None:
    """Assert that the visible rows are exactly those of a sequential run."""
    rows = committed(folder)
    values = Counter(value for _, value, _ in rows)
    assert not [v for v, n in values.items() if n > 1], f"rows twice: {[v for v, n in values.items() if n > 1][:10]}"
    assert len(values) == total, f"{total - len(values)} rows missing"
    assert all(key == value % keys for key, value, _ in rows)
    counted: dict[int, list[int]] = {}
    for key, _, count in rows:
        counted.setdefault(key, []).append(count)
    for key, counts in counted.items():
        counts.sort()
        assert counts == list(range(1, len(counts) + 1)), f"key {key}: the state does not fit the rows"


def graph_with_slow_middle(folder: Path, parallelism: int, source: Numbers, slow_file: Path) -> JobGraph:
    """numbers -> rebalance edge -> a slow operator without state -> hash edge -> running count -> files."""
    return JobGraph(
        vertices=(
            Vertex(0, "Numbers", SourceSpec("numbers", "Numbers", source), (), None),
            Vertex(1, "Slow", None, (SlowSpec(str(slow_file)),), None),
            Vertex(2, "Count", None, (CountSpec(),), SinkSpec("files", "Files", Files(str(folder)))),
        ),
        edges=(Edge(0, 0, 1, EdgeKind.REBALANCE, ROWS), Edge(1, 1, 2, EdgeKind.HASH, ROWS, (0,))),
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
    )


def tiny_graph(
    folder: Path,
    parallelism: int,
    source: Numbers,
    count: CountSpec | None = None,
) -> JobGraph:
    """Two vertices and a hash edge between them."""
    return JobGraph(
        vertices=(
            Vertex(0, "Numbers", SourceSpec("numbers", "Numbers", source), (), None),
            Vertex(1, "Count", None, (count or CountSpec(),), SinkSpec("files", "Files", Files(str(folder)))),
        ),
        edges=(Edge(0, 0, 1, EdgeKind.HASH, ROWS, (0,)),),
        parallelism=parallelism,
        max_parallelism=MAX_PARALLELISM,
    )
