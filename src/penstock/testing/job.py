"""The job that is simulated: source -> hash -> keyed count -> hash -> slow stage -> two-phase sink.

Input rows are (key, value, time): split s holds the values ``[s * n, (s + 1) * n)``, in order, each with the time
``value`` ms; the key follows from the value. For every row the count yields (0, key, value, how many rows of the key
so far), and for every key and window of event time, once the watermark has passed it, (1, key, window, rows in it).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import (
    Discovery,
    EpochCommit,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    Source,
    SourceReader,
    Split,
)
from penstock.graph.model import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.operators.base import KEY_GROUP_COLUMN, Operator, OperatorState, Plain
from penstock.operators.watermark import WatermarkSpec
from penstock.state.hashing import key_groups
from penstock.testing.outside import Outside, Row, SimulationFailure

INPUT = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.timestamp("us", tz="UTC"))])
OUTPUT = pa.schema([("kind", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("count", pa.int64())])
COUNTS = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("key", pa.int64()), ("count", pa.int64())])
WINDOWS = pa.schema(
    [(KEY_GROUP_COLUMN, pa.int16()), ("key", pa.int64()), ("window", pa.int64()), ("count", pa.int64())]
)
MAX_PARALLELISM = 8
PARALLELISM = 2


@dataclass(frozen=True)
class Shape:
    """How large the input is."""

    splits: int = 8
    rows_per_split: int = 20
    keys: int = 5
    window: int = 16

    @property
    def rows(self) -> int:
        return self.splits * self.rows_per_split

    def key(self, value: int) -> int:
        return (value * 7 + value // 3) % self.keys

    def expected(self) -> Counter[Row]:
        """What the sink must hold in the end, by a sequential run; ``value`` of kind 0 is checked by ``Outside``."""
        rows: Counter[Row] = Counter()
        per_window: Counter[tuple[int, int]] = Counter()
        for value in range(self.rows):
            rows[0, self.key(value), value, 0] += 1
            per_window[self.key(value), value // self.window] += 1
        last_watermark = self.rows - 1
        for (key, window), count in per_window.items():
            if (window + 1) * self.window <= last_watermark:
                rows[1, key, window, count] += 1
        return rows


class _Reader(SourceReader):
    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._splits: deque[Split] = deque()

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._splits:
            return None
        split = self._splits[0]
        number, at = split.spec["number"], split.position.get("at", 0)
        assert isinstance(number, int)
        assert isinstance(at, int)
        stop = min(at + max_rows, self._shape.rows_per_split)
        if stop == self._shape.rows_per_split:
            self._splits.popleft()
        else:
            self._splits[0] = Split(split.split_id, split.spec, {"at": stop})
        first = number * self._shape.rows_per_split
        values = list(range(first + at, first + stop))
        times = pa.array([value * 1_000 for value in values], pa.int64()).cast(INPUT.field(2).type)
        keys = pa.array([self._shape.key(value) for value in values], pa.int64())
        return pa.record_batch([keys, pa.array(values, pa.int64()), times], schema=INPUT)

    def snapshot(self) -> Sequence[Split]:
        return tuple(self._splits)


@dataclass(frozen=True)
class SplitSource(Source):
    """Finds one split at a time."""

    shape: Shape
    schema = INPUT

    def describe(self) -> str:
        return "SimulatedSource"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = state if isinstance(state, int) else 0
        if found == self.shape.splits:
            return Discovery((), found)
        return Discovery((Split(f"split-{found}", {"number": found}),), found + 1)

    def create_reader(self) -> SourceReader:
        return _Reader(self.shape)


@dataclass(frozen=True, kw_only=True)
class _Spec(OperatorSpec):
    operator_id: str
    name: str
    make: Callable[[], Operator]
    output_schema: pa.Schema = OUTPUT

    def create(self) -> Operator:
        return self.make()


class CountOperator(Operator):
    """Running counts and windows per key, as keyed tables."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._watermark_us: int | None = None
        self._counts: dict[int, int] = {}
        self._windows: dict[tuple[int, int], int] = {}

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        counts = []
        for key, value in zip(keys, values, strict=True):
            if self._watermark_us is not None and value * 1_000 < self._watermark_us:
                raise SimulationFailure(f"row {value} comes behind watermark {self._watermark_us}")
            place = key, value // self._window
            self._counts[key] = self._counts.get(key, 0) + 1
            self._windows[place] = self._windows.get(place, 0) + 1
            counts.append(self._counts[key])
        yield _output([0] * len(keys), keys, values, counts)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        if self._watermark_us is not None and watermark_us < self._watermark_us:
            raise SimulationFailure(f"the watermark falls from {self._watermark_us} to {watermark_us}")
        self._watermark_us = watermark_us
        due = sorted(place for place in self._windows if (place[1] + 1) * self._window * 1_000 <= watermark_us)
        for key, window in due:
            count = self._windows.pop((key, window))
            yield _output([1], [key], [window], [count])

    def snapshot(self) -> OperatorState:
        counts = [[key, count] for key, count in self._counts.items()]
        windows = [[key, window, count] for (key, window), count in self._windows.items()]
        tables = {"counts": _table(COUNTS, counts), "windows": _table(WINDOWS, windows)}
        return OperatorState(tables, {"watermark_us": self._watermark_us})

    def restore(self, state: OperatorState) -> None:
        stored = state.scalars["watermark_us"]
        assert stored is None or isinstance(stored, int)
        self._watermark_us = stored
        for row in state.tables["counts"].to_pylist():
            self._counts[row["key"]] = row["count"]
        for row in state.tables["windows"].to_pylist():
            self._windows[row["key"], row["window"]] = row["count"]


class SlowOperator(Operator):
    """Passes rows on, and takes its time."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._work = work

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._work(batch.num_rows)
        yield batch


class _Writer(SinkWriter):
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._rows: list[Row] = []
        self._context: SinkContext | None = None

    def open(self, context: SinkContext) -> None:
        self._context = context

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows += [tuple(row.values()) for row in batch.to_pylist()]

    def prepare(self, epoch: int) -> bytes | None:
        assert self._context is not None
        if not self._rows:
            return None
        key = f"g{self._context.generation}-{self._context.attempt_token}-{self._context.subtask}-{epoch}"
        self._outside.stage(key, self._context.generation, self._rows)
        self._rows = []
        return key.encode()


class _Committer(SinkCommitter):
    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def commit(self, permit: EpochCommit) -> None:
        self._outside.commit(permit)

    def abandon(self, generation: int, pending: Collection[bytes] = ()) -> None:
        self._outside.abandon(generation, [message.decode() for message in pending])


@dataclass(frozen=True)
class TwoPhaseSink(Sink):
    outside: Outside

    def describe(self) -> str:
        return "SimulatedSink"

    def create_writer(self) -> SinkWriter:
        return _Writer(self.outside)

    def create_committer(self) -> SinkCommitter:
        return _Committer(self.outside)


def build_job(shape: Shape, outside: Outside, slow_work: Callable[[int], None]) -> JobGraph:
    """The graph of the module's text. ``slow_work`` is called by the slow stage with each number of rows."""
    watermark = WatermarkSpec(operator_id="watermark", name="watermark", output_schema=INPUT, column=2, delay_us=0)
    count = _Spec(operator_id="count", name="count", make=lambda: CountOperator(shape.window))
    slow = _Spec(operator_id="slow", name="slow", make=lambda: SlowOperator(slow_work))
    vertices = (
        Vertex(0, "source", SourceSpec("source", "source", SplitSource(shape)), (watermark,), None),
        Vertex(1, "count", None, (count,), None),
        Vertex(2, "slow", None, (slow,), SinkSpec("sink", "sink", TwoPhaseSink(outside))),
    )
    edges = (Edge(0, 0, 1, EdgeKind.HASH, INPUT, (0,)), Edge(1, 1, 2, EdgeKind.HASH, OUTPUT, (0, 1)))
    return JobGraph(vertices, edges, PARALLELISM, MAX_PARALLELISM)


def _output(kinds: list[int], keys: list[int], values: list[int], counts: list[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(c, pa.int64()) for c in (kinds, keys, values, counts)], schema=OUTPUT)


def _table(schema: pa.Schema, rows: list[list[int]]) -> pa.RecordBatch:
    """Rows without their key group (the key is first) as a table sorted by key group."""
    columns = [pa.array([row[i] for row in rows], pa.int64()) for i in range(len(schema) - 1)]
    plain = pa.record_batch(columns, names=schema.names[1:])
    groups = pa.array(key_groups(plain, (0,), MAX_PARALLELISM), pa.int16())
    return pa.record_batch([groups, *columns], schema=schema).sort_by(KEY_GROUP_COLUMN)
