"""Interface of the vectorized form for users: a processor of many keys at a time, with state in columns.

These are contracts. Penstock runs them over keyed tables (``value_arrays.py``), any engine of ``transformWithState``
key by key (``per_key.py``).
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
"""Selection of the call's keys: None (all), a boolean mask with an element per key, or numbers of keys, each one
once; numpy's arrays, Arrow's or lists."""


class ArrowValueState(ABC):
    """Value state of the keys of the current call: a column per field, a row per key.

    Only to be used while ``handleInputBatch`` or ``handleExpiredTimers`` runs, or what it yields from. What was written
    is read back in the same call. Timestamps come in the session's time zone.
    """

    @abstractmethod
    def get(self) -> pa.RecordBatch:
        """Return a row per key, in the order of ``keys``: the fields of the declared schema.

        All are null where there is no value (or its time to live is over; ``exists`` tells a value of nulls from none).
        """

    @abstractmethod
    def exists(self) -> npt.NDArray[np.bool_]:
        """Return, by key, if it has a value."""

    @abstractmethod
    def update(self, batch: pa.RecordBatch, where: Where = None) -> None:
        """Set the values of the keys that ``where`` names.

        Args:
            batch: a row per named key, in their order. Columns are matched by name and must have the declared types.

        Raises:
            TypeError: it is no record batch, a column has another type, or ``where`` is neither mask nor numbers.
            ValueError: other columns or another number of rows, or ``where`` names a key twice or one there is not.
        """

    @abstractmethod
    def clear(self, where: Where = None) -> None:
        """Remove the values of the named keys."""


class ArrowStatefulProcessorHandle(ABC):
    """Handle that ``init`` gets. State is declared in ``init`` alone, timers are set in the other calls."""

    @abstractmethod
    def getValueState(
        self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None
    ) -> ArrowValueState:
        """Declare a value state, of any columns that Spark has; see PySpark's ``getValueState``."""

    def getListState(self, stateName: str, *_: Any, **__: Any) -> Any:
        """Raise NotSupported: a list is no row per key."""
        raise NotSupported(
            f"state {stateName}: an ArrowStatefulProcessor has value state, and no list state; declare a value state "
            "with an array in it, or use transformWithState, which goes key by key"
        )

    def getMapState(self, stateName: str, *_: Any, **__: Any) -> Any:
        """Raise NotSupported: a map is no row per key."""
        raise NotSupported(
            f"state {stateName}: an ArrowStatefulProcessor has value state, and no map state; declare a value state "
            "with a map in it, group by the map's key as well, or use transformWithState, which goes key by key"
        )

    @abstractmethod
    def deleteIfExists(self, stateName: str) -> None:
        """Delete a state variable; see PySpark's ``deleteIfExists``."""

    @abstractmethod
    def registerTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        """Register a timer for each key that ``where`` names. One that is there already stays the only one.

        Args:
            moments: integers, milliseconds since 1970: one per named key, or one for all of them.
        """

    @abstractmethod
    def deleteTimers(self, moments: npt.ArrayLike, where: Where = None) -> None:
        """Delete a timer of each key that ``where`` names; one that is not there is no error."""


class ArrowStatefulProcessor(ABC):
    """Processor of state and timers of many keys at a time, for ``penstock.transformWithStateInArrow``.

    What a key's state becomes must not depend on which other keys are in the same call: how many there are is up to the
    engine, one included. Methods run on one thread; each subtask has a copy of its own of the processor.
    """

    @abstractmethod
    def init(self, handle: ArrowStatefulProcessorHandle) -> None:
        """Declare the state; called first, the same state every time, on the driver as well (``close`` follows)."""

    @abstractmethod
    def handleInputBatch(
        self, keys: pa.RecordBatch, owners: npt.NDArray[np.int64], rows: pa.RecordBatch, timerValues: TimerValues
    ) -> Iterable[pa.RecordBatch]:
        """Handle input rows.

        Args:
            keys: the distinct grouping keys, at least one, under the names of the grouping columns; they have no order.
            owners: by row, the number of its key in ``keys``; every key has a row.
            rows: all columns of the input, in the order in which they came.
            timerValues: see PySpark.

        Returns:
            Batches of the output schema, with any number of rows; matched as those of ``mapInArrow``.
        """

    def handleExpiredTimers(
        self, keys: pa.RecordBatch, moments: npt.NDArray[np.int64], timerValues: TimerValues
    ) -> Iterable[pa.RecordBatch]:
        """Handle due timers, one of each key.

        A key with several gets them in order, one per call, unless it deletes them.

        Args:
            keys: distinct grouping keys, at least one.
            moments: by key, when its timer was to fire, in milliseconds since 1970.
        """
        return iter(())

    def close(self) -> None:
        """Release resources. This is the last call, without keys."""
        return
