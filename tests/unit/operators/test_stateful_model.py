"""The handle of transformWithState against a model of dicts: every operation, in any order, over restores and rescales
between both state backends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from penstock.operators.stateful import operator as stateful_operator
from penstock.operators.stateful import timers as stateful_timers
from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.stateful_kit import LONG, TEXT, Fleet, spec_of

register_pickle_by_value(sys.modules[__name__])

EXAMPLES = int(os.environ.get("PENSTOCK_STATEFUL_EXAMPLES", "8"))

SCRIPT = pa.schema([("id", pa.string()), ("ops", pa.string())])


class Scripted(StatefulProcessor):
    """Does what its rows say, and yields what every operation gave."""

    ttl_ms: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", LONG, self.ttl_ms)
        self.list = handle.getListState("list", LONG, self.ttl_ms)
        self.map = handle.getMapState("map", TEXT, LONG, self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            for op in json.loads(row.ops):
                yield Row(id=key[0], said=json.dumps([op, self.do(*op)]))

    def do(self, what: str, *arguments: Any) -> Any:
        match what:
            case "value":
                return [self.value.exists(), self.value.get()]
            case "update":
                return self.value.update((arguments[0],))
            case "clear value":
                return self.value.clear()
            case "list":
                return [self.list.exists(), list(self.list.get())]
            case "append":
                return self.list.appendList([(one,) for one in arguments])
            case "put":
                return self.list.put([(one,) for one in arguments])
            case "clear list":
                return self.list.clear()
            case "map":
                return [self.map.exists(), sorted(self.map.iterator(), key=repr)]
            case "keys":
                return [sorted(self.map.keys(), key=repr), sorted(self.map.values())]
            case "get":
                return [self.map.containsKey((arguments[0],)), self.map.getValue((arguments[0],))]
            case "set":
                return self.map.updateValue((arguments[0],), (arguments[1],))
            case "remove":
                return self.map.removeKey((arguments[0],))
            case "clear map":
                return self.map.clear()
            case "register":
                return self.handle.registerTimer(arguments[0])
            case "delete":
                return self.handle.deleteTimer(arguments[0])
            case "timers":
                return list(self.handle.listTimers())
        raise AssertionError(what)

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """A timer sets off a later one, or deletes the key's last one."""
        moment = expiredTimerInfo.getExpiryTimeInMs()
        timers = list(self.handle.listTimers())
        assert moment in timers
        if moment % 3 == 0:
            self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 7)
        if moment % 5 == 0 and timers[-1] != moment:
            self.handle.deleteTimer(timers[-1])
        self.list.appendValue((moment,))
        yield Row(id=key.id, said=json.dumps(["fired", moment, timers]))


class Limited(Scripted):
    ttl_ms = 100


class Model:
    """One key's state. ``ttl_ms``: as the variables'."""

    def __init__(self, ttl_ms: int | None) -> None:
        self.ttl_ms = ttl_ms
        self.value: tuple[int, int | None] | None = None
        self.list: list[tuple[int, int | None]] = []
        self.map: dict[str | None, tuple[int, int | None]] = {}
        self.timers: set[int] = set()

    def do(self, now_ms: int, what: str, *arguments: Any) -> Any:
        until = None if self.ttl_ms is None else now_ms + self.ttl_ms

        def lives(entry: tuple[int, int | None]) -> bool:
            return entry[1] is None or entry[1] > now_ms

        value = self.value[0] if self.value is not None and lives(self.value) else None
        values = [entry[0] for entry in self.list if lives(entry)]
        entries = {key: entry[0] for key, entry in self.map.items() if lives(entry)}
        match what:
            case "value":
                return [value is not None, None if value is None else [value]]
            case "update":
                self.value = arguments[0], until
            case "clear value":
                self.value = None
            case "list":
                return [bool(values), [[one] for one in values]]
            case "append":
                self.list += [(one, until) for one in arguments]
            case "put":
                self.list = [(one, until) for one in arguments]
            case "clear list":
                self.list = []
            case "map":
                pairs = sorted((((key,), (one,)) for key, one in entries.items()), key=repr)
                return [bool(entries), [[list(key), list(one)] for key, one in pairs]]
            case "keys":
                return [[list(key) for key in sorted(((k,) for k in entries), key=repr)],
                        [[one] for one in sorted(entries.values())]]  # fmt: skip
            case "get":
                found = entries.get(arguments[0])
                return [found is not None, None if found is None else [found]]
            case "set":
                self.map[arguments[0]] = arguments[1], until
            case "remove":
                self.map.pop(arguments[0], None)
            case "clear map":
                self.map = {}
            case "register":
                self.timers.add(arguments[0])
            case "delete":
                self.timers.discard(arguments[0])
            case "timers":
                return sorted(self.timers)
        return None

    def fire(self, until: int) -> list[Any]:
        """A pass of its timers: those that are due when it begins."""
        fired, waiting = [], sorted(one for one in self.timers if one <= until)
        for moment in waiting:
            if moment not in self.timers:
                continue
            timers = sorted(self.timers)
            if moment % 3 == 0:
                self.timers.add(until + 7)
            if moment % 5 == 0 and timers[-1] != moment:
                self.timers.discard(timers[-1])
            self.timers.discard(moment)
            self.list.append((moment, None))
            fired.append(["fired", moment, timers])
        return fired


keys = st.sampled_from(["a", "b", "c", "dd", None])
small = st.integers(0, 9)
map_keys = st.sampled_from(["", "x", "yy", None])
moments = st.integers(0, 400)
state_ops = st.one_of(
    *(st.tuples(st.just(what)) for what in ("value", "list", "map", "keys", "clear value", "clear list", "clear map")),
    st.tuples(st.just("update"), small),
    st.tuples(st.just("append"), small),
    st.tuples(st.just("append"), small, small),
    st.tuples(st.just("put"), small),
    st.tuples(st.just("put"), small, small, small),
    st.tuples(st.just("get"), map_keys),
    st.tuples(st.just("set"), map_keys, small),
    st.tuples(st.just("remove"), map_keys),
)
timer_ops = st.one_of(
    st.tuples(st.just("register"), moments),
    st.tuples(st.just("register"), moments),
    st.tuples(st.just("delete"), moments),
    st.tuples(st.just("timers")),
)


def script(ops: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    batch = st.lists(st.tuples(keys, st.lists(ops, min_size=1, max_size=6)), min_size=1, max_size=8)
    restart = st.tuples(st.integers(1, 3), st.sampled_from(["memory", "rocksdb"]))
    return st.lists(st.tuples(batch, st.integers(0, 80), st.none() | restart), min_size=1, max_size=7)


def batch_of(lines: list[tuple[str | None, list[Any]]]) -> pa.RecordBatch:
    ops = [json.dumps(line[1]) for line in lines]
    return pa.RecordBatch.from_arrays(
        [pa.array([line[0] for line in lines], pa.string()), pa.array(ops)], schema=SCRIPT
    )


def said_by(rows: list[dict[str, Any]], key: str | None) -> list[Any]:
    return [json.loads(row["said"]) for row in rows if row["id"] == key]


@pytest.mark.parametrize("processor", [Scripted(), Limited()], ids=["for ever", "100 ms"])
@settings(max_examples=EXAMPLES)
@given(steps=script(state_ops), cut=st.integers(0, 4))
def test_state_is_what_a_dict_would_hold(processor: Scripted, steps: list[Any], cut: int) -> None:
    """A step of the operator is one key; restarts come in the middle of a slice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateful_operator, "_SLICE_S", 0.0)
        fleet = Fleet(spec_of(processor, TimeMode.PROCESSING_TIME, input_schema=SCRIPT))
        models: dict[str | None, Model] = {}
        for lines, pause_ms, restart in steps:
            fleet.tick(fleet.now_ms + pause_ms)
            said = fleet.process(batch_of(lines), None if restart is None else cut)
            if restart is not None:
                fleet = fleet.restarted(*restart)
                said += fleet.output
            for key in dict.fromkeys(key for key, _ in lines):
                model = models.setdefault(key, Model(processor.ttl_ms))
                ops = [op for one, some in lines if one == key for op in some]
                assert said_by(said, key) == [[list(op), model.do(fleet.now_ms, *op)] for op in ops]
        if processor.ttl_ms is not None:
            for _ in range(130):
                fleet.tick(fleet.now_ms + 1000)
            assert not any(fleet.tables().values()), "what nobody can see any more is gone"
        fleet.close()


@settings(max_examples=EXAMPLES)
@given(steps=script(timer_ops), cut=st.integers(0, 6))
def test_timers_fire_once_whenever_a_snapshot_is_restored(steps: list[Any], cut: int) -> None:
    """Timers fire one per step, in blocks of three; a snapshot taken between two steps of a pass goes on exactly
    there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateful_operator, "_SLICE_S", 0.0)
        patch.setattr(stateful_timers, "_AT_ONCE", 3)
        fleet = Fleet(spec_of(Scripted(), TimeMode.EVENT_TIME, input_schema=SCRIPT))
        models: dict[str | None, Model] = {}
        watermark = 0
        for lines, pause, restart in steps:
            said = fleet.process(batch_of(lines))
            for key in dict.fromkeys(key for key, _ in lines):
                model = models.setdefault(key, Model(None))
                ops = [op for one, some in lines if one == key for op in some]
                assert said_by(said, key) == [[list(op), model.do(0, *op)] for op in ops]
            watermark += pause + 1
            before = len(fleet.output)
            fleet.watermark_us = watermark * 1000
            if restart is None:
                fleet.advance(watermark * 1000)
                fired = fleet.output[before:]
            else:
                fleet, fired = interrupted(fleet, watermark * 1000, cut, *restart)
            for key, model in models.items():
                assert said_by(fired, key) == model.fire(watermark)
        tables = fleet.tables()
        assert {(row["id"], row["__expires_ms"]) for row in tables["__timers"]} == {
            (key, moment) for key, model in models.items() for moment in model.timers
        }
        fleet.close()


def interrupted(
    fleet: Fleet, watermark_us: int, cut: int, parallelism: int, backend: str
) -> tuple[Fleet, list[dict[str, Any]]]:
    """The watermark rises; after ``cut`` steps there is a snapshot, from which all goes on. What had been yielded by
    then, and what was since."""
    passes = [(operator, operator.advance(watermark_us)) for operator in fleet.operators]
    yielded: list[dict[str, Any]] = []
    left = cut
    for _, steps in passes:
        while left and (batch := next(steps, None)) is not None:
            yielded += batch.to_pylist()
            left -= 1
    states = fleet.stored()
    for _, steps in passes:
        for _batch in steps:
            pass
    again = fleet.restarted(parallelism, backend, states)
    return again, yielded + again.output
