"""The vectorised form against the per-key form: the same processor and input, restores and rescales between forms and
backends, in the middle of passes of timers, too."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql.types import ArrayType, LongType, StringType, TimestampType

from penstock.operators.stateful import arrow_operator
from penstock.operators.stateful import operator as stateful_operator
from penstock.operators.stateful.arrow_processor import ArrowStatefulProcessor, ArrowStatefulProcessorHandle
from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.arrow_kit import FORMS, arrow_spec_of
from tests.support.operators.stateful_kit import OUTPUT, Fleet, struct
from tests.unit.operators.test_stateful_model import interrupted

register_pickle_by_value(sys.modules[__name__])

EXAMPLES = int(os.environ.get("PENSTOCK_STATEFUL_EXAMPLES", "8"))
SCRIPT = pa.schema([("id", pa.string()), ("what", pa.string()), ("n", pa.int64())])
STAMP = pa.timestamp("us", "UTC")
COLUMNS = [("v", pa.int64()), ("s", pa.string()), ("t", STAMP), ("a", pa.list_(pa.int64()))]


def made(numbers: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Values of the state, with nulls among them."""
    some = numbers.tolist()
    columns = [[n if n % 4 else None for n in some], [f"s{n}" for n in some], some, [[n, None] for n in some]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, (_, kind) in zip(columns, COLUMNS, strict=True)],
        names=[name for name, _ in COLUMNS],
    )


class Scripted(ArrowStatefulProcessor):
    """Does what its rows say, the first rows of all keys together, then the second ones; tells what there is behind
    each."""

    ttl_ms: int | None = None

    def init(self, handle: ArrowStatefulProcessorHandle) -> None:
        self.handle = handle
        schema = struct(v=LongType(), s=StringType(), t=TimestampType(), a=ArrayType(LongType()))
        self.value = handle.getValueState("value", schema, self.ttl_ms)

    def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:  # noqa: N802, N803
        assert sorted(set(owners.tolist())) == list(range(keys.num_rows))
        assert keys.column(0).take(pa.array(owners)).equals(rows.column("id"))
        seen: dict[int, int] = {}
        turns = []
        for owner in owners.tolist():
            seen[owner] = seen.get(owner, -1) + 1
            turns.append(seen[owner])
        for turn in range(max(turns) + 1):
            here = np.flatnonzero(np.array(turns) == turn)
            yield self.turn(keys, owners[here], rows.take(pa.array(here)))

    def turn(self, keys: pa.RecordBatch, owners: Any, rows: pa.RecordBatch) -> pa.RecordBatch:
        what, numbers = np.array(rows.column("what").to_pylist()), rows.column("n").to_numpy()
        updates, cleared = what == "update", np.zeros(keys.num_rows, np.bool_)
        self.value.update(made(numbers[updates]), owners[updates])
        cleared[owners[what == "clear"]] = True
        self.value.clear(cleared)
        self.handle.registerTimers(numbers[what == "register"], owners[what == "register"])
        self.handle.deleteTimers(numbers[what == "delete"], pa.array(owners[what == "delete"]))
        return self.told(keys, owners, rows.column("what").to_pylist(), numbers)

    def told(self, keys: pa.RecordBatch, owners: Any, *words: Any) -> pa.RecordBatch:
        chosen = pa.array(owners)
        values = self.value.get().take(chosen).to_pylist()
        lines = zip(*words, self.value.exists()[owners], values, strict=True)
        return pa.RecordBatch.from_arrays(
            [keys.column(0).take(chosen), pa.array([repr(line) for line in lines], pa.string())], schema=OUTPUT
        )

    def handleExpiredTimers(self, keys: Any, moments: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:  # noqa: N802, N803
        """Timers set off later ones, and delete some that are due now."""
        assert keys.num_rows == len(moments) == len(set(keys.column(0).to_pylist()))
        yield self.told(keys, np.arange(len(moments)), moments.tolist())
        self.handle.registerTimers(max(timerValues.getCurrentWatermarkInMs(), 0) + 7000, moments % 3 == 0)
        fives = np.flatnonzero(moments % 5 == 0)
        self.handle.deleteTimers(moments[fives] + 1, fives)
        self.handle.deleteTimers(moments[fives] + 2, fives.tolist())
        self.value.update(made(moments[moments % 2 == 0]), moments % 2 == 0)


class Limited(Scripted):
    ttl_ms = 100


keys = st.sampled_from(["a", "b", "c", "dd", None])
moments = st.integers(0, 40)
ops = st.one_of(
    st.tuples(st.sampled_from(["update", "clear", "read"]), moments),
    st.tuples(st.sampled_from(["register", "register", "delete"]), moments),
)
batches = st.lists(st.tuples(keys, ops), min_size=1, max_size=14)
restarts = st.tuples(st.integers(1, 3), st.sampled_from(["memory", "rocksdb"]), st.sampled_from(FORMS))
scripts = st.lists(st.tuples(batches, st.integers(0, 60), st.none() | restarts), min_size=1, max_size=6)


def batch_of(lines: list[tuple[str | None, tuple[str, int]]]) -> pa.RecordBatch:
    columns = [[key for key, _ in lines], [op for _, (op, _) in lines], [n for _, (_, n) in lines]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCRIPT, strict=True)], schema=SCRIPT
    )


def by_key(rows: list[dict[str, Any]]) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row["said"])
    return found


def fleet_of(processor: Scripted, mode: TimeMode, form: str) -> Fleet:
    return Fleet(arrow_spec_of(processor, mode, form, input_schema=SCRIPT))


@settings(max_examples=EXAMPLES)
@given(steps=scripts, cut=st.integers(0, 4))
def test_event_time_goes_as_key_by_key(steps: list[Any], cut: int) -> None:
    """Blocks of three timers; a snapshot in the middle of a pass goes on exactly there, in either form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_operator, "_FIRST", 3)
        patch.setattr(arrow_operator, "_MOST", 3)
        expected = fleet_of(Scripted(), TimeMode.EVENT_TIME, "per key")
        fleet = fleet_of(Scripted(), TimeMode.EVENT_TIME, "arrow")
        watermark_us = 0
        for lines, pause, restart in steps:
            batch = batch_of(lines)
            assert by_key(fleet.process(batch)) == by_key(expected.process(batch))
            watermark_us += (pause // 6 + 1) * 1000
            due = expected.advance(watermark_us)
            if restart is None:
                fired = fleet.advance(watermark_us)
            else:
                fleet.watermark_us = watermark_us
                *where, form = restart
                fleet.spec = arrow_spec_of(Scripted(), TimeMode.EVENT_TIME, form, input_schema=SCRIPT)
                fleet, fired = interrupted(fleet, watermark_us, cut, *where)
            assert by_key(fired) == by_key(due)
            assert fleet.tables() == expected.tables()
        fleet.close()
        expected.close()


@settings(max_examples=EXAMPLES)
@given(steps=scripts)
def test_processing_time_and_time_to_live_go_as_key_by_key(steps: list[Any]) -> None:
    """Without timers in the middle of a slice: key by key they would fire where a slice takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stateful_operator, "_SLICE_S", math.inf)
        compare_by_the_clock(steps)


def compare_by_the_clock(steps: list[Any]) -> None:
    expected = fleet_of(Limited(), TimeMode.PROCESSING_TIME, "per key")
    fleet = fleet_of(Limited(), TimeMode.PROCESSING_TIME, "arrow")
    for lines, pause_ms, restart in steps:
        now_ms = expected.now_ms + pause_ms
        assert by_key(fleet.tick(now_ms)) == by_key(expected.tick(now_ms))
        if restart is not None:
            *where, form = restart
            fleet.spec = arrow_spec_of(Limited(), TimeMode.PROCESSING_TIME, form, input_schema=SCRIPT)
            fleet = fleet.restarted(*where)
        batch = batch_of(lines)
        assert by_key(fleet.process(batch)) == by_key(expected.process(batch))
        assert fleet.tables()["__timers"] == expected.tables()["__timers"]
    for _ in range(130):
        fleet.tick(fleet.now_ms + 1000)
    assert not any(fleet.tables().values()), "what nobody can see any more is gone"
    fleet.close()
    expected.close()
