"""Random stateful code and its input, of which Structured Streaming and Penstock have to say the same.

Files come one by one, each when the one before is through. In event time all rows of a file but its last one are no
newer than what was there before (see ``late_plans``), so that every row meets the watermark that the files before have
made, whoever counts. Rows of one key stay in order, as they stand in one file each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row

from tests.oracle.oracle_plans import START
from tests.oracle.scripted_processors import (
    KEYED,
    LONG_MS,
    POOLS,
    SHORT_MS,
    VARIABLES,
    Change,
    InGroups,
    InPandas,
    InRows,
    Shape,
    Tally,
    ddl,
)

DELAY = "30 seconds"
ADVANCES_S = (0, 5, 31, 200)
AGES_S = (12.0, 75.0, 900.0)
"""How far behind the newest event time rows may be."""
KEYS: dict[str, tuple[pa.DataType, Any]] = {
    "string": (pa.string(), lambda n: f"key{n}"),
    "bigint": (pa.int64(), lambda n: n * 10**15 - 3),
    "int": (pa.int32(), lambda n: n - 2),
    "double": (pa.float64(), lambda n: float("nan") if n == 1 else n / 4),
    "boolean": (pa.bool_(), lambda n: n % 2 == 0),
    "date": (pa.date32(), lambda n: date(1969, 12, 30) + timedelta(n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: START + timedelta(microseconds=n)),
    "decimal(10,2)": (pa.decimal128(10, 2), lambda n: Decimal(n) / 4),
    "binary": (pa.binary(), lambda n: bytes([n, 0])),
    "struct<x:int,y:string>": (pa.struct([("x", pa.int32()), ("y", pa.string())]), lambda n: {"x": n, "y": "ß"}),
}
"""By Spark type, key number n; the first column of each key is one of these types."""
SEEN_TYPES = (
    ("d", "double"), ("m", "decimal(10,2)"), ("day", "date"), ("list", "array<int>"), ("st", "struct<x:int,y:string>")
)  # fmt: skip
"""Columns that the user's code only looks at."""
ARROW = {
    "d": pa.float64(), "m": pa.decimal128(10, 2), "day": pa.date32(), "list": pa.list_(pa.int32()),
    "st": pa.struct([("x", pa.int32()), ("y", pa.string())]),
}  # fmt: skip
SILENT = "[]"
READS = ("row", "value", "list", "map", "keys", "get")
WRITES = ("update", "append", "append list", "put", "set", "set", "remove", "clear value", "clear list", "clear map")
INITIAL = (("update", "clear value"), ("append", "append list", "put"), ("set", "set", "remove"))
"""What the first, the second and the third row of a key's initial state may do."""
OF = {
    "value": ("value", "update", "clear value"),
    "list": ("list", "append", "append list", "put", "clear list"),
    "map": ("map", "keys", "get", "set", "remove", "clear map"),
}
"""Operations by the variable that they are about."""
TIMERS = ("register", "register", "register", "delete", "timers", "watermark")
FORMS = ("rows", "pandas", "groups")
TIMES = ("None", "EventTime", "ProcessingTime")


@dataclass(frozen=True)
class ProcessorPlan:
    """
    Attributes:
        form: of ``FORMS``.
        time: the time mode; of groups the timeout. With ``ProcessingTime`` all state has a time to live.
        keys: how many there are; ``skew`` of the rows have the first one.
        holes: share of nulls among the keys.
        parallelisms: of the runs on Penstock, which share the files. ``live``: one query, which is rescaled.
        kills: slots are killed, some milliseconds behind a file.
        pause_s: which a call takes on Penstock.
        chained: a second processor counts what the first one says.
        initial: so many keys, at most, have an initial state.
        change: both engines stop before a file, and go on with what is declared then.
    """

    form: str
    time: str
    key: str
    shape: Shape
    rows: int
    files: int
    keys: int
    skew: float
    holes: float
    seed: int
    parallelisms: tuple[int, ...] = (1,)
    live: bool = False
    kills: bool = False
    pause_s: float = 0.0
    alignment: str = "auto"
    backend: str = "memory"
    chained: bool = False
    initial: int = 0
    change: Change | None = None

    def shape_at(self, file: int) -> Shape:
        """Return the state variables that are declared when this file is read."""
        shape = replace(self.shape, told=self.initial > 0)
        return replace(shape, change=self.change) if self.change and file >= self.change.at else shape

    @property
    def schema(self) -> str:
        return (
            f"ts timestamp, k {self.key}, part int, ops string, n int, {', '.join(f'{c} {t}' for c, t in SEEN_TYPES)}"
        )

    @property
    def alone(self) -> bool:
        """A key has one row in a file: what is done then goes by calls."""
        return self.form == "groups" or self.time == "ProcessingTime"

    def operations(self, file: int) -> tuple[str, ...]:
        timed = self.time == "EventTime"
        if self.form == "groups":
            return ("value", "update", "update", "clear value", *(("watermark",) if timed else ()))
        extra = TIMERS if timed else ("soon", "watermark") if self.time == "ProcessingTime" else ()
        there = self.shape_at(file).variables
        extra = (*extra, *(one for one in ("told", "more") if one in there))
        lost = {one for variable in VARIABLES if variable not in there for one in OF[variable]}
        return (*(one for one in (*READS, *WRITES) if one not in lost), *extra)

    def tables(self) -> list[pa.Table]:
        """Files; without operations are the first one, the last row of each one, and with timers of processing time the
        whole last file: then Spark has had a batch for the timers of the one before."""
        random = np.random.default_rng(self.seed)
        kind, key = KEYS[self.key]
        reached, files = START, []
        for number in range(self.files):
            silent = number == 0 or (self.time == "ProcessingTime" and number == self.files - 1)
            count = 0 if silent else self.rows
            ages = random.random(count) * random.choice(AGES_S, count)
            times: list[Any] = [reached - timedelta(seconds=int(age)) for age in ages]
            times = [None if hole else one for one, hole in zip(times, random.random(count) < 0.05, strict=True)]
            reached += timedelta(seconds=int(random.choice(ADVANCES_S)))
            numbers = np.where(random.random(count) < self.skew, 0, random.integers(0, self.keys, count))
            holes = random.random(count) < self.holes
            names = [None if hole else key(int(n)) for n, hole in zip(numbers, holes, strict=True)]
            parts = random.integers(0, 2, count).tolist()
            scripts = [self._script(random, self.operations(number)) for _ in range(count)]
            body = list(zip(times, names, parts, scripts, random.integers(0, 100, count).tolist(), strict=True))
            lines = [*(_once(body) if self.alone else body), (reached, key(0), 9, SILENT, 0)]
            files.append(_table(lines, kind, random))
        return files

    def initial_table(self) -> pa.Table:
        """Write the initial state as a file; a key has up to three rows, which are independent."""
        random = np.random.default_rng(self.seed + 1)
        kind, key = KEYS[self.key]
        lines = list(self._initial_lines(random, key))
        return _table([lines[place] for place in random.permutation(len(lines))], kind, random)

    def _initial_lines(self, random: np.random.Generator, key: Any) -> Iterator[tuple[Any, ...]]:
        timers = {"EventTime": ("register",), "ProcessingTime": ("soon",)}.get(self.time, ())
        for number in range(self.initial):
            name = None if random.random() < self.holes else key(number)
            for part in (0, 9) if number == 0 else (int(random.integers(0, 2)),):
                for row, operations in enumerate(INITIAL[: int(random.integers(1, 4))]):
                    yield START, name, part, self._script(random, (*operations, *timers)), row

    def _script(self, random: np.random.Generator, operations: Sequence[str]) -> str:
        ops = random.choice(operations, int(random.integers(1, 5))).tolist()
        numbers = random.integers(0, 60, len(ops)).tolist()
        return json.dumps(list(zip(ops, numbers, strict=True)))

    def build(
        self,
        stream: DataFrame,
        pause_s: float = 0.0,
        initial: DataFrame | None = None,
        file: int = 0,
        *,
        early: bool = False,
    ) -> DataFrame:
        """
        Args:
            initial: of ``initial_table``, where there is one.
            file: the first one that the query reads.
            early: what is declared later is declared from the start on, and not made use of before.
        """
        shape, first = self.shape_at(file), None if initial is None else initial.groupBy("k", "part")
        if early and self.change and file < self.change.at:
            shape = replace(shape, change=self.change, early=True)
        timed = self.time == "EventTime"
        grouped = (stream.withWatermark("ts", DELAY) if timed else stream).groupBy("k", "part")
        if self.form == "groups":
            timeout = "EventTimeTimeout" if timed else "NoTimeout"
            function, state = InGroups(self.shape, timed, pause_s), ddl(self.shape.value, "v")

            def call(key: Any, frames: Any, state: Any) -> Any:
                return function(key, frames, state)

            return grouped.applyInPandasWithState(call, "k string, said string", state, "append", timeout)
        if self.form == "pandas":
            processor = InPandas(shape, pause_s)
            rows = grouped.transformWithStateInPandas(processor, shape.output, "Append", self.time, first)
        else:
            rows = grouped.transformWithState(InRows(shape, pause_s), shape.output, "Append", self.time, first)
        if not self.chained:
            return rows
        return rows.groupBy("said").transformWithState(Tally(), "kind string, n bigint", "Append", "None")


def _table(lines: Sequence[tuple[Any, ...]], key: pa.DataType, random: np.random.Generator) -> pa.Table:
    """``lines``: ts, k, part, ops, n; what is only looked at is drawn."""
    columns = [list(column) for column in zip(*lines, strict=True)]
    types = [pa.timestamp("us", "UTC"), key, pa.int32(), pa.string(), pa.int32()]
    arrays = [pa.array(column, one) for column, one in zip(columns, types, strict=True)]
    for name, one in SEEN_TYPES:
        pool = [item.asDict() if isinstance(item, Row) else item for item in POOLS[one]]
        chosen = random.integers(0, len(pool), len(lines))
        arrays.append(pa.array([pool[place] for place in chosen], ARROW[name]))
    return pa.table(arrays, names=["ts", "k", "part", "ops", "n", *ARROW])


def _once(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The first row of each key."""
    return list({repr(row[1:3]): row for row in reversed(rows)}.values())


FLAT = tuple(name for name in sorted(POOLS) if "<" not in name)
"""State of which ``applyInPandasWithState`` has on Spark; it fails over others."""
FRAGILE_KEYS = ("int", "bigint", "double", "timestamp")
"""If one of these is null in ``transformWithStateInPandas``, Spark's worker makes floats of the others, takes NaN's
state, or fails."""
types = st.lists(st.sampled_from(sorted(POOLS)), min_size=1, max_size=4).map(tuple)
flat = st.lists(st.sampled_from(FLAT), min_size=1, max_size=4).map(tuple)
keyed = st.lists(st.sampled_from(sorted(KEYED)), min_size=1, max_size=2).map(tuple)


@st.composite
def changes(draw: st.DrawFn, files: int) -> Change:
    """Draw changes that a restart permits: no other map keys, other types or fewer fields."""
    return Change(
        at=draw(st.integers(1, files - 1)),
        front=draw(st.lists(st.sampled_from(sorted(POOLS)), max_size=2).map(tuple)),
        back=draw(st.lists(st.sampled_from(sorted(POOLS)), max_size=2).map(tuple)),
        wider=draw(st.booleans()),
        more=draw(st.booleans()),
        deleted=draw(st.sampled_from(("", *VARIABLES))),
    )


@st.composite
def processor_plans(draw: st.DrawFn) -> ProcessorPlan:
    form = draw(st.sampled_from(FORMS))
    time = draw(st.sampled_from(TIMES[:2] if form == "groups" else TIMES))
    shape = Shape(
        value=draw(flat if form == "groups" else types),
        element=draw(types),
        map_key=draw(keyed),
        map_value=draw(types),
        ttl_ms=draw(st.sampled_from((SHORT_MS, LONG_MS))) if time == "ProcessingTime" else None,
        echo=draw(types) if form != "groups" and draw(st.booleans()) else (),
    )
    key = draw(st.sampled_from(sorted(KEYS)))
    holes = draw(st.sampled_from((0.0, 0.15)))
    files = draw(st.sampled_from((3, 5)))
    return ProcessorPlan(
        form,
        time,
        key,
        shape,
        rows=draw(st.sampled_from((2, 20, 120))),
        files=files,
        keys=draw(st.sampled_from((1, 3, 40))),
        skew=draw(st.sampled_from((0.0, 0.8))),
        holes=0.0 if form == "pandas" and key in FRAGILE_KEYS else holes,
        seed=draw(st.integers(0, 1 << 16)),
        parallelisms=tuple(draw(st.lists(st.sampled_from((1, 2, 3)), min_size=1, max_size=3))),
        live=draw(st.booleans()),
        kills=draw(st.booleans()),
        pause_s=draw(st.sampled_from((0.0, 0.003))),
        alignment=draw(st.sampled_from(("auto", "aligned", "unaligned"))),
        backend=draw(st.sampled_from(("memory", "rocksdb"))),
        chained=form != "groups" and time == "None" and draw(st.booleans()),
        initial=0 if form == "groups" else draw(st.sampled_from((0, 1, 30))),
        change=None if form == "groups" else draw(st.none() | changes(files)),
    )


def processor_kinds(plan: ProcessorPlan) -> list[str]:
    """Return the features of a plan, for the table."""
    shape = plan.shape
    fields = {*shape.value, *(() if plan.form == "groups" else (*shape.element, *shape.map_key, *shape.map_value))}
    told = [
        f"processor in {plan.form}",
        f"time mode {plan.time}",
        f"keys of {plan.key}",
        *(f"state of {f}" for f in fields),
    ]
    runs = "runs: 1" if len(plan.parallelisms) == 1 else f"runs: several, {'live' if plan.live else 'restarted'}"
    told += [runs, f"alignment {plan.alignment}", f"{'with' if plan.kills else 'without'} kills", plan.backend]
    told += ["chained processors"] if plan.chained else []
    told += ["initial state"] if plan.initial else []
    return [*told, *(_changed(plan.change) if plan.change else [])]


def _changed(change: Change) -> list[str]:
    parts = {
        "fields added": change.front or change.back,
        "fields wider": change.wider,
        "a variable added": change.more,
        "a variable deleted": change.deleted,
    }
    return ["declared otherwise later", *(f"later: {what}" for what, is_so in parts.items() if is_so)]
