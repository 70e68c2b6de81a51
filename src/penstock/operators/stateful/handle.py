"""PySpark's handle and state objects of a StatefulProcessor, on top of the stores of one subtask.

They inherit from PySpark's classes, so that annotations and ``isinstance`` work, but they do not use Spark's client.
They act on the current key (``CurrentKey``), as in Spark.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NoReturn

from pyspark.errors import PySparkRuntimeError
from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import Row, StructType

from penstock.operators.stateful.list_store import ListStore
from penstock.operators.stateful.map_store import MapStore
from penstock.operators.stateful.timers import TimerStore
from penstock.operators.stateful.value_arrays import ValueArrays
from penstock.operators.stateful.value_store import ValueStore
from penstock.operators.stateful.variables import Kind, StateVariable, TimeMode

Store = ValueStore | ListStore | MapStore | ValueArrays


class CurrentKey:
    """Key for which the user's code runs.

    Attributes:
        key: number of the key in the current unit; None if the current call has no key.
        phase: Spark's handle state: ``CREATED`` while ``init`` runs, then ``INITIALIZED``, finally ``CLOSED``.
    """

    def __init__(self, phase: str = "CREATED") -> None:
        self.key: int | None = None
        self.phase = phase

    def require(self, name: str) -> int:
        """Return the number of the current key. ``name``: state variable for the error message.

        Raises:
            PySparkRuntimeError: there is no current key.
        """
        if self.key is None:
            raise PySparkRuntimeError(
                f"state {name} is used where no grouping key is set (handle state {self.phase}); use it in "
                "handleInputRows, handleExpiredTimer and handleInitialState, and in what they yield from"
            )
        return self.key


class StoredValueState(ValueState):  # type: ignore[misc]  # PySpark's sources are not typed
    """PySpark's ``ValueState`` over a store."""

    def __init__(self, name: str, store: ValueStore, current_key: CurrentKey) -> None:
        self._name, self._store, self._current_key = name, store, current_key

    def exists(self) -> bool:
        return self._store.get(self._current_key.require(self._name)) is not None

    def get(self) -> tuple[Any, ...] | None:
        stored = self._store.get(self._current_key.require(self._name))
        return None if stored is None else self._store.codec.decode(stored)

    def update(self, newValue: tuple[Any, ...]) -> None:
        key = self._current_key.require(self._name)
        if newValue is None:
            raise_illegal_value("NULL_VALUE", f"Cannot write null values to State Store for StateName {self._name}.")
        self._store.put(key, self._store.codec.encode(newValue))

    def clear(self) -> None:
        self._store.put(self._current_key.require(self._name), None)


class StoredListState(ListState):  # type: ignore[misc]  # PySpark's sources are not typed
    """PySpark's ``ListState`` over a store."""

    def __init__(self, name: str, store: ListStore, current_key: CurrentKey) -> None:
        self._name, self._store, self._current_key = name, store, current_key

    def exists(self) -> bool:
        return bool(self._store.get(self._current_key.require(self._name)))

    def get(self) -> Iterator[tuple[Any, ...]]:
        decode = self._store.codec.decode
        return iter([decode(stored) for stored in self._store.get(self._current_key.require(self._name))])

    def put(self, newState: list[tuple[Any, ...]]) -> None:
        self._store.replace(self._current_key.require(self._name), self._kept(newState))

    def appendValue(self, newState: tuple[Any, ...]) -> None:
        self._store.append(self._current_key.require(self._name), self._kept([newState]))

    def appendList(self, newState: list[tuple[Any, ...]]) -> None:
        self._store.append(self._current_key.require(self._name), self._kept(newState))

    def clear(self) -> None:
        self._store.replace(self._current_key.require(self._name), [])

    def _kept(self, values: Any) -> list[tuple[Any, ...]]:
        values = None if values is None else list(values)
        if values is None or any(value is None for value in values):
            raise_illegal_value("NULL_VALUE", f"Cannot write null values to State Store for StateName {self._name}.")
        if not values:
            raise_illegal_value(
                "EMPTY_LIST_VALUE", f"Cannot write empty list values to State Store for StateName {self._name}."
            )
        return [self._store.codec.encode(value) for value in values]


class StoredMapState(MapState):  # type: ignore[misc]  # PySpark's sources are not typed
    """PySpark's ``MapState`` over a store. Entries have no particular order, as in Spark."""

    def __init__(self, name: str, store: MapStore, current_key: CurrentKey) -> None:
        self._name, self._store, self._current_key = name, store, current_key

    def exists(self) -> bool:
        return bool(self._store.entries(self._current_key.require(self._name)))

    def getValue(self, key: tuple[Any, ...]) -> Row | None:
        stored = self._store.get(self._current_key.require(self._name), self._key(key))
        return None if stored is None else self._store.codec.decode_row(stored)

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return self._store.get(self._current_key.require(self._name), self._key(key)) is not None

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        if value is None:
            raise_illegal_value("NULL_VALUE", f"Cannot write null values to State Store for StateName {self._name}.")
        self._store.put(self._current_key.require(self._name), self._key(key), self._store.codec.encode(value))

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        store = self._store
        entries = store.entries(self._current_key.require(self._name))
        return iter([(store.key_codec.decode(key), store.codec.decode(value)) for key, value in entries])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        return iter(
            [self._store.key_codec.decode(key) for key, _ in self._store.entries(self._current_key.require(self._name))]
        )

    def values(self) -> Iterator[tuple[Any, ...]]:
        return iter(
            [self._store.codec.decode(value) for _, value in self._store.entries(self._current_key.require(self._name))]
        )

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self._store.put(self._current_key.require(self._name), self._key(key), None)

    def clear(self) -> None:
        self._store.clear(self._current_key.require(self._name))

    def _key(self, key: Any) -> tuple[Any, ...]:
        if key is None:
            raise_illegal_value("NULL_VALUE", f"Cannot write null values to State Store for StateName {self._name}.")
        return self._store.key_codec.encode(key)


class _DeletedState:
    """State object of a deleted variable. Every operation raises Spark's error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, operation: str) -> NoReturn:
        if operation.startswith("__"):  # copying an object looks up such names
            raise AttributeError(operation)
        raise PySparkRuntimeError(
            "[STATE_STORE_UNSUPPORTED_OPERATION_ON_MISSING_COLUMN_FAMILY] State store "
            f"operation={operation} not supported on missing column family={self._name}."
        )


def raise_illegal_value(condition: str, text: str) -> NoReturn:
    """Raise Spark's error for a value that cannot be stored as state."""
    raise PySparkRuntimeError(
        f"[ILLEGAL_STATE_STORE_VALUE.{condition}] Illegal value provided to the State Store. {text}"
    )


class ProcessorHandle(StatefulProcessorHandle):  # type: ignore[misc]  # PySpark's sources are not typed
    """Handle of one subtask.

    Args:
        variables: variables that ``init`` declared when the query was compiled, by name.
        stores: stores of these variables, by name.
        timers: the timers; None if the time mode has none.
        time_mode: the time mode.
        current_key: the current key.
        deleted: names that ``init`` passed to ``deleteIfExists`` when the query was compiled.
    """

    def __init__(
        self,
        variables: Mapping[str, StateVariable],
        stores: Mapping[str, Store],
        timers: TimerStore | None,
        time_mode: TimeMode,
        current_key: CurrentKey,
        deleted: Collection[str] = (),
    ) -> None:
        self._deleted = deleted
        self._variables = variables
        self._stores = stores
        self._timers = timers
        self._time_mode = time_mode
        self._current_key = current_key
        self._declared: set[str] = set()

    def getValueState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ValueState:
        store = self.declare(stateName, Kind.VALUE)
        return StoredValueState(stateName, store, self._current_key)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ListState:
        store = self.declare(stateName, Kind.LIST)
        return StoredListState(stateName, store, self._current_key)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        store = self.declare(stateName, Kind.MAP)
        return StoredMapState(stateName, store, self._current_key)

    def declare(self, name: str, kind: Kind) -> Any:
        """Declare a variable and return its store; for a deleted variable, an object that raises when it is used.

        Raises:
            PySparkRuntimeError: the call is outside of ``init``, the variable was declared before, or it was not
                declared with this kind when the query was compiled.
        """
        check_phase("get_" + kind + "_state", self._current_key.phase, ("CREATED",))
        if name in self._declared:
            raise_duplicate_variable(name)
        known = self._variables.get(name)
        if known is None and name in self._deleted:
            return _DeletedState(name)
        if known is None or known.kind is not kind:
            raise PySparkRuntimeError(
                f"init declares the {kind} state {name} here, and did not when the query was compiled; it must declare "
                "the same state everywhere, whatever the machine or the time"
            )
        self._declared.add(name)
        return self._stores[name]

    def registerTimer(self, expiryTimestampMs: int) -> None:
        timers = self.require_timers("register_timer")
        timers.register(self._current_key.require("timers"), _moment(expiryTimestampMs))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        timers = self.require_timers("delete_timer")
        timers.delete(self._current_key.require("timers"), _moment(expiryTimestampMs))

    def listTimers(self) -> Iterator[int]:
        timers = self.require_timers("list_timers")
        return iter(timers.timers_of(self._current_key.require("timers")))

    def deleteIfExists(self, stateName: str) -> None:
        check_phase("delete_if_exists", self._current_key.phase, ("CREATED",))

    def require_timers(self, operation: str) -> TimerStore:
        """Return the timers. ``operation``: Spark's name of the operation, for error messages.

        Raises:
            PySparkRuntimeError: timers cannot be used in the current phase, or the time mode has no timers.
        """
        check_time_mode(operation, self._time_mode)
        check_phase(operation, self._current_key.phase, ("INITIALIZED",))
        assert self._timers is not None
        return self._timers


def _moment(value: Any) -> int:
    """Return a timestamp in milliseconds as an int. Numpy integers are accepted."""
    return operator.index(value)


def raise_duplicate_variable(name: str) -> NoReturn:
    raise PySparkRuntimeError(
        f"[STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED] State variable with name {name} has already been "
        "defined in the StatefulProcessor."
    )


def check_phase(operation: str, phase: str, allowed: tuple[str, ...]) -> None:
    """Raise Spark's PySparkRuntimeError if the operation is not allowed in this phase."""
    if phase not in allowed:
        raise PySparkRuntimeError(
            "[STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE] Failed to perform stateful "
            f"processor operation={operation} with invalid handle state={phase}."
        )


def check_time_mode(operation: str, time_mode: TimeMode) -> None:
    """Raise Spark's PySparkRuntimeError if the time mode has no timers."""
    if time_mode is TimeMode.NONE:
        raise PySparkRuntimeError(
            "[STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE] Failed to perform stateful processor "
            f"operation={operation} with invalid timeMode={time_mode}"
        )
