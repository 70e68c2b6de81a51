"""Stateful code that does what its rows say, of which Spark and Penstock have to say the same.

A row carries operations as JSON, ``[what, number]``; what is written is one of the values of ``POOLS``, by number. Each
row is worked on for itself, so that it does not matter how rows are cut into calls; only ``in_groups``, for which Spark
has rules by call, needs rows of different keys in a file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

LONG_MS, SHORT_MS = 10**9, 1
"""Times to live: one that is never over, and one that is over when the next file comes."""
POOLS: dict[str, tuple[Any, ...]] = {
    "tinyint": (0, -128, 127, None),
    "smallint": (1, -32768, 32767, None),
    "int": (0, 7, -(2**31), 2**31 - 1, None),
    "bigint": (0, -1, 2**62, -(2**63), None),
    "float": (0.5, -1.25, float("inf"), None),
    "double": (1.5, float("nan"), 1e-300, float("-inf"), None),
    "string": ("", "a", "ß 😀", "a\0b", " b ", None),
    "boolean": (True, False, None),
    "binary": (b"", b"\x00\xff", b"abc", None),
    "date": (date(2024, 2, 29), date(1969, 12, 31), date(1, 1, 1), None),
    "timestamp": (datetime(2024, 3, 31, 1, 30), datetime(1969, 12, 31, 23, 59, 59, 999999), None),
    "decimal(10,2)": (Decimal("1.50"), Decimal("-12345678.99"), Decimal(0), None),
    "array<int>": ([], [1, None, 3], None),
    "map<string,int>": ({}, {"a": 1, "b": None}, None),
    "struct<x:int,y:string>": (Row(x=1, y="z"), Row(x=None, y=None), None),
    "array<struct<x:int>>": ([Row(x=1), Row(x=None)], [], None),
}
"""By Spark type, what state of that type is given."""
SEEN = ("ts", "k", "part", "d", "m", "day", "list", "st")
"""Columns of the input."""
KEYED = tuple(name for name in POOLS if name.partition("<")[0] not in ("array", "map"))
"""Types that keys may have."""


def value(types: Sequence[str], number: int) -> tuple[Any, ...]:
    """A value of so many fields."""
    return tuple(POOLS[one][(number + place) % len(POOLS[one])] for place, one in enumerate(types))


def _named(prefix: str, types: Sequence[str]) -> dict[str, str]:
    return {f"{prefix}{place}": one for place, one in enumerate(types)}


def ddl(types: Sequence[str], prefix: str) -> str:
    return ", ".join(f"{prefix}{place} {one}" for place, one in enumerate(types))


def shown(row: Any) -> str:
    """Return the types and values of a row's columns as the user's code gets them.

    pandas chooses the type of array elements by all rows that are converted at once.
    """
    return " ".join(f"{name}:{type(row[name]).__name__}:{_listed(row[name])!r}" for name in SEEN)


def _listed(what: Any) -> Any:
    return what.tolist() if isinstance(what, np.ndarray) else what


WIDER = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double"}
"""As what a field may be declared later, by both engines."""
VARIABLES = ("value", "list", "map")


@dataclass(frozen=True)
class Change:
    """Different declaration of the same state by a later start.

    Attributes:
        at: the number of the first file that it reads.
        front, back: types of fields that every value gets before and behind those that it had.
        wider: fields that were there have wider types, where there are.
        more: there is one more variable.
        deleted: one of ``VARIABLES`` that is given to ``deleteIfExists``, or none.
    """

    at: int
    front: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    wider: bool = False
    more: bool = False
    deleted: str = ""


@dataclass(frozen=True)
class Shape:
    """Declared state, by the types of its fields, and the output.

    Attributes:
        ttl_ms: of all state.
        echo: types of the output's last columns.
        told: what an initial state's rows look like is state, too.
        change: this is what a later start declares.
        early: the change is declared already and nothing is made of it: new fields are null, and not looked at.
    """

    value: tuple[str, ...] = ("bigint",)
    element: tuple[str, ...] = ("string",)
    map_key: tuple[str, ...] = ("string",)
    map_value: tuple[str, ...] = ("int",)
    ttl_ms: int | None = None
    echo: tuple[str, ...] = ()
    told: bool = False
    change: Change | None = None
    early: bool = False

    def fields(self, types: Sequence[str]) -> dict[str, str]:
        """Return the fields, by name, of a value that began with these types."""
        if self.change is None:
            return _named("v", types)
        kept = [WIDER.get(one, one) if self.change.wider else one for one in types]
        return _named("f", self.change.front) | _named("v", kept) | _named("b", self.change.back)

    def made(self, types: Sequence[str], number: int) -> tuple[Any, ...]:
        """One of these values."""
        if self.early and self.change is not None:
            return (None,) * len(self.change.front) + value(types, number) + (None,) * len(self.change.back)
        return value(tuple(self.fields(types).values()), number)

    def looked_at(self, stored: Any) -> Any:
        """Return the fields of a value that both declarations have, as a tuple; None if there is no value."""
        if stored is None or not self.early or self.change is None:
            return stored if stored is None else tuple(stored)
        return stored[len(self.change.front) : len(stored) - len(self.change.back)]

    def schema(self, types: Sequence[str]) -> str:
        return ", ".join(f"{name} {one}" for name, one in self.fields(types).items())

    @property
    def variables(self) -> dict[str, str]:
        """The kinds of the variables that are declared, by name."""
        deleted = self.change.deleted if self.change and not self.early else ""
        extra = {"told": "map"} if self.told else {}
        return (
            {one: one for one in VARIABLES if one != deleted}
            | extra
            | ({"more": "value"} if self.change and self.change.more else {})
        )

    @property
    def output(self) -> str:
        return ", ".join(["k string", "said string", *([ddl(self.echo, "e")] if self.echo else [])])


class InRows(StatefulProcessor):
    """``pause_s``: for which every call sleeps, so that it can be interrupted."""

    def __init__(self, shape: Shape, pause_s: float = 0.0) -> None:
        self.shape, self.pause_s = shape, pause_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        shape = self.shape
        self.handle = handle
        self.value = self.list = self.map = None
        if "value" in shape.variables:
            self.value = handle.getValueState("value", shape.schema(shape.value), shape.ttl_ms)
        if "list" in shape.variables:
            self.list = handle.getListState("list", shape.schema(shape.element), shape.ttl_ms)
        if "map" in shape.variables:
            keys, values = ddl(shape.map_key, "k"), shape.schema(shape.map_value)
            self.map = handle.getMapState("map", keys, values, shape.ttl_ms)
        if shape.told:
            self.told = handle.getMapState("told", "row int", "said string", shape.ttl_ms)
        if "more" in shape.variables:
            self.more = handle.getValueState("more", "n bigint, s string", shape.ttl_ms)
        if shape.change is not None and shape.change.deleted and not shape.early:
            handle.deleteIfExists(shape.change.deleted)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """The rows of a key come in any order, and so each has a variable of its own."""
        self.begin(key, initialState, timerValues)

    def begin(self, key: Any, row: Any, times: Any) -> None:
        self.told.updateValue((int(row.n),), (f"{tuple(key)!r} {shown(row)}",))
        for what, number in json.loads(row.ops):
            self.do(what, number, times)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        time.sleep(self.pause_s)
        for row in rows:
            yield from self.answers(key, row, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield from self.expired(key, timerValues, expiredTimerInfo)

    def answers(self, key: Any, row: Any, times: Any) -> Iterator[Row]:
        for what, number in json.loads(row.ops):
            seen = shown(row) if what == "row" else self.do(what, number, times)
            yield self.line(key, [what, number, seen], int(row.n))

    def line(self, key: Any, what: Any, number: int) -> Row:
        echoed = {f"e{place}": one for place, one in enumerate(value(self.shape.echo, number))}
        return Row(k=repr(tuple(key)), said=repr(what), **echoed)

    def do(self, what: str, number: int, times: Any) -> Any:
        shape = self.shape
        match what:
            case "value":
                return [self.value.exists(), shape.looked_at(self.value.get())]
            case "update":
                return self.value.update(shape.made(shape.value, number))
            case "clear value":
                return self.value.clear()
            case "list":
                return [self.list.exists(), [shape.looked_at(one) for one in self.list.get()]]
            case "append":
                return self.list.appendValue(shape.made(shape.element, number))
            case "append list":
                return self.list.appendList([shape.made(shape.element, number + i) for i in range(1 + number % 3)])
            case "put":
                return self.list.put([shape.made(shape.element, number + i) for i in range(1 + number % 4)])
            case "clear list":
                return self.list.clear()
            case "map":
                entries = [(inner, shape.looked_at(one)) for inner, one in self.map.iterator()]
                return [self.map.exists(), sorted(entries, key=repr)]
            case "keys":
                values = [shape.looked_at(one) for one in self.map.values()]
                return [sorted(self.map.keys(), key=repr), sorted(values, key=repr)]
            case "get":
                inner = value(shape.map_key, number)
                found = self.map.getValue(inner)
                return [self.map.containsKey(inner), type(found).__name__, shape.looked_at(found)]
            case "set":
                return self.map.updateValue(value(shape.map_key, number), shape.made(shape.map_value, number))
            case "remove":
                return self.map.removeKey(value(shape.map_key, number))
            case "clear map":
                return self.map.clear()
            case "told":
                return sorted(self.told.iterator(), key=repr)
            case "more":
                before = self.more.get()
                self.more.update(value(("bigint", "string"), number))
                return before
            case "watermark":
                return times.getCurrentWatermarkInMs()
            case "register":
                return self.handle.registerTimer(times.getCurrentWatermarkInMs() + 1 + number * 700)
            case "delete":
                return self.handle.deleteTimer(min(self.handle.listTimers(), default=0))
            case "timers":
                return sorted(self.handle.listTimers())
            case "soon":
                return self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 1)
        raise AssertionError(what)

    def expired(self, key: Any, times: Any, info: Any) -> Iterator[Row]:
        """Timers of event time set off later ones, delete the key's last one, and change state. The others fire when
        they like, and so they only tell that they do."""
        if self.shape.ttl_ms is not None:
            yield self.line(key, "soon", 0)
            return
        moment, timers = info.getExpiryTimeInMs(), sorted(self.handle.listTimers())
        if moment % 3 == 0:
            self.handle.registerTimer(times.getCurrentWatermarkInMs() + 7_001)
        if moment % 5 == 0 and timers[-1] != moment:
            self.handle.deleteTimer(timers[-1])
        if self.list is not None:
            self.list.appendValue(self.shape.made(self.shape.element, moment))
        if moment % 7 == 0 and self.value is not None:
            self.value.clear()
        if moment % 7 == 0 and self.map is not None:
            self.map.removeKey(value(self.shape.map_key, moment))
        yield self.line(key, ["fired", moment, timers, times.getCurrentWatermarkInMs()], moment)


class InPandas(InRows):
    """The same over frames."""

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        for _, row in initialState.astype(object).iterrows():
            self.begin(key, row, timerValues)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # type: ignore[override]  # noqa: N802, N803
        time.sleep(self.pause_s)
        for frame in rows:
            for _, row in frame.astype(object).iterrows():
                yield self.frame(list(self.answers(key, row, timerValues)))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # type: ignore[override]  # noqa: N802, N803
        yield self.frame(list(self.expired(key, timerValues, expiredTimerInfo)))

    def frame(self, lines: list[Row]) -> pd.DataFrame:
        """Structs are dicts here."""
        names = ["k", "said", *(f"e{place}" for place in range(len(self.shape.echo)))]
        return pd.DataFrame([[_plain(one) for one in line] for line in lines], columns=names)


def _plain(what: Any) -> Any:
    if isinstance(what, Row):
        return what.asDict()
    return [_plain(one) for one in what] if isinstance(what, list) else what


class Tally(StatefulProcessor):
    """Behind another processor: the how manieth row of its kind this is, whatever the order."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for _ in rows:
            n = (self.seen.get() or (0,))[0] + 1
            self.seen.update((n,))
            yield Row(kind=key[0], n=n)


@dataclass(frozen=True)
class InGroups:
    """Function for ``applyInPandasWithState``. Each call that changes the state also sets a timeout, and each timeout
    changes the state: otherwise Spark's result depends on its calls."""

    shape: Shape
    timed: bool
    pause_s: float = 0.0

    def __call__(self, key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        time.sleep(self.pause_s)
        if state.hasTimedOut:
            before = state.getOption
            if len(repr(before)) % 2:
                state.remove()
            else:
                self.update(state, 3)
            yield self.frame(key, [["timeout", before, state.getCurrentWatermarkMs()]])
            return
        for frame in frames:
            for ops in frame["ops"]:
                yield self.frame(key, [[op, self.do(state, *op)] for op in json.loads(ops)])

    def frame(self, key: Any, lines: list[Any]) -> pd.DataFrame:
        return pd.DataFrame({"k": [repr(tuple(key))] * len(lines), "said": [repr(line) for line in lines]})

    def do(self, state: Any, what: str, number: int) -> Any:
        match what:
            case "value":
                return [state.exists, state.getOption]
            case "watermark":
                return [state.getCurrentWatermarkMs() if self.timed else None, state.hasTimedOut]
            case "update":
                return self.update(state, number)
            case "clear value":
                return state.remove()
        raise AssertionError(what)

    def update(self, state: Any, number: int) -> None:
        state.update(value(self.shape.value, number))
        if self.timed:
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 1 + number * 700)
