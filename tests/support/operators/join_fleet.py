"""A join of two streams as several subtasks, and beside it what Spark's rule says, a row at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.functions import BoundReference, Literal
from penstock.functions.logic.comparison import Comparison
from penstock.model.elements import END_OF_TIME_US
from penstock.model.key_groups import owned_range
from penstock.operators.base import Operator, OperatorContext, RestoredState, ScalarPart
from penstock.operators.join.pairs import PairCondition
from penstock.operators.join.side_state import ExpiryBound, JoinSide
from penstock.operators.join.stream_join import TABLES, StreamJoinKind, StreamJoinSpec
from penstock.state.hashing import groups_of
from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.table import StateBackend, StoredRows
from tests.support.operators.harness import UTC_STAMP, WINDOW
from tests.support.same_rows import canonical

SECOND = 1_000_000
GROUPS = 16
KEY, AT, WINDOW_AT, V, N = range(5)


def schema(prefix: str) -> pa.Schema:
    return pa.schema(
        [
            (f"{prefix}key", pa.float64()),
            (f"{prefix}at", UTC_STAMP),
            (f"{prefix}w", WINDOW),
            (f"{prefix}v", pa.int64()),
            (f"{prefix}n", pa.int64()),
        ]
    )


LEFT_SIDE, RIGHT_SIDE = (JoinSide(schema(p), len(schema(p)), (KEY,)) for p in ("", "r_"))
WITHIN = (ExpiryBound(AT, -5 * SECOND - 1_000), ExpiryBound(AT, -2 * SECOND))
"""For r_at between at - 2 s (exclusive) and at + 5 s: how long either side's rows are of use."""
V_LESS = Comparison("<", BoundReference(0, pa.int64()), BoundReference(1, pa.int64()))


def spec(
    left: JoinSide = LEFT_SIDE,
    right: JoinSide = RIGHT_SIDE,
    kept: tuple[bool, bool] = (False, False),
    *,
    semi: bool = False,
    conditional: bool = False,
    null_safe: bool = False,
) -> StreamJoinSpec:
    """``conditional``: and v < r_v."""
    left, right = replace(left, is_preserved=kept[0]), replace(right, is_preserved=kept[1])
    return StreamJoinSpec(
        operator_id="stream-join-0",
        name="Join",
        output_schema=pa.schema([*left.schema, *(() if semi else right.schema)]),
        kind=StreamJoinKind.SEMI if semi else StreamJoinKind.PAIRS,
        sides=(left, right),
        null_safe=(null_safe,) * len(left.keys),
        condition=PairCondition((V,), (V,), V_LESS) if conditional else None,
    )


def bounded(side: JoinSide, number: int) -> JoinSide:
    return replace(side, event_time=AT, bound=WITHIN[number])


def by_key(side: JoinSide, column: int) -> JoinSide:
    return replace(side, keys=(KEY, column), event_time=AT, bound=ExpiryBound(column, 0))


_POSITIVE = Comparison(">", BoundReference(V, pa.int64()), Literal(0, pa.int64()))
SIDES = bounded(LEFT_SIDE, 0), bounded(RIGHT_SIDE, 1)
SPECS = {
    "inner": spec(*SIDES, conditional=True),
    "inner for ever": spec(conditional=True),
    "inner, one side for ever": spec(bounded(LEFT_SIDE, 0), RIGHT_SIDE),
    "left outer": spec(*SIDES, (True, False), conditional=True),
    "right outer by the time": spec(by_key(LEFT_SIDE, AT), by_key(RIGHT_SIDE, AT), (False, True)),
    "full outer": spec(
        replace(SIDES[0], condition=_POSITIVE), replace(SIDES[1], condition=_POSITIVE), (True, True), conditional=True
    ),
    "full outer by the window": spec(by_key(LEFT_SIDE, WINDOW_AT), by_key(RIGHT_SIDE, WINDOW_AT), (True, True)),
    "semi": spec(*SIDES, semi=True, conditional=True),
    "semi without a condition": spec(*SIDES, semi=True, null_safe=True),
    "null-safe": spec(*SIDES, (True, True), null_safe=True),
}

Row = tuple[float | None, int | None, int]
"""Key, seconds of event time, v; whatever else there is follows from these."""


def batch(number: int, rows: Sequence[Row], begin: int = 0) -> pa.RecordBatch:
    """Rows of input ``number``, with numbers from ``begin`` on."""
    content = [
        (
            key,
            None if at is None else at * SECOND,
            None if at is None else {"start": at // 10 * 10 * SECOND, "end": (at // 10 + 1) * 10 * SECOND},
            v,
            begin + place,
        )
        for place, (key, at, v) in enumerate(rows)
    ]
    columns = [pa.array([row[at] for row in content], kind) for at, kind in enumerate(SIDES[number].schema.types)]
    return pa.RecordBatch.from_arrays(columns, schema=SIDES[number].schema)


@dataclass
class Kept:
    """A row that waits, in the model."""

    side: int
    values: tuple[Any, ...]
    key: tuple[Any, ...]
    group: int
    due_us: int | None
    matched: bool = False


class Model:
    """Spark's rule, a row at a time. ``reached``: by key group, how far event time has come."""

    def __init__(self, one: StreamJoinSpec) -> None:
        self.spec = one
        self.waiting: list[Kept] = []
        self.reached = [-(2**62)] * GROUPS
        self.late = 0

    def feed(self, side: int, row: tuple[Any, ...], at: int | None, group: int, watermark_us: int) -> list[Any]:
        own = self.spec.sides[side]
        if own.event_time is not None and at is not None and at * SECOND <= self.reached[group]:
            self.late += 1
            return []
        key = tuple(repr(canonical(row[column])) for column in own.keys)
        nulls = any(row[column] is None for column in own.keys)
        if (nulls and not all(self.spec.null_safe)) or (own.condition is not None and row[V] <= 0):
            return [self.padded(side, row)] if own.is_preserved else []
        found = [one for one in self.waiting if one.side != side and one.key == key and self.fits(side, row, one)]
        semi = self.spec.kind is StreamJoinKind.SEMI
        if semi and side == 1:
            self.waiting = [one for one in self.waiting if one not in found]
            result: list[Any] = [one.values for one in found]
        elif semi:
            result = [row] if found else []
        else:
            result = [(*row, *one.values) if side == 0 else (*one.values, *row) for one in found]
            for one in found:
                one.matched = True
        if semi and side == 0 and found:
            return result
        kept = Kept(side, row, key, group, self.due(own, at), bool(found))
        if kept.due_us is not None and kept.due_us <= watermark_us:
            return result + ([self.padded(side, row)] if own.is_preserved and not found else [])
        self.waiting.append(kept)
        return result

    def fits(self, side: int, row: tuple[Any, ...], one: Kept) -> bool:
        left, right = (row, one.values) if side == 0 else (one.values, row)
        return self.spec.condition is None or left[V] < right[V]

    def due(self, side: JoinSide, at: int | None) -> int | None:
        """Return the watermark from which on a row can be dropped."""
        if side.bound is None or at is None:
            return None
        time = (at // 10 + 1) * 10 if side.bound.column == WINDOW_AT else at
        return time * SECOND - side.bound.offset_us

    def padded(self, side: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
        nulls = (None,) * 5
        return (*row, *nulls) if side == 0 else (*nulls, *row)

    def advance(self, groups: range, watermark_us: int) -> list[Any]:
        for group in groups:
            self.reached[group] = max(self.reached[group], watermark_us)
        ends = watermark_us == END_OF_TIME_US
        gone = [
            one
            for one in self.waiting
            if one.group in groups
            and (
                one.due_us <= watermark_us
                if one.due_us is not None
                else ends and self.spec.sides[one.side].is_preserved
            )
        ]
        self.waiting = [one for one in self.waiting if one not in gone]
        return [
            self.padded(one.side, one.values)
            for one in gone
            if self.spec.sides[one.side].is_preserved and not one.matched
        ]


def texts(rows: Iterable[Any]) -> Counter[str]:
    return Counter(repr(tuple(map(canonical, row))) for row in rows)


class Fleet:
    """Subtasks side by side, each with a watermark of its own, and the model."""

    def __init__(self, one: StreamJoinSpec, backend: type[StateBackend] = MemoryBackend) -> None:
        self.spec = one
        self.model = Model(one)
        self.backend = backend
        self.backends: list[StateBackend] = []
        self.operators: list[Operator] = []
        self.watermarks: list[int] = []
        self.rows = 0
        self.output: list[tuple[Any, ...]] = []
        self.start(1, [])

    def start(self, parallelism: int, parts: Sequence[Any]) -> None:
        """Start the subtasks from the captures of all former ones, with their key groups."""
        self.watermarks = [-1] * parallelism
        for index in range(parallelism):
            backend = self.backend() if self.backend is MemoryBackend else RocksDBBackend(8 << 20)
            operator = self.spec.create()
            operator.open(OperatorContext("stream-join-0", index, parallelism, GROUPS, backend))
            first, last = owned_range(index, parallelism, GROUPS)
            own = [(n, max(first, low), min(last, high), state) for n, (low, high, state) in enumerate(parts)]
            own = [part for part in own if part[1] <= part[2]]
            pieces = {
                table: [StoredRows(r, False) for _, low, high, s in own for r in s.tables[table].base(low, high)]
                for table in TABLES
            }
            operator.restore(RestoredState(pieces, [ScalarPart(n, low, high, s.scalars) for n, low, high, s in own]))
            self.backends.append(backend)
            self.operators.append(operator)

    def stop(self) -> None:
        for closing in (*self.operators, *self.backends):
            closing.close()
        self.operators, self.backends = [], []

    def ranges(self) -> list[range]:
        bounds = [owned_range(index, len(self.operators), GROUPS) for index in range(len(self.operators))]
        return [range(first, last + 1) for first, last in bounds]

    def feed(self, side: int, rows: Sequence[Row]) -> None:
        given = batch(side, rows, self.rows)
        self.rows += len(rows)
        keys = [given.column(position) for position in self.spec.sides[side].keys]
        groups = groups_of(keys, len(rows), GROUPS).tolist()
        expected: list[Any] = []
        found: list[pa.RecordBatch] = []
        for index, (operator, own) in enumerate(zip(self.operators, self.ranges(), strict=True)):
            chosen = [place for place, group in enumerate(groups) if group in own]
            if not chosen:
                continue
            taken = given.take(pa.array(chosen))
            found += operator.process_input(side, taken)
            for place, values in zip(chosen, rows_of([taken]), strict=True):
                watermark_us = self.watermarks[index] * SECOND
                expected += self.model.feed(side, values, rows[place][1], groups[place], watermark_us)
        self.compare(found, expected)

    def advance(self, index: int, seconds: int) -> None:
        index %= len(self.operators)
        if seconds <= self.watermarks[index]:
            assert list(self.operators[index].advance(seconds * SECOND)) == [], "it only rises"
            return
        self.watermarks[index] = seconds
        self._advance(index, seconds * SECOND)

    def drain(self) -> None:
        for index in range(len(self.operators)):
            self._advance(index, END_OF_TIME_US)
            assert self.operators[index].emitted_watermark() == END_OF_TIME_US

    def _advance(self, index: int, watermark_us: int) -> None:
        found = list(self.operators[index].advance(watermark_us))
        self.compare(found, self.model.advance(self.ranges()[index], watermark_us))

    def rescale(self, parallelism: int) -> None:
        bounds = [(own[0], own[-1]) for own in self.ranges()]
        states = [operator.snapshot() for operator in self.operators]
        old = [*self.operators, *self.backends]
        self.operators, self.backends = [], []
        self.start(parallelism, [(*bound, state) for bound, state in zip(bounds, states, strict=True)])
        for closing in old:
            closing.close()

    def compare(self, found: Sequence[pa.RecordBatch], expected: Iterable[Any]) -> None:
        assert all(batch.schema == self.spec.output_schema for batch in found)
        rows = rows_of(found)
        assert texts(rows) == texts(expected)
        self.output += rows

    def check(self) -> None:
        """Check the waiting rows, their matches and the late rows against the model."""
        held = []
        for operator in self.operators:
            tables = operator.snapshot().tables
            for side, name in enumerate(TABLES):
                for row in (row for piece in tables[name].base(0, GROUPS - 1) for row in piece.to_pylist()):
                    number = next(value for column, value in row.items() if column in ("n", "r_n"))
                    held.append((side, number, row.get("__matched", None)))
        kept = [side.is_preserved for side in self.spec.sides]
        wanted = [(one.side, one.values[N], one.matched if kept[one.side] else None) for one in self.model.waiting]
        assert sorted(held) == sorted(wanted)
        assert sum(operator.counters()["state_rows"] for operator in self.operators) == len(held)


def rows_of(batches: Sequence[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
