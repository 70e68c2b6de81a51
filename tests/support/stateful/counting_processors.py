"""StatefulProcessors whose results do not depend on how rows are cut into batches, and what they must yield."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

MINUTE_MS = 60_000
OUTPUT = "key bigint, what string, at bigint, n bigint"
Line = tuple[int, int, float]
"""key, value, seconds of event time"""


class InPandas(StatefulProcessor):
    """Every row's number within its key; and by timers what came in each minute, once that is over."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "rows bigint, value bigint")
        self.values = handle.getListState("values", "value bigint")
        self.minutes = handle.getMapState("minutes", "minute bigint", "rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        seen, total = self.total.get() or (0, 0)
        for frame in rows:
            numbers = list(range(seen + 1, seen + len(frame) + 1))
            seen, total = seen + len(frame), total + frame["value"].sum()
            self.values.appendList([(value,) for value in frame["value"]])
            for at in frame["at"]:
                self.count(int(at.timestamp() * 1000) // MINUTE_MS)
            yield pd.DataFrame({"key": key[0], "what": "row", "at": 0, "n": numbers})
        self.total.update((seen, total))

    def count(self, minute: int) -> None:
        known = self.minutes.getValue((minute,))
        self.minutes.updateValue((minute,), ((known[0] if known else 0) + 1,))
        self.handle.registerTimer((minute + 1) * MINUTE_MS)

    def over(self, moment: int) -> int:
        minute = moment // MINUTE_MS - 1
        rows: int = self.minutes.getValue((minute,))[0]
        self.minutes.removeKey((minute,))
        return rows

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        moment = expiredTimerInfo.getExpiryTimeInMs()
        yield pd.DataFrame({"key": [key[0]], "what": ["minute"], "at": [moment], "n": [self.over(moment)]})


class InRows(InPandas):
    """The same over Rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # type: ignore[override]  # noqa: N802, N803
        seen, total = self.total.get() or (0, 0)
        for row in rows:
            seen, total = seen + 1, total + row.value
            self.values.appendValue((row.value,))
            self.count(int(row.at.timestamp() * 1000) // MINUTE_MS)
            yield Row(key=key[0], what="row", at=0, n=seen)
        self.total.update((seen, total))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # type: ignore[override]  # noqa: N802, N803
        moment = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=key[0], what="minute", at=moment, n=self.over(moment))


def counted(df: DataFrame, mode: str) -> DataFrame:
    """``mode``: pandas or rows."""
    grouped = df.withWatermark("at", "30 seconds").groupBy("key")
    if mode == "pandas":
        return grouped.transformWithStateInPandas(InPandas(), OUTPUT, "Append", "EventTime")
    return grouped.transformWithState(InRows(), OUTPUT, "Append", "EventTime")


def expected_rows(lines: Iterable[Line]) -> list[tuple[Any, ...]]:
    """Return the output that must exist after all of these rows and the watermark after the last of them."""
    lines = list(lines)
    watermark_ms = max(second for *_, second in lines) * 1000 - 30_000
    keys = Counter(key for key, *_ in lines)
    found = [(key, "row", 0, number) for key, rows in keys.items() for number in range(1, rows + 1)]
    minutes = Counter((key, int(second * 1000) // MINUTE_MS) for key, _, second in lines)
    for (key, minute), rows in minutes.items():
        if (moment := (minute + 1) * MINUTE_MS) <= watermark_ms:
            found.append((key, "minute", moment, rows))
    return sorted(found, key=repr)


def expected_state(lines: Iterable[Line]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the expected state by table, sorted.

    List state comes without the positions, which depend on the order of rows.
    """
    lines = list(lines)
    watermark_ms = max(second for *_, second in lines) * 1000 - 30_000
    values: dict[int, list[int]] = defaultdict(list)
    for key, value, _ in lines:
        values[key].append(value)
    minutes = Counter((key, int(second * 1000) // MINUTE_MS) for key, _, second in lines)
    left = {at: rows for at, rows in minutes.items() if (at[1] + 1) * MINUTE_MS > watermark_ms}
    return {
        "total": sorted((key, len(some), sum(some)) for key, some in values.items()),
        "values": sorted((key, value) for key, some in values.items() for value in some),
        "minutes": sorted((key, minute, rows) for (key, minute), rows in left.items()),
        "__timers": sorted((key, (minute + 1) * MINUTE_MS) for key, minute in left),
    }
