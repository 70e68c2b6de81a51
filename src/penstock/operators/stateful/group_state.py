"""``applyInPandasWithState`` as a StatefulProcessor.

The state of a group is a value state. Its timeout is the only timer of its key.

As in Spark's operator, the function sees no timeout at the start of a call. If the function updates or removes the
state or sets a timeout, state and timeout are written together. Otherwise both stay unchanged.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import Row, StructType

if TYPE_CHECKING:
    import pandas as pd

STATE = "state"
"""Name of the value state and of its table."""
_PAST = 1
"""Milliseconds added to a timeout: it is due when the clock or watermark is *past* it, a timer when it is reached."""

GroupFunction = Callable[[tuple[Any, ...], Iterator[Any], GroupState], Iterable[Any]]


class GroupStateProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark's sources are not typed
    """Processor that calls the user's function with PySpark's ``GroupState``.

    Args:
        function: the user's function.
        schema: schema of the state.
        timeout: one of ``GroupStateTimeout``.
        watermarked: True if the input has a watermark, so that the function may read it.
        columns: column names of the frames, for the empty frame of a call with a timeout.
    """

    def __init__(
        self, function: GroupFunction, schema: StructType, timeout: str, watermarked: bool, columns: list[str]
    ) -> None:
        self._function = function
        self._schema = schema
        self._timeout = timeout
        self._watermarked = watermarked
        self._columns = columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value = handle.getValueState(STATE, self._schema)

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        return self._call(key, rows, timerValues, timed_out=False)

    def handleExpiredTimer(
        self, key: Row, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        return self._call(tuple(key), iter((pd.DataFrame(columns=self._columns),)), timerValues, timed_out=True)

    def close(self) -> None: ...

    def _call(
        self, key: tuple[Any, ...], rows: Iterator[pd.DataFrame], times: TimerValues, timed_out: bool
    ) -> Iterator[pd.DataFrame]:
        state = self._state(times, timed_out)
        yield from self._function(key, rows, state)
        self._keep(state)

    def _state(self, times: TimerValues, timed_out: bool) -> GroupState:
        stored = self._value.get()
        return GroupState(
            optionalValue=None if stored is None else Row(*stored),
            batchProcessingTimeMs=times.getCurrentProcessingTimeInMs(),
            eventTimeWatermarkMs=times.getCurrentWatermarkInMs(),
            timeoutConf=self._timeout,
            hasTimedOut=timed_out,
            watermarkPresent=self._watermarked,
            defined=stored is not None,
            updated=False,
            removed=False,
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self._schema,
        )

    def _keep(self, state: GroupState) -> None:
        timeout_ms = int(state._timeout_timestamp)
        if not (state._updated or state._removed or timeout_ms != GroupState.NO_TIMESTAMP):
            return
        if state.exists:
            self._value.update(state.get)
        else:
            self._value.clear()
        if self._timeout == GroupStateTimeout.NoTimeout:
            return
        for moment in list(self._handle.listTimers()):
            self._handle.deleteTimer(moment)
        if timeout_ms != GroupState.NO_TIMESTAMP:
            self._handle.registerTimer(timeout_ms + _PAST)


class PickledProcessor:
    """Wrapper that is pickled in place of Spark's wrapper around a processor; see ``load_processor``."""

    def __init__(self, processor: object) -> None:
        self._stateful_processor = processor

    def call(self) -> None:
        """Do nothing. Spark pickles a bound method; this method serves to pickle the wrapper."""
