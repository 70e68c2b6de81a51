"""Runs a compiled aggregation with snapshots, restores and rescales in the middle, and compares with Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.model.job_graph import EdgeKind, JobGraph, OperatorSpec, SinkSpec
from penstock.model.key_groups import owned_range
from penstock.operators.base import Operator, OperatorContext, RestoredState, ScalarPart
from penstock.state.arrays import plain_type
from penstock.state.hashing import key_groups
from penstock.state.memory_table import MemoryBackend
from penstock.state.table import StoredRows
from tests.support.planner.compiled_query import compile_query

SCHEMA = """ts timestamp, k string, g int, b boolean, i int, l long, f float, d double, e double, dec decimal(9,2),
big decimal(30,4), text string, raw binary, day date, st struct<x:int,y:double,z:string>, ar array<double>"""
ROWS = 700
START = datetime(2024, 3, 9, 22, 0, tzinfo=UTC)
MAX_PARALLELISM = 128
END_OF_TIME_US = 2**62
SINK = SinkSpec("sink-0", "Sink", object())  # type: ignore[arg-type]

Plan = Callable[[DataFrame], DataFrame]


def make_rows() -> pa.Table:
    """Event times rise with a jitter of 5 s; every other column holds nulls, doubles hold -0.0, NaN and infinities in
    some groups and finite numbers only in others."""
    random = np.random.default_rng(11)

    def pick(choices: Sequence[Any], holes: float = 0.1) -> list[Any]:
        chosen = random.integers(0, len(choices), ROWS)
        return [None if hole else choices[at] for at, hole in zip(chosen, random.random(ROWS) < holes, strict=True)]

    jitter = random.uniform(-2.5, 2.5, ROWS)
    finite = random.normal(1e6, 3.0, ROWS).tolist()
    wild = pick([0.0, -0.0, math.nan, 1.5, -2.25, 1e10, math.inf, -math.inf])
    keys = random.integers(0, 6, ROWS).tolist()
    structs = [{"x": 1, "y": math.nan, "z": "a"}, {"x": 1, "y": -0.0, "z": None}, {"x": None, "y": 0.0, "z": "b"},
               {"x": 1, "y": 0.0, "z": None}]  # fmt: skip
    lists = [[], [1.0], [1.0, None], [math.nan], [-0.0], [0.0], [1.0, 2.0], [None]]
    columns = {
        "ts": pa.array(
            [START + timedelta(seconds=n * 6.3 + jitter[n]) for n in range(ROWS)], pa.timestamp("us", "UTC")
        ),
        "k": pa.array([None if key == 5 else "abcde"[key] for key in keys]),
        "g": pa.array(pick([1, 2, 3], 0.2), pa.int32()),
        "b": pa.array(pick([True, False])),
        "i": pa.array(pick([*range(-50, 50), 2**31 - 1, -(2**31)]), pa.int32()),
        "l": pa.array(pick([*range(-9, 9), 2**40, 2**53 + 1]), pa.int64()),
        "f": pa.array(pick([0.5, -1.25, 3.0, math.nan, -0.0]), pa.float32()),
        "d": pa.array([finite[n] if keys[n] != 2 else wild[n] for n in range(ROWS)], pa.float64()),
        "e": pa.array([7.25 if keys[n] == 1 else random.random() for n in range(ROWS)], pa.float64()),
        "dec": pa.array(pick([Decimal(int(x)) / 100 for x in random.integers(-9999, 9999, 99)]), pa.decimal128(9, 2)),
        "big": pa.array(pick([Decimal(10) ** 24, Decimal("-0.0001"), Decimal(5)]), pa.decimal128(30, 4)),
        "text": pa.array(pick(["", "a", "ab", "ü", "\U0001f600", "\uffee"])),
        "raw": pa.array(pick([b"", b"\x00", b"\xff", b"\x7f\x01"])),
        "day": pa.array(pick([datetime(1969, 1, 1).date(), datetime(2024, 2, 29).date()]), pa.date32()),
        "st": pa.array(pick(structs), pa.struct([("x", pa.int32()), ("y", pa.float64()), ("z", pa.string())])),
        "ar": pa.array(pick(lists), pa.list_(pa.float64())),
    }
    return pa.table(columns)


def watermarked(df: DataFrame, delay: str = "10 seconds") -> DataFrame:
    return df.withWatermark("ts", delay)


def compiled(stream: DataFrame, mode: str) -> JobGraph:
    return compile_query(stream, sink=SINK, output_mode=mode, parallelism=1, max_parallelism=MAX_PARALLELISM)


class Job:
    """The operators of a compiled line, at a parallelism that may change with each restore; rows of an edge go to the
    subtask of their key group."""

    def __init__(self, graph: JobGraph, backend: Callable[[], Any] = MemoryBackend) -> None:
        self.output: list[pa.RecordBatch] = []
        self.late = self.held = 0  # rows that were late, and rows of state when it was closed
        self._backend = backend
        self._closing = ExitStack()
        self._edges = {edge.consumer: edge for edge in graph.edges}
        self._specs = [vertex.operators for vertex in graph.vertices]
        source = graph.vertices[0].source
        assert source is not None
        self.schema = source.source.schema
        self._open(1)

    def _open(self, parallelism: int) -> None:
        self._parallelism = parallelism
        self._vertices = [[self._chain(specs, n) for n in range(parallelism)] for specs in self._specs]

    def _chain(self, specs: Sequence[OperatorSpec], subtask: int) -> list[Operator]:
        chain = []
        for spec in specs:
            operator = spec.create()
            backend = self._closing.enter_context(closing(self._backend()))
            operator.open(OperatorContext(spec.operator_id, subtask, self._parallelism, MAX_PARALLELISM, backend))
            self._closing.callback(operator.close)
            chain.append(operator)
        return chain

    def feed(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Every batch by the first subtask of the source, with its watermark; then the epoch ends."""
        for batch in batches:
            self._process(0, 0, 0, batch)
            self._advance(0, None)
        self._finish_epoch()

    def drain(self) -> None:
        self._advance(0, END_OF_TIME_US)
        self._finish_epoch()

    def restored(self, parallelism: int) -> None:
        """Take a snapshot, forget everything, and go on from it with so many subtasks."""
        states = [[[op.snapshot() for op in chain] for chain in subtasks] for subtasks in self._vertices]
        before = [owned_range(n, self._parallelism, MAX_PARALLELISM) for n in range(self._parallelism)]
        stored = [
            [[{name: list(capture.base(0, MAX_PARALLELISM - 1)) for name, capture in state.tables.items()}
              for state in chain] for chain in subtasks]
            for subtasks in states
        ]  # fmt: skip
        watermarks = [[self._generated(chain) for chain in subtasks] for subtasks in self._vertices]
        self.close()
        self._open(parallelism)
        for vertex, subtasks in enumerate(self._vertices):
            for subtask, chain in enumerate(subtasks):
                first, last = owned_range(subtask, parallelism, MAX_PARALLELISM)
                for place, operator in enumerate(chain):
                    tables: dict[str, list[StoredRows]] = {}
                    parts = []
                    for number, (low, high) in enumerate(before):
                        for name, pieces in stored[vertex][number][place].items():
                            cut = (of_groups(piece, first, last) for piece in pieces)
                            tables.setdefault(name, []).extend(StoredRows(piece, False) for piece in cut)
                        low, high = max(low, first), min(high, last)
                        if low <= high or vertex == 0:
                            parts.append(ScalarPart(number, low, high, states[vertex][number][place].scalars))
                    operator.restore(RestoredState(tables, parts, rescaled=parallelism != len(before)))
        known = [mark for marks in watermarks[:1] for mark in marks if mark is not None]
        if known:
            self._advance(0, min(known))

    def _generated(self, chain: Sequence[Operator]) -> int | None:
        marks = [mark for operator in chain if (mark := operator.emitted_watermark()) is not None]
        return marks[-1] if marks else None

    def _process(self, vertex: int, subtask: int, place: int, batch: pa.RecordBatch) -> None:
        chain = self._vertices[vertex][subtask]
        if place < len(chain):
            for result in chain[place].process(batch):
                assert result.num_rows > 0
                self._process(vertex, subtask, place + 1, result)
        elif vertex + 1 == len(self._vertices):
            self.output.append(batch)
        else:
            edge = self._edges[vertex + 1]
            if edge.kind is EdgeKind.FORWARD:
                self._process(vertex + 1, subtask, 0, batch)
                return
            groups = key_groups(batch, edge.key_columns, MAX_PARALLELISM)
            for consumer in range(self._parallelism):
                first, last = owned_range(consumer, self._parallelism, MAX_PARALLELISM)
                part = batch.filter(pa.array((groups >= first) & (groups <= last)))
                if part.num_rows:
                    self._process(vertex + 1, consumer, 0, part)

    def _advance(self, vertex: int, watermark_us: int | None) -> None:
        """All subtasks of a vertex reach a watermark before the next vertex does."""
        reached: list[int | None] = []
        for subtask, chain in enumerate(self._vertices[vertex]):
            mark = watermark_us
            for place, operator in enumerate(chain):
                if mark is not None:
                    for result in operator.advance(mark):
                        self._process(vertex, subtask, place + 1, result)
                generated = operator.emitted_watermark()
                mark = mark if generated is None or mark == END_OF_TIME_US else generated
            reached.append(mark)
        if vertex == 0 and watermark_us != END_OF_TIME_US:
            reached = reached[:1]  # only the first subtask reads
        if vertex + 1 < len(self._vertices) and None not in reached:
            self._advance(vertex + 1, min(mark for mark in reached if mark is not None))

    def _finish_epoch(self) -> None:
        for vertex, subtasks in enumerate(self._vertices):
            for subtask, chain in enumerate(subtasks):
                for place, operator in enumerate(chain):
                    for result in operator.finish_epoch():
                        self._process(vertex, subtask, place + 1, result)

    def counter(self, name: str) -> int:
        chains = (chain for subtasks in self._vertices for chain in subtasks)
        return sum(operator.counters().get(name, 0) for chain in chains for operator in chain)

    def close(self) -> None:
        self.late += self.counter("rows_dropped_late")
        self.held = self.counter("state_rows")
        self._closing.close()


def of_groups(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    groups = batch.column(0).to_numpy()
    return batch.filter(pa.array((groups >= first) & (groups <= last)))


def run(
    stream: DataFrame,
    rows: pa.Table,
    mode: str = "append",
    size: int = 97,
    backend: Callable[[], Any] = MemoryBackend,
) -> tuple[pa.Table, Job]:
    """All rows, from one subtask to two and back, and the drain."""
    job = Job(compiled(stream, mode), backend)
    batches = rows.select(job.schema.names).cast(job.schema).to_batches(max_chunksize=size)
    third = max(1, len(batches) // 3)
    job.feed(batches[:third])
    job.restored(2)
    job.feed(batches[third : 2 * third])
    job.restored(1)
    job.feed(batches[2 * third :])
    job.drain()
    job.close()
    return pa.Table.from_batches(job.output), job


def close_to(found: Any, expected: Any) -> bool:
    """Doubles to 1e-9 relative; NaN equals NaN; lists are compared in order."""
    if isinstance(expected, float) and isinstance(found, float):
        if math.isnan(expected):
            return math.isnan(found)
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(close_to, found, expected))
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(close_to(found[name], expected[name]) for name in expected)
    return type(found) is type(expected) and bool(found == expected)


def assert_same_rows(found: pa.Table, expected: pa.Table, keys: int) -> None:
    """The same rows, told apart by their first columns."""
    assert found.schema.names == expected.schema.names
    sides = []
    for table in (found, expected):
        by_key = {repr(normal([*row.values()][:keys])): row for row in rows_of(table)}
        assert len(by_key) == table.num_rows, "a key comes twice"
        sides.append(by_key)
    assert sides[0].keys() == sides[1].keys()
    for key, row in sides[1].items():
        for name, value in row.items():
            assert close_to(sides[0][key][name], value), f"{name} of {key}: {sides[0][key][name]} is not {value}"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as tuples; dates and times of a column become integers if Python cannot represent some of them."""
    columns = []
    for column in table.columns:
        try:
            columns.append(column.to_pylist())
        except OverflowError:
            columns.append(column.cast(plain_type(column.type)).to_pylist())
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def normal(value: Any) -> Any:
    """Keys as Spark's batch has them, with -0.0 as 0.0: streams pass the first row on as it is."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, list):
        return [normal(item) for item in value]
    return {name: normal(item) for name, item in value.items()} if isinstance(value, dict) else value


def last_of_each(table: pa.Table, keys: int) -> pa.Table:
    """Return the last row of every key of an update-mode output."""
    rows = {repr(tuple(row.values())[:keys]): row for row in rows_of(table)}
    return pa.Table.from_pylist(list(rows.values()), table.schema)
