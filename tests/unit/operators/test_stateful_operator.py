"""transformWithState operators: what a processor sees, its errors, time, and the initial state."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    TimestampType,
)

from penstock.errors import FunctionError, NotSupported, PlanChanged
from penstock.operators.join.static_rows import StaticRows
from penstock.operators.stateful import operator as stateful_operator
from penstock.operators.stateful import timers as stateful_timers
from penstock.operators.stateful.declaration import InitialState
from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.stateful_kit import LONG, Fleet, rows, spec_of, struct

register_pickle_by_value(sys.modules[__name__])

SECOND_US = 1_000_000


class Processor(StatefulProcessor):
    """Runs functions of the test: ``on_rows(self, key, rows, timers)`` and ``on_timer(self, key, timers, moment)``."""

    def __init__(
        self,
        on_rows: Callable[..., Any] = lambda *_: [],
        on_init: Callable[..., Any] = lambda *_: None,
        on_timer: Callable[..., Any] = lambda *_: [],
        on_initial: Callable[..., Any] = lambda *_: None,
    ) -> None:
        self.on_rows, self.on_init, self.on_timer, self.on_initial = on_rows, on_init, on_timer, on_initial

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.on_init(self, handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        return iter(self.on_rows(self, key, rows, timerValues))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        return iter(self.on_timer(self, key, timerValues, expiredTimerInfo.getExpiryTimeInMs()))

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        self.on_initial(self, key, initialState, timerValues)


def said(key: Any, *values: Any) -> Row:
    return Row(id=key[0], said=repr(values[0] if len(values) == 1 else values))


def answers(fleet: Fleet, *lines: tuple[Any, ...]) -> list[Any]:
    return [eval(row["said"]) for row in fleet.process(rows(*lines))]


def test_the_plan_names_what_a_processor_keeps() -> None:
    prefix = "by key, until the processor deletes it: "
    assert spec_of(Processor()).keeps == f"{prefix}nothing"
    assert spec_of(Processor(), TimeMode.EVENT_TIME).keeps == f"{prefix}timers until they are due"
    counted = Processor(on_init=lambda self, handle: handle.getValueState("n", LONG))
    assert spec_of(counted).keeps == f"{prefix}n (value)"


# -- what it sees -----------------------------------------------------------------------------------------------------


def test_frames_have_the_types_and_indexes_that_sparks_worker_gives_them() -> None:
    schema = pa.schema([("id", pa.string()), ("i", pa.int16()), ("f", pa.float32()), ("t", pa.timestamp("us", "UTC"))])

    def look(self: Any, key: Any, frames: Iterator[pd.DataFrame], timers: Any) -> Iterator[pd.DataFrame]:
        [frame] = frames
        frame["more"] = 1  # its own: no warning, no other key's
        yield pd.DataFrame(
            {"id": [key[0]], "said": [repr((list(frame.index), [str(k) for k in frame.dtypes], list(frame["i"])))]}
        )

    fleet = Fleet(spec_of(Processor(look), pandas=True, input_schema=schema))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["b", "a", "b"]), pa.array([1, 2, 3], pa.int16()), pa.array([1.5, 2, 3], pa.float32()),
         pa.array([0, 1, 2], schema.field("t").type)], schema=schema,
    )  # fmt: skip
    found = {row["id"]: eval(row["said"]) for row in fleet.process(batch)}
    kinds = ["object", "int64", "float64", "datetime64[ns]", "int64"]
    assert found == {"a": ([0], kinds, [2]), "b": ([0, 1], kinds, [1, 3])}
    fleet.close()


def test_state_of_every_type_comes_back_as_spark_gives_it() -> None:
    """Like Spark 4.3's own engine: naive local datetimes, Rows for structs, copies of lists."""
    schema = struct(
        t=TimestampType(), d=DateType(), n=DecimalType(10, 2), b=BinaryType(), a=ArrayType(IntegerType()),
        m=MapType(StringType(), IntegerType()), s=struct(x=IntegerType(), y=StringType()), f=DoubleType(),
    )  # fmt: skip
    given = (
        datetime(2024, 1, 1, 12), date(2024, 2, 2), Decimal("1.5"), b"x", [1, 2], {"a": 1}, (1, "z"), np.float64(2.5),
    )  # fmt: skip

    def remember(self: Any, key: Any, lines: Any, timers: Any) -> Iterator[Row]:
        before = self.state.get()
        if before is None:
            values = [*given]
            values[4] = [1, 2]
            self.state.update(tuple(values))
            values[4].append(3)
            assert self.state.get() == self.state.get()
        yield said(key, self.state.get())

    fleet = Fleet(spec_of(Processor(remember, lambda self, h: setattr(self, "state", h.getValueState("s", schema)))))
    row = (datetime(2024, 1, 1, 12), date(2024, 2, 2), Decimal("1.50"), b"x", [1, 2], {"a": 1}, Row(x=1, y="z"), 2.5)
    for _ in range(2):
        [line] = fleet.process(rows(("a", 1, 0)))
        assert line["said"] == repr(row)
        fleet = fleet.restarted(2, "rocksdb")
    fleet.close()


def test_null_values_are_state_and_cleared_state_is_not() -> None:
    def look(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        for line in lines:
            if line.n == 0:
                self.state.clear()
            else:
                self.state.update((None,))
            yield said(key, self.state.exists(), self.state.get())

    fleet = Fleet(spec_of(Processor(look, lambda self, h: setattr(self, "state", h.getValueState("s", LONG)))))
    assert answers(fleet, ("a", 1, 0)) == [(True, (None,))]
    assert answers(fleet, ("a", 0, 0)) == [(False, None)]
    assert fleet.tables() == {"s": [], "__waiting": []}
    fleet.close()


# -- errors -----------------------------------------------------------------------------------------------------------


def declare(*calls: tuple[Any, ...]) -> Callable[..., None]:
    def init(self: Any, handle: Any) -> None:
        for what, *arguments in calls:
            setattr(self, arguments[0].strip() or "s", getattr(handle, what)(*arguments))

    return init


VALUE = ("getValueState", "state", LONG)

REFUSED_INITS: dict[str, tuple[tuple[tuple[Any, ...], ...], type[Exception], str]] = {
    "twice": ((VALUE, VALUE), FunctionError, "DUPLICATE_STATE_VARIABLE_DEFINED.*state"),
    "reserved": ((("getValueState", "$x", LONG),), FunctionError, "RESERVED_CHARS.*name=\\$x"),
    "default": ((("getListState", "default", LONG),), FunctionError, "INVALID_NAME.*default"),
    "blank": ((("getListState", " x", LONG),), FunctionError, "INVALID_NAME"),
    "timers": ((("getListState", "__timers", LONG),), NotSupported, "state '__timers'.*another name"),
    "slash": ((("getValueState", "a/b", LONG),), NotSupported, "state 'a/b'"),
    "ttl": ((("getValueState", "x", LONG, 5),), FunctionError, "INCORRECT_TIME_MODE_TO_ASSIGN_TTL.*state=x"),
    "map key": (
        (("getMapState", "x", struct(k=ArrayType(LongType())), LONG),), NotSupported, "field k of the map key of",
    ),
    "no schema": ((("getValueState", "x", 5),), FunctionError, "schema of state x"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_INITS)
def test_what_init_must_not_declare_is_refused_when_the_query_is_compiled(name: str) -> None:
    calls, error, text = REFUSED_INITS[name]
    with pytest.raises(error, match=text):
        spec_of(Processor(on_init=declare(*calls)))


def test_a_time_to_live_must_be_positive() -> None:
    with pytest.raises(FunctionError, match="TTL_DURATION_MUST_BE_POSITIVE"):
        spec_of(Processor(on_init=declare(("getValueState", "x", LONG, -1))), TimeMode.PROCESSING_TIME)


@pytest.mark.parametrize("mode", TimeMode)
def test_a_time_to_live_of_nothing_is_none(mode: TimeMode) -> None:
    """Like Spark, in every time mode."""
    [variable] = spec_of(Processor(on_init=declare(("getListState", "x", LONG, 0))), mode).variables
    assert variable.ttl_ms is None


def out_of_init(call: Callable[[Any], Any]) -> Callable[..., None]:
    def init(self: Any, handle: Any) -> None:
        self.state = handle.getValueState("state", LONG)
        call(self)

    return init


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda self: self.state.exists(), "no grouping key is set"),
        (lambda self: self.handle.registerTimer(5), "register_timer with invalid handle state=PRE_INIT"),
        (lambda self: self.state.get(), "no grouping key is set"),
    ],
)
def test_what_needs_a_key_is_refused_in_init(call: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(FunctionError) as caught:
        spec_of(Processor(on_init=out_of_init(call)), TimeMode.EVENT_TIME)
    assert re.search(text, caught.value.message), "not in the traceback, where this very text stands"


def failing(call: Callable[[Any], Any]) -> Callable[..., Any]:
    def on_rows(self: Any, key: Any, lines: Any, timers: Any) -> Iterator[Row]:
        call(self)
        yield said(key, 1)

    return on_rows


ALL = declare(VALUE, ("getListState", "list", LONG), ("getMapState", "map", struct(k=LongType()), LONG))
WRONG_CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another type": (lambda p: p.state.update(("text",)), "field v of a state value is declared bigint.*str 'text'"),
    "a fraction": (lambda p: p.state.update((1.5,)), "declared bigint.*float 1.5"),
    "too large": (lambda p: p.state.update((2**63,)), "does not fit"),
    "too few fields": (lambda p: p.state.update(()), "0 fields was given, declared are 1"),
    "no tuple": (lambda p: p.state.update(5), "a state value is a tuple"),
    "null": (lambda p: p.state.update(None), "NULL_VALUE"),
    "an empty list": (lambda p: p.list.put([]), "EMPTY_LIST_VALUE.*StateName list"),
    "nothing to append": (lambda p: p.list.appendList([]), "EMPTY_LIST_VALUE"),
    "a null element": (lambda p: p.list.appendValue(None), "NULL_VALUE"),
    "a null map key": (lambda p: p.map.getValue(None), "NULL_VALUE.*StateName map"),
    "a wrong map key": (lambda p: p.map.containsKey(("x",)), "field k"),
    "state after init": (lambda p: p.handle.getValueState("late", LONG), "get_value_state with invalid handle state"),
    "deleting after init": (lambda p: p.handle.deleteIfExists("state"), "delete_if_exists with invalid handle state"),
    "timers without time": (lambda p: p.handle.registerTimer(5), "register_timer with invalid timeMode=NoTime"),
    "its own error": (lambda p: {}["missing"], "KeyError: 'missing'"),
    "the end of the process": (lambda p: sys.exit(3), "SystemExit: 3"),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_errors_name_the_operator_and_the_key(name: str) -> None:
    call, text = WRONG_CALLS[name]
    fleet = Fleet(spec_of(Processor(failing(call), ALL)))
    with pytest.raises(FunctionError) as caught:
        fleet.process(rows(("k1", 1, 0)))
    assert re.search(text, caught.value.message), "not in the traceback, where this very text stands"
    assert caught.value.operator == "tws (TransformWithState (P))"
    assert "(grouping key ('k1',))" in caught.value.message
    assert "failing" in caught.value.user_traceback or "on_rows" in caught.value.user_traceback


@pytest.mark.parametrize("moment", ["12", 12.5, None])
def test_a_timers_moment_is_a_whole_number(moment: Any) -> None:
    fleet = Fleet(spec_of(Processor(failing(lambda p: p.handle.registerTimer(moment))), TimeMode.EVENT_TIME))
    with pytest.raises(FunctionError) as caught:
        fleet.process(rows(("k1", 1, 1)))
    assert caught.value.message.startswith("TypeError: ")
    assert "object cannot be interpreted as an integer (grouping key ('k1',))" in caught.value.message


@pytest.mark.parametrize(
    ("pandas", "yielded", "text"),
    [
        (False, {"id": "x"}, "must yield pyspark.sql.Row, not dict"),
        (False, Row(id="x", said=5), "5"),
        (True, Row(id="x", said="y"), "must yield pandas.DataFrame, not Row"),
        (True, pd.DataFrame({"id": ["x"], "other": [1]}), "declared are \\['id', 'said'\\]"),
        (True, pd.DataFrame({"id": ["x"], "said": [{"a": 1}]}), "said|convert"),
    ],
)
def test_wrong_output_names_the_key_that_yielded_it(pandas: bool, yielded: Any, text: str) -> None:
    def on_rows(self: Any, key: Any, lines: Any, timers: Any) -> Iterator[Any]:
        good: Any = pd.DataFrame({"id": ["x"], "said": ["y"]}) if pandas else Row(id="x", said="y")
        yield yielded if key[0] == "bad" else good

    fleet = Fleet(spec_of(Processor(on_rows), pandas=pandas))
    with pytest.raises(FunctionError, match=text) as caught:
        fleet.process(rows(("a", 1, 0), ("bad", 1, 0), ("c", 1, 0)))
    assert "(grouping key ('bad',))" in caught.value.message


# -- time -------------------------------------------------------------------------------------------------------------


def timed(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
    for line in lines:
        self.handle.registerTimer(line.n)
    yield said(key, timers.getCurrentProcessingTimeInMs(), timers.getCurrentWatermarkInMs())


def fired(self: Any, key: Any, timers: Any, moment: int) -> Iterator[Row]:
    assert isinstance(key, Row)
    yield said(key, "fired", moment, list(self.handle.listTimers()))


def test_processing_time_timers_fire_when_the_clock_says_so() -> None:
    fleet = Fleet(spec_of(Processor(timed, on_timer=fired), TimeMode.PROCESSING_TIME), parallelism=2)
    fleet.tick(1000)
    assert sorted(answers(fleet, ("a", 1500, 0), ("b", 1200, 0), ("a", 1200, 0))) == [(1000, 0), (1000, 0)]
    assert fleet.tick(1199) == []
    assert min(at for one in fleet.operators if (at := one.wake_at_ms()) is not None) == 1200
    fleet = fleet.restarted(1, "rocksdb")
    assert fleet.operators[0].wake_at_ms() == 1200
    assert sorted(row["said"] for row in fleet.tick(1200)) == [
        "('fired', 1200, [1200, 1500])",
        "('fired', 1200, [1200])",
    ]
    assert fleet.operators[0].wake_at_ms() == 1500
    assert [row["said"] for row in fleet.tick(9000)] == ["('fired', 1500, [1500])"]
    assert fleet.operators[0].wake_at_ms() is None
    fleet.close()


def test_event_time_drops_late_rows_and_fires_at_the_watermark() -> None:
    fleet = Fleet(spec_of(Processor(timed, on_timer=fired), TimeMode.EVENT_TIME))
    assert answers(fleet, ("a", 5000, 1)) == [(0, 0)]
    fleet.advance(4999 * 1000 + 999)
    assert len(fleet.output) == 1
    assert [row["said"] for row in fleet.advance(5000 * 1000)] == ["('fired', 5000, [5000])"]
    assert (
        answers(fleet, ("a", 6000, 5 * SECOND_US), ("a", 7000, 5 * SECOND_US + 1), ("b", 8000, None)) == [(0, 5000)] * 2
    )
    assert fleet.operators[0].counters()["rows_dropped_late"] == 1
    assert [row["__expires_ms"] for row in fleet.tables()["__timers"]] == [7000, 8000]
    fleet = fleet.restarted(2, "memory")
    assert answers(fleet, ("a", 9000, 5 * SECOND_US)) == []
    fleet.close()


def test_a_timer_that_is_due_when_it_is_registered_fires_after_the_rows() -> None:
    """Like Spark: timers fire after the rows of their batch. A timer that its own handler registers for a past moment
    waits for the next batch, here the next turn, and does not hold the watermark."""

    def again(self: Any, key: Any, timers: Any, moment: int) -> Iterator[Row]:
        self.handle.registerTimer(moment + 1)
        yield said(key, moment)

    fleet = Fleet(spec_of(Processor(timed, on_timer=again), TimeMode.EVENT_TIME))
    fleet.advance(10 * SECOND_US)
    assert fleet.operators[0].wake_at_ms() is None
    answers(fleet, ("a", 4000, 11 * SECOND_US))
    for moment in range(4000, 4003):
        assert fleet.operators[0].wake_at_ms() == 0.0
        assert [row["said"] for row in fleet.tick(0)] == [str(moment)]
    assert [row["said"] for row in fleet.advance(12 * SECOND_US)] == ["4003"]
    assert [row["__expires_ms"] for row in fleet.tables()["__timers"]] == [4004]
    fleet.close()


def test_many_timers_due_at_once_leave_gaps_for_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pause is a consistent moment: what fired is out, what did not is stored."""
    monkeypatch.setattr(stateful_operator, "_SLICE_S", 0.0)
    monkeypatch.setattr(stateful_timers, "_AT_ONCE", 7)
    fleet = Fleet(spec_of(Processor(timed, on_timer=fired), TimeMode.EVENT_TIME))
    answers(fleet, *[(str(number), 1000 + number, 1) for number in range(30)])
    fleet.output.clear()
    seen = []
    for batch in fleet.operators[0].advance(20 * SECOND_US):
        seen += [row["id"] for row in batch.to_pylist()]
        stored = [row["id"] for row in fleet.tables()["__timers"]]
        assert sorted(seen + stored) == sorted(map(str, range(30)))
    assert seen == [str(number) for number in range(30)], "earliest first"
    fleet.close()


def test_state_of_another_time_mode_is_refused() -> None:
    fleet = Fleet(spec_of(Processor(timed), TimeMode.EVENT_TIME))
    states = fleet.stored()
    fleet.spec = replace(fleet.spec, time_mode=TimeMode.PROCESSING_TIME)
    with pytest.raises(PlanChanged, match="kept with timeMode EventTime, and the query has ProcessingTime"):
        fleet.restarted(1, "memory", states)


def test_keys_of_a_large_slice_are_prepared_as_many_as_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a barrier would wait for a conversion of all its rows."""

    def echo(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        total = (self.state.get() or (0,))[0] + sum(line.n for line in lines)
        self.state.update((total,))
        yield said(key, total)

    monkeypatch.setattr(stateful_operator, "_LEAST_KEYS", 2)
    monkeypatch.setattr(stateful_operator, "_MOST_KEYS", 16)
    fleet = Fleet(spec_of(Processor(echo, declare(VALUE))))
    [operator] = fleet.operators
    assert isinstance(operator, stateful_operator.TransformWithStateOperator)
    prepared = []
    split = operator._rows.split
    monkeypatch.setattr(operator._rows, "split", lambda batch, ends: prepared.append(len(ends)) or split(batch, ends))
    out = list(operator.process(rows(*[(f"k{n % 100}", n, None) for n in range(200)])))
    while operator.has_pending_rows():
        out += operator.collect()
    assert max(prepared) <= 16
    assert sum(prepared) >= 100
    expected = {f"k{n}": str(2 * n + 100) for n in range(100)}
    assert {row["id"]: row["said"] for batch in out for row in batch.to_pylist()} == expected
    assert {row["id"]: row["v"] for row in fleet.tables()["state"]} == {key: int(n) for key, n in expected.items()}
    fleet.close()


def test_rows_that_come_meanwhile_join_those_of_their_key_and_the_turn_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for a slow processor waits for at most one round of all keys."""
    monkeypatch.setattr(stateful_operator, "_SLICE_S", 0.0)
    monkeypatch.setattr(stateful_operator, "_FEW_ROWS", 6)

    def echo(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        yield said(key, [line.n for line in lines])

    fleet = Fleet(spec_of(Processor(echo)))
    [operator] = fleet.operators
    assert not operator.accepts_more(), "nothing is under way"
    turns = [row for one in operator.process(rows(*[(name, 1, None) for name in "dbca"])) for row in one.to_pylist()]
    assert operator.accepts_more()
    assert list(operator.process(rows(("a", 2, None), ("d", 3, None), ("b", 4, None), ("a", 5, None)))) == []
    assert not operator.accepts_more(), "seven rows wait"
    while operator.has_pending_rows():
        turns += [row for one in operator.collect() for row in one.to_pylist()]
    assert [(row["id"], row["said"]) for row in turns] == [
        ("d", "[1]"),
        ("b", "[1, 4]"),
        ("c", "[1]"),
        ("a", "[1, 2, 5]"),
        ("d", "[3]"),
    ]
    fleet.close()


@pytest.mark.parametrize(("rows_per_key", "turns"), [(1, 9), (100, 21)])
def test_a_unit_is_shorter_where_few_rows_wait(monkeypatch: pytest.MonkeyPatch, rows_per_key: int, turns: int) -> None:
    """A millisecond a key: 8 ms, or 20, and the key that was begun."""

    def count(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        yield said(key, len(list(lines)))

    now_s = [0.0]
    monkeypatch.setattr(stateful_operator, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    monkeypatch.setattr(stateful_operator, "_LEAST_KEYS", 64)
    fleet = Fleet(spec_of(Processor(count)))
    [operator] = fleet.operators
    assert isinstance(operator, stateful_operator.TransformWithStateOperator)
    handed = operator._rows.input_items

    def slow(lines: Any) -> Iterator[Any]:
        now_s[0] += 1 / 1024
        return handed(lines)

    monkeypatch.setattr(operator._rows, "input_items", slow)
    batch = rows(*[(f"k{n % 64}", n, None) for n in range(64 * rows_per_key)])
    assert [output.num_rows for output in operator.process(batch)] == [turns]
    fleet.close()


def test_preparing_that_takes_long_is_not_done_for_key_after_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside busy neighbours everything takes long: the fixed costs of a unit must not be paid for single keys then."""

    def echo(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        yield said(key, sum(line.n for line in lines))

    now_s = [0.0]
    monkeypatch.setattr(stateful_operator, "time", SimpleNamespace(perf_counter=lambda: now_s[0]))
    fleet = Fleet(spec_of(Processor(echo)))
    [operator] = fleet.operators
    assert isinstance(operator, stateful_operator.TransformWithStateOperator)
    prepared = []
    split = operator._rows.split

    def slow_split(batch: pa.RecordBatch, ends: Sequence[int]) -> list[Any]:
        now_s[0] += 0.03
        prepared.append(len(ends))
        return split(batch, ends)

    monkeypatch.setattr(operator._rows, "split", slow_split)
    fleet.process(rows(*[(f"k{n}", n, None) for n in range(320)]))
    assert prepared == [stateful_operator._LEAST_KEYS] * (320 // stateful_operator._LEAST_KEYS)
    fleet.close()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_slow_processor_holds_up_a_barrier_for_one_key(monkeypatch: pytest.MonkeyPatch, parallelism: int) -> None:
    """Halfway through a slice some keys are done, with all of their rows, state and output. The rows of the other keys
    are state, and continue from the snapshot."""
    monkeypatch.setattr(stateful_operator, "_SLICE_S", 0.0)

    def look(self: Any, key: Any, lines: Iterator[Row], timers: Any) -> Iterator[Row]:
        seen = (self.state.get() or (0,))[0]
        assert timers.getCurrentWatermarkInMs() == 5000
        for line in lines:
            seen += line.n
            yield said(key, seen)
        self.state.update((seen,))

    fleet = Fleet(spec_of(Processor(look, declare(VALUE)), TimeMode.EVENT_TIME))
    fleet.advance(5 * SECOND_US)
    [operator] = fleet.operators
    names = [None if number == 7 else f"k{number}" for number in range(10)]
    batch = rows(*[(name, 10**turn, None) for turn in range(3) for name in names])
    done = [row for one in operator.process(batch) for row in one.to_pylist()]
    assert len(done) == 3, "three rows of one key"
    for _ in range(3):
        done += [row for one in operator.collect() for row in one.to_pylist()]
    assert (operator.has_pending_rows(), operator.may_hold_rows()) == (True, True)
    states = fleet.stored()
    while operator.has_pending_rows():
        list(operator.collect())
    assert fleet.tables()["__waiting"] == []
    again = fleet.restarted(parallelism, "memory", states)
    found = sorted(((row["id"], row["said"]) for row in done + again.output), key=repr)
    assert found == sorted(((name, text) for name in names for text in ("1", "11", "111")), key=repr)
    assert len(again.tables()["state"]) == 10
    again.close()


@pytest.mark.parametrize("steps", range(9))
def test_timers_of_the_clock_fire_in_the_middle_of_a_slice(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """They do not wait for keys that have had no turn: a whole pass of them comes between two units, and behind every
    step all goes on from a snapshot."""
    monkeypatch.setattr(stateful_operator, "_SLICE_S", 0.0)
    fleet = Fleet(spec_of(Processor(timed, on_timer=fired), TimeMode.PROCESSING_TIME))
    [operator] = fleet.operators
    fleet.process(rows(*[(f"early{number}", 1000, 0) for number in range(3)]))
    late = rows(*[(f"late{number}", 9000, 0) for number in range(6)])
    fleet._kept(operator.process(late))  # one of the keys
    fleet.now_ms = 1000
    for _ in range(steps):
        fleet._kept(operator.collect())
    kinds = ["fired" if "fired" in row["said"] else row["id"][:-1] for row in fleet.output]
    assert kinds == (["early"] * 3 + ["late"] + ["fired"] * 3 + ["late"] * 5)[: 4 + steps]
    assert operator.has_pending_rows() == (steps < 8)

    again = fleet.restarted(2, "memory")
    again.tick(1000)
    assert [row["__expires_ms"] for row in again.tables()["__timers"]] == [9000] * 6
    found = sorted((row["id"], "fired" in row["said"]) for row in fleet.output + again.output)
    assert found == sorted(
        [*((f"early{n}", timer) for n in range(3) for timer in (False, True)), *((f"late{n}", False) for n in range(6))]
    )
    again.close()


# -- the initial state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pandas", [False, True])
def test_the_initial_state_is_there_before_any_row_and_only_once(pandas: bool) -> None:
    schema = pa.schema([("id", pa.string()), ("id", pa.string()), ("start", pa.int64())])
    table = pa.Table.from_arrays([pa.array(["a", "b", "b"])] * 2 + [pa.array([1, 10, 100])], schema=schema)
    initial = StaticRows("initial state", schema, lambda: table)
    initial.load(1 << 20)

    def load(self: Any, key: Any, state: Any, timers: Any) -> None:
        more = sum(state["start"]) if pandas else state.start
        self.state.update(((self.state.get() or (0,))[0] + int(more),))

    def look(self: Any, key: Any, lines: Any, timers: Any) -> Iterator[Any]:
        answer = said(key, self.state.get())
        yield pd.DataFrame([answer.asDict()]) if pandas else answer

    processor = Processor(look, declare(VALUE), on_initial=load)
    spec = spec_of(processor, pandas=pandas, initial=InitialState(rows=initial, keys=(0,), data=(1, 2)))
    fleet = Fleet(spec, parallelism=3)
    assert [(row["id"], row["v"]) for row in fleet.tables()["state"]] == [("a", 1), ("b", 110)]
    fleet = fleet.restarted(2, "rocksdb")
    found = fleet.process(rows(("a", 1, 0), ("b", 1, 0), ("c", 1, 0)))
    assert sorted((row["id"], row["said"]) for row in found) == [("a", "(1,)"), ("b", "(110,)"), ("c", "None")]
    fleet.close()
