"""Handle of the vectorized form, on top of the handle of the per-key form. Both have the same rules and errors."""

# ruff: noqa: N802, N803 - the names follow PySpark's

from __future__ import annotations

import numpy.typing as npt
from pyspark.sql.types import StructType

from penstock.operators.stateful.arrow_processor import ArrowStatefulProcessorHandle, ArrowValueState, Where
from penstock.operators.stateful.handle import ProcessorHandle
from penstock.operators.stateful.key_selection import selected_keys, timer_moments
from penstock.operators.stateful.timer_arrays import TimerArrays
from penstock.operators.stateful.value_arrays import ValueArrays
from penstock.operators.stateful.variables import Kind


class ArrowHandle(ArrowStatefulProcessorHandle):
    """Handle of one subtask. ``handle``: handle with stores of arrays (``ValueArrays``, ``TimerArrays``)."""

    def __init__(self, handle: ProcessorHandle) -> None:
        self._handle = handle

    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ArrowValueState:
        store: ValueArrays = self._handle.declare(stateName, Kind.VALUE)
        return store

    def deleteIfExists(self, stateName: str) -> None:
        self._handle.deleteIfExists(stateName)

    def registerTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        timers = self._timers("register_timer")
        keys = selected_keys(where, timers.count)
        timers.register_all(keys, timer_moments(moments, len(keys)))

    def deleteTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        timers = self._timers("delete_timer")
        keys = selected_keys(where, timers.count)
        timers.delete_all(keys, timer_moments(moments, len(keys)))

    def _timers(self, operation: str) -> TimerArrays:
        timers = self._handle.require_timers(operation)
        assert isinstance(timers, TimerArrays)
        return timers
