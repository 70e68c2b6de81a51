"""User interface of the vectorized form: a processor of many keys at a time, with state in columns.

The classes are abstract. Penstock implements them with keyed tables (``value_arrays.py``). Other engines of
``transformWithState`` run them key by key (``per_key.py``).
"""

# ruff: noqa: N802, N803 - the names follow PySpark's

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.types import StructType

from penstock.errors import NotSupported

Where = Any
"""Selection of the keys of a call: None (all keys), a boolean mask with one element per key, or distinct key numbers.
Masks and numbers may be numpy arrays, Arrow arrays or lists."""


class ArrowValueState(ABC):
    """Value state of the keys of the current call, with one column per field and one row per key.

    Use it only while ``handleInputBatch`` or ``handleExpiredTimers``, or an iterator that it returned, is running.
    Writes are visible to later reads in the same call. Timestamps are in the session's time zone.
    """

    @abstractmethod
    def get(self) -> pa.RecordBatch:
        """Return the values with the declared schema, one row per key in the order of ``keys``.

        All fields are null for a key without a value or with an expired value. ``exists`` distinguishes such a key from
        a value of nulls.
        """

    @abstractmethod
    def exists(self) -> npt.NDArray[np.bool_]:
        """Return a mask of the keys that have a value."""

    @abstractmethod
    def update(self, batch: pa.RecordBatch, where: Where = None) -> None:
        """Set the values of the keys that ``where`` selects.

        Args:
            batch: one row per selected key, in their order. Columns are matched by name and must have the declared
                types.
            where: the selected keys.

        Raises:
            TypeError: ``batch`` is not a record batch, a column does not have the declared type, or ``where`` is
                neither a mask nor integers.
            ValueError: the columns or the number of rows do not match, or ``where`` has a repeated key number, one out
                of range, or a mask of another length.
        """

    @abstractmethod
    def clear(self, where: Where = None) -> None:
        """Remove the values of the keys that ``where`` selects."""


class ArrowStatefulProcessorHandle(ABC):
    """Handle that ``init`` gets. State must be declared in ``init``; timers can be set only in later calls."""

    @abstractmethod
    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ArrowValueState:
        """Declare a value state. Columns may have any Spark type; see PySpark's ``getValueState``."""

    def getListState(self, stateName: str, *_: Any, **__: Any) -> Any:
        """Raise NotSupported: list state does not have one row per key."""
        raise NotSupported(
            f"state {stateName}: an ArrowStatefulProcessor has value state, and no list state; declare a value state "
            "with an array in it, or use transformWithState, which goes key by key"
        )

    def getMapState(self, stateName: str, *_: Any, **__: Any) -> Any:
        """Raise NotSupported: map state does not have one row per key."""
        raise NotSupported(
            f"state {stateName}: an ArrowStatefulProcessor has value state, and no map state; declare a value state "
            "with a map in it, group by the map's key as well, or use transformWithState, which goes key by key"
        )

    @abstractmethod
    def deleteIfExists(self, stateName: str) -> None:
        """Delete a state variable; see PySpark's ``deleteIfExists``."""

    @abstractmethod
    def registerTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        """Register a timer for each key that ``where`` selects. A timer that exists already is not duplicated.

        Args:
            moments: timestamps in milliseconds since 1970, as integers: one per selected key, or one for all of them.
            where: the selected keys.
        """

    @abstractmethod
    def deleteTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        """Delete the timer with this timestamp of each key that ``where`` selects. Missing timers are ignored."""


class ArrowStatefulProcessor(ABC):
    """Processor of the state and timers of many keys at a time, for ``penstock.transformWithStateInArrow``.

    The result for a key must not depend on the other keys in the same call. The engine chooses their number, which may
    be one. All methods of a processor run on one thread. Each subtask has its own copy of the processor.
    """

    @abstractmethod
    def init(self, handle: ArrowStatefulProcessorHandle) -> None:
        """Declare the state. This is the first call, also on the driver, where only ``close`` follows.

        Every call must declare the same state.
        """

    @abstractmethod
    def handleInputBatch(
        self, keys: pa.RecordBatch, owners: npt.NDArray[np.int64], rows: pa.RecordBatch, timerValues: TimerValues
    ) -> Iterable[pa.RecordBatch]:
        """Handle input rows.

        Args:
            keys: the distinct grouping keys, at least one, in undefined order. The columns have the names of the
                grouping columns.
            owners: for each row the number of its key in ``keys``. Every key has at least one row.
            rows: the input rows with all columns, in the order of arrival.
            timerValues: current processing time and watermark; see PySpark.

        Returns:
            Batches with any number of rows. Their columns are matched with the output schema as in ``mapInArrow``.
        """

    def handleExpiredTimers(
        self, keys: pa.RecordBatch, moments: npt.NDArray[np.int64], timerValues: TimerValues
    ) -> Iterable[pa.RecordBatch]:
        """Handle due timers, at most one per key.

        If a key has several due timers, they fire in ascending order in separate calls, unless the processor deletes
        them before.

        Args:
            keys: distinct grouping keys, at least one.
            moments: for each key the timestamp of its timer, in milliseconds since 1970.
            timerValues: current processing time and watermark; see PySpark.
        """
        return iter(())

    def close(self) -> None:
        """Release resources. This is the last call; state cannot be used in it."""
        return
