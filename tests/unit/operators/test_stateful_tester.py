"""The operator against PySpark's own ``TwsTester``: output, state and timers, step by step."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.tws_tester import TwsTester

from penstock.operators.stateful.variables import TimeMode
from tests.support.operators.stateful_kit import LONG, TEXT, Fleet, rows, spec_of

register_pickle_by_value(sys.modules[__name__])

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SESSION_MS = 10_000


class Both(StatefulProcessor):
    """The same processor over Rows and over frames; the parts say what a row and a timer give."""

    def __init__(self, pandas: bool) -> None:
        self.pandas = pandas

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        if self.pandas:
            rows = (line for frame in rows for _, line in frame.iterrows())
        yield from self.given(key, [self.on_rows(key, list(rows), timerValues)])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield from self.given(key, [self.on_timer(expiredTimerInfo.getExpiryTimeInMs(), timerValues)])

    def given(self, key: Any, answers: list[Any]) -> Iterator[Any]:
        if self.pandas:
            yield pd.DataFrame({"id": [key[0]] * len(answers), "said": [str(answer) for answer in answers]})
        else:
            yield from (Row(id=key[0], said=str(answer)) for answer in answers)

    def on_rows(self, key: Any, lines: list[Any], times: Any) -> Any:
        raise NotImplementedError

    def on_timer(self, moment: int, times: Any) -> Any:
        raise NotImplementedError


class Running(Both):
    """Counts and sums the rows until a row is 0."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("state", LONG)

    def on_rows(self, key: Any, lines: list[Any], times: Any) -> Any:
        count = self.state.get()[0] if self.state.exists() else 0
        for line in lines:
            if line.n == 0:
                self.state.clear()
                count = 0
            else:
                count += int(line.n)
                self.state.update((count,))
        return count, self.state.exists(), self.state.get()


class Largest(Both):
    """The three largest."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getListState("state", LONG)

    def on_rows(self, key: Any, lines: list[Any], times: Any) -> Any:
        known = [one[0] for one in self.state.get()] + [int(line.n) for line in lines]
        largest = sorted(known, reverse=True)[:3]
        if largest and largest[0] > 7:
            self.state.clear()
        elif len(largest) == 3:
            self.state.put([(one,) for one in largest])
        else:
            self.state.clear()
            self.state.appendList([(one,) for one in largest])
        return largest, self.state.exists(), list(self.state.get())


class Frequencies(Both):
    """Counts each number; even ones end with the sixth."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getMapState("state", TEXT, LONG)

    def on_rows(self, key: Any, lines: list[Any], times: Any) -> Any:
        for line in lines:
            word = (str(line.n),)
            seen = self.state.getValue(word)[0] if self.state.containsKey(word) else 0
            self.state.updateValue(word, (seen + 1,))
            if line.n == 6:
                for known in list(self.state.keys()):
                    if int(known[0]) % 2 == 0:
                        self.state.removeKey(known)
            elif line.n == 9:
                self.state.clear()
        entries = sorted(self.state.iterator())
        # A map whose last key was removed does not exist to Spark's engine; to the tester it does.
        return entries, sorted(self.state.values()), bool(entries) and self.state.exists()


class Sessions(Both):
    """Over some time after the last row of a key; ``now`` tells by which clock."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.state = handle.getValueState("state", LONG)

    def now(self, lines: list[Any], times: Any) -> int:
        return int(times.getCurrentProcessingTimeInMs())

    def on_rows(self, key: Any, lines: list[Any], times: Any) -> Any:
        if not lines:
            return "nothing"
        if self.state.exists():
            self.handle.deleteTimer(self.state.get()[0] + SESSION_MS)
        now = self.now(lines, times)
        self.state.update((now,))
        self.handle.registerTimer(now + SESSION_MS)
        if lines[-1].n == 5:
            self.handle.registerTimer(now + 2 * SESSION_MS)
        return len(lines), list(self.handle.listTimers())

    def on_timer(self, moment: int, times: Any) -> Any:
        self.state.clear()
        return "over", moment, times.getCurrentProcessingTimeInMs()


class EventSessions(Sessions):
    def on_timer(self, moment: int, times: Any) -> Any:
        self.state.clear()
        return "over", moment, times.getCurrentWatermarkInMs()

    def now(self, lines: list[Any], times: Any) -> int:
        """Not behind the watermark, where the tester takes no timers."""
        newest = max(milliseconds(line.ts) for line in lines)
        return max(newest, int(times.getCurrentWatermarkInMs()))


PROCESSORS: list[tuple[type[Both], TimeMode]] = [
    (Running, TimeMode.NONE),
    (Largest, TimeMode.NONE),
    (Frequencies, TimeMode.NONE),
    (Sessions, TimeMode.PROCESSING_TIME),
    (EventSessions, TimeMode.EVENT_TIME),
]
NAMES = {TimeMode.NONE: "None", TimeMode.PROCESSING_TIME: "ProcessingTime", TimeMode.EVENT_TIME: "EventTime"}
# At 1970 itself rows are late for Spark, and so for the tester, from the beginning.
lines = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40_000)), min_size=1, max_size=4)
step = st.one_of(st.tuples(st.sampled_from("ab"), lines), st.integers(1, 15_000))


def milliseconds(at: Any) -> int:
    """Naive moments, as the tester and frames have, are of UTC here."""
    moment = pd.Timestamp(at)
    return round((moment if moment.tzinfo else moment.tz_localize("UTC")).timestamp() * 1000)


@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
@pytest.mark.parametrize(("kind", "mode"), PROCESSORS)
@settings(max_examples=6)
@given(steps=st.lists(step, min_size=1, max_size=8))
def test_the_operator_says_what_the_tester_says(
    kind: type[Both], mode: TimeMode, pandas: bool, steps: list[Any]
) -> None:
    timed = mode is TimeMode.EVENT_TIME
    tester = TwsTester(
        kind(pandas), timeMode=NAMES[mode], eventTimeExtractor=(lambda row: milliseconds(row.ts)) if timed else None
    )
    fleet = Fleet(spec_of(kind(pandas), mode, pandas=pandas))
    now_ms = 0
    for one in steps:
        if isinstance(one, int):
            now_ms += one
            if mode is TimeMode.NONE:
                continue
            move = tester.setWatermark if timed else tester.setProcessingTime
            ours = fleet.advance(now_ms * 1000) if timed else fleet.tick(now_ms)
            assert sorted(ours, key=repr) == sorted(told(move(now_ms)), key=repr)
        else:
            key, values = one
            ours = fleet.process(rows(*[(key, n, ms * 1000) for n, ms in values]))
            theirs = told(asked(tester, pandas, key, values))
            if timed and all(ms <= now_ms for _, ms in values):  # the tester calls it without rows
                assert ours == []
            else:
                assert ours == theirs
    for key in "ab":
        assert [row["v"] for row in kept(fleet, "state", key)] == known(tester, kind, key)
    if mode is not TimeMode.NONE:
        for key in "ab":
            assert [row["__expires_ms"] for row in kept(fleet, "__timers", key)] == list(
                tester.handle._timers.listTimers(key)
            )
    fleet.close()


def asked(tester: TwsTester, pandas: bool, key: str, values: list[tuple[int, int]]) -> Any:
    moments = [(EPOCH + timedelta(milliseconds=ms)).replace(tzinfo=None) for _, ms in values]
    numbers = [n for n, _ in values]
    if pandas:
        return tester.testInPandas(key, pd.DataFrame({"id": key, "n": numbers, "ts": moments}))
    return tester.test(key, [Row(id=key, n=n, ts=at) for n, at in zip(numbers, moments, strict=True)])


def told(answer: Any) -> list[dict[str, Any]]:
    if isinstance(answer, pd.DataFrame):
        records: list[dict[str, Any]] = answer.to_dict("records")
        return records
    return [row.asDict() for row in answer]


def kept(fleet: Fleet, table: str, key: str) -> list[dict[str, Any]]:
    return [row for row in fleet.tables()[table] if row["id"] == key]


def known(tester: TwsTester, kind: type[Both], key: str) -> list[Any]:
    """The state's values, as the table is sorted."""
    if kind is Largest:
        return [value[0] for value in tester.peekListState("state", key)]
    if kind is Frequencies:
        entries = tester.peekMapState("state", key).items()
        return [value[0] for _, value in sorted(entries)]
    value = tester.peekValueState("state", key)
    return [] if value is None else [value[0]]


@pytest.mark.parametrize("pandas", [False, True], ids=["rows", "pandas"])
def test_state_put_in_by_hand_is_where_both_go_on(pandas: bool) -> None:
    tester = TwsTester(Running(pandas))
    tester.updateValueState("state", "a", (5,))
    [answer] = told(asked(tester, pandas, "a", [(1, 0)]))
    assert answer == {"id": "a", "said": "(6, True, (6,))"}
    fleet = Fleet(spec_of(Running(pandas), pandas=pandas))
    fleet.process(rows(("a", 5, 0)))
    assert fleet.process(rows(("a", 1, 0))) == [answer]
    fleet.close()
