"""``transformWithState`` and ``transformWithStateInPandas``: a keyed operator after a hash exchange.

A processor declares its state in ``init``. So ``init`` is called here, on the driver, as Spark does before a query
starts. Its handle only records the declarations.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import StructType

from penstock.catalyst.trees import JavaTree, arrow_schema, arrow_type, elements, expr_id, is_event_time
from penstock.catalyst.types import to_arrow_schema
from penstock.errors import NotSupported
from penstock.functions import BoundReference
from penstock.model.job_graph import EdgeKind
from penstock.operators.python.user_code import user_errors
from penstock.operators.stateful.declaration import InitialState, RowForm
from penstock.operators.stateful.event_time_column import EventTimeColumnSpec
from penstock.operators.stateful.group_state import PickledProcessor
from penstock.operators.stateful.handle import (
    CurrentKey,
    StoredListState,
    StoredMapState,
    StoredValueState,
    check_phase,
    check_time_mode,
    raise_duplicate_variable,
)
from penstock.operators.stateful.per_key import PerKeyProcessor
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TIMERS, UNPROCESSED, Fields, Kind, StateVariable, TimeMode
from penstock.planner import unsupported
from penstock.planner.aggregation import is_key_type, key_parameters
from penstock.planner.python_functions import load_python
from penstock.planner.scope import Scope
from penstock.planner.static_join import static_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_PRE_INIT = "PRE_INIT"
_NO_KEY = CurrentKey(_PRE_INIT)


class _NoStore:
    """Placeholder for a state's store while ``init`` runs: there is no key yet, so every access raises an error."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, operation: str) -> NoReturn:
        if not operation.startswith("__"):  # copying looks up such names
            _NO_KEY.require(self._name)
        raise AttributeError(operation)


def add_transform_with_state(scope: Scope, node: JavaTree) -> None:
    """Compile a ``TransformWithStateInPySpark`` node.

    Raises:
        NotSupported: the name or type of a state variable, or the type of a key, is not supported.
        FunctionError: the processor's ``init`` fails.
    """
    columns = grouped_columns(scope, elements(node.child().output()), int(node.groupingAttributesLen()))
    python_function = node.functionExpr().func()
    function = load_python(python_function, "the StatefulProcessor")[0]
    processor = called = function.__self__._stateful_processor
    pickled = bytes(python_function.command().unsafeArray())
    form = RowForm.FRAMES if str(node.userFacingDataType()) == "pandas" else RowForm.ROWS
    if isinstance(processor, PerKeyProcessor):
        called, form = processor.processor, RowForm.ARROW
        pickled = CloudPickleSerializer().dumps((PickledProcessor(called).call,))
    add_processor(
        scope,
        node,
        columns,
        ("transform-with-state", f"TransformWithState ({type(called).__name__})"),
        processor,
        pickled=pickled,
        form=form,
        time_mode=TimeMode(str(node.timeMode())),
        initial=_initial_state(scope.spark, node) if node.hasInitialState() else None,
    )


@dataclass(frozen=True)
class GroupedColumns:
    """Positions in the input of the grouping key, the user's columns and the event time.

    ``parameters``: see ``OperatorSpec``.
    """

    keys: tuple[int, ...]
    data: tuple[int, ...]
    event_time: int | None
    parameters: dict[str, str]


def grouped_columns(scope: Scope, attributes: Sequence[JavaTree], grouped: int) -> GroupedColumns:
    """Return the columns of attributes, the first ``grouped`` of which are the key.

    Raises:
        NotSupported: the type of a key is not supported.
    """
    for attribute in attributes[:grouped]:
        if not is_key_type(arrow_type(attribute), arrays=False):
            raise unsupported.NESTED_KEY.error(f"grouping by {attribute.name()}")
    positions = _needed_once(scope, attributes)
    event_times = [position for position, one in zip(positions, attributes, strict=True) if is_event_time(one)]
    return GroupedColumns(
        tuple(positions[:grouped]),
        tuple(positions[grouped:]),
        event_times[0] if event_times else None,
        key_parameters(scope, attributes[:grouped]),
    )


def add_processor(
    scope: Scope,
    node: JavaTree,
    columns: GroupedColumns,
    called: tuple[str, str],
    processor: object,
    *,
    pickled: bytes,
    form: RowForm,
    time_mode: TimeMode,
    initial: InitialState | None = None,
    parameters: Mapping[str, str] | None = None,
) -> None:
    """Add the operator of a ``StatefulProcessor``, after an exchange by its keys.

    Args:
        called: the kind, from which its id is made, and its name.
        pickled: the processor in its state before ``init`` runs here.
        parameters: parameters of its state other than the keys and the output mode.
    """
    kind, name = called
    builder, operator_id = scope.builder, scope.operator_id(kind, node)
    if builder.partitioned_by != columns.keys:
        builder.exchange(EdgeKind.HASH, columns.keys)
    declared = declared_state(scope.spark, processor, time_mode, f"{operator_id} ({name})")
    builder.add(
        TransformWithStateSpec(
            operator_id=operator_id,
            name=name,
            output_schema=arrow_schema(elements(node.output())),
            input_schema=builder.schema,
            keys=columns.keys,
            data=columns.data,
            pickled=pickled,
            form=form,
            time_mode=time_mode,
            variables=declared.variables,
            deleted=declared.deleted,
            event_time=columns.event_time if time_mode is TimeMode.EVENT_TIME else None,
            initial=initial,
            settings=scope.python_settings,
            parameters={**columns.parameters, "output mode": scope.mode, **(parameters or {})},
        )
    )
    scope.bind_output(elements(node.output()))


def _needed_once(scope: Scope, output: Sequence[JavaTree]) -> list[int]:
    """Return the positions of these attributes. Columns that are not among them are dropped.

    Spark's plan has grouping columns twice; they are sent only once.
    """
    ordinals = [scope.ordinals[expr_id(attribute)] for attribute in output]
    kept = sorted(set(ordinals))
    if len(kept) < len(scope.builder.schema):
        fields = [scope.builder.schema.field(ordinal) for ordinal in kept]
        passed = [BoundReference(ordinal, field.type) for ordinal, field in zip(kept, fields, strict=True)]
        scope.add_project("Project (columns once)", fields, passed)
        scope.bind([expr_id(output[ordinals.index(ordinal)]) for ordinal in kept])
    return [kept.index(ordinal) for ordinal in ordinals]


def add_event_time_column(scope: Scope, node: JavaTree) -> None:
    """Compile ``eventTimeColumnName``: an output column becomes the event time of the nodes above."""
    builder = scope.builder
    builder.add(
        EventTimeColumnSpec(
            operator_id=builder.operator_id("event-time"),
            name=f"EventTime ({node.eventTime().name()})",
            output_schema=builder.schema,
            column=scope.ordinals[expr_id(node.eventTime())],
        ),
        keeps=builder.unchanged(),
    )


def _initial_state(spark: SparkSession, node: JavaTree) -> InitialState:
    initial = node.initialState()
    grouped = int(node.initGroupingAttrsLen())
    rows = static_rows(spark, node, initial)
    return InitialState(
        rows=rows, keys=tuple(range(grouped)), data=tuple(range(grouped, len(elements(initial.output()))))
    )


class Declared(NamedTuple):
    """State declared by ``init``. ``deleted``: names that it passed to ``deleteIfExists``."""

    variables: tuple[StateVariable, ...]
    deleted: tuple[str, ...]


def declared_state(spark: SparkSession | None, processor: object, time_mode: TimeMode, label: str) -> Declared:
    """Run the processor's ``init`` and return the state that it declares. The processor is closed again.

    Args:
        spark: parses schemas that are given as text. It may be None if there are none.
        label: name of the operator in errors.

    Raises:
        FunctionError: ``init`` or ``close`` fails.
        NotSupported: a name or a type is not supported.
    """
    handle = _DriverHandle(spark, time_mode)
    with user_errors(label):
        processor.init(handle)  # type: ignore[attr-defined]
        processor.close()  # type: ignore[attr-defined]
    return Declared(tuple(handle.variables.values()), tuple(handle.deleted))


class _DriverHandle(StatefulProcessorHandle):  # type: ignore[misc]  # PySpark's sources are not typed
    """Records what ``init`` declares. Its states have no values, because there is no key while ``init`` runs."""

    def __init__(self, spark: SparkSession | None, time_mode: TimeMode) -> None:
        self._spark = spark
        self._time_mode = time_mode
        self.variables: dict[str, StateVariable] = {}
        self.deleted: dict[str, None] = {}

    def getValueState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ValueState:
        store = self._declare(stateName, Kind.VALUE, schema, None, ttlDurationMs)
        return StoredValueState(stateName, store, _NO_KEY)

    def getListState(
        self,
        stateName: str,
        schema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> ListState:
        store = self._declare(stateName, Kind.LIST, schema, None, ttlDurationMs)
        return StoredListState(stateName, store, _NO_KEY)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        store = self._declare(stateName, Kind.MAP, valueSchema, userKeySchema, ttlDurationMs)
        return StoredMapState(stateName, store, _NO_KEY)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._no_timers("register_timer")

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._no_timers("delete_timer")

    def listTimers(self) -> Iterator[int]:
        self._no_timers("list_timers")

    def deleteIfExists(self, stateName: str) -> None:
        """Withdraw a declaration of this name, and record that a snapshot's table of this name is deleted.

        Penstock's own tables are not recorded, because no variable can have their names.
        """
        self.variables.pop(stateName, None)
        if stateName not in (TIMERS, UNPROCESSED):
            self.deleted[stateName] = None

    def _no_timers(self, operation: str) -> NoReturn:
        check_time_mode(operation, self._time_mode)
        check_phase(operation, _PRE_INIT, ())
        raise AssertionError("no operation is allowed while init runs")

    def _declare(
        self, name: str, kind: Kind, value: StructType | str, map_key: StructType | str | None, ttl_ms: int | None
    ) -> Any:
        """Record a declared state and return a placeholder for its store."""
        _check_name(name)
        if name in self.variables:
            raise_duplicate_variable(name)
        if name in self.deleted:
            raise unsupported.STATE_DELETED.error(f"state {name}")
        if ttl_ms:  # 0 means no time to live, as in Spark
            _check_ttl(name, kind, ttl_ms, self._time_mode)
        key = None if map_key is None else self._fields(name, map_key)
        if key is not None:
            for field in key.columns:
                if not is_key_type(field.type, arrays=False):
                    raise unsupported.NESTED_MAP_KEY.error(f"field {field.name} of the map key of state {name}")
        self.variables[name] = StateVariable(name, kind, self._fields(name, value), key, ttl_ms or None)
        return _NoStore(name)

    def _fields(self, name: str, schema: StructType | str) -> Fields:
        parsed: Any = schema
        if isinstance(schema, str) and self._spark is not None:
            parsed = self._spark._parse_ddl(schema)
        if not isinstance(parsed, StructType):
            raise TypeError(f"the schema of state {name} must be a StructType or a DDL string of columns: {parsed!r}")
        text = json.dumps(parsed.jsonValue())
        try:
            return Fields(text, to_arrow_schema(text))
        except NotSupported as error:
            raise NotSupported(f"state {name}: {error}") from None


def _check_name(name: str) -> None:
    """Check the name by Spark's rules for column families and by the rules for Penstock's own tables."""
    if not name or name.strip() != name or name == "default":
        raise PySparkRuntimeError(
            "[STATE_STORE_CANNOT_USE_COLUMN_FAMILY_WITH_INVALID_NAME] Failed to perform column family operation="
            f"create_column_family with invalid name={name}. Column family name cannot be empty or include "
            "leading/trailing spaces or use the reserved keyword=default"
        )
    if name.startswith("$"):
        raise PySparkRuntimeError(
            "[STATE_STORE_CANNOT_CREATE_COLUMN_FAMILY_WITH_RESERVED_CHARS] Failed to create column family with "
            f"unsupported starting character and name={name}."
        )
    if name in (TIMERS, UNPROCESSED) or "/" in name or not name.isprintable():
        raise unsupported.STATE_NAME.error(f"state {name!r}")


def _check_ttl(name: str, kind: Kind, ttl_ms: int, time_mode: TimeMode) -> None:
    if time_mode is not TimeMode.PROCESSING_TIME:
        raise PySparkRuntimeError(
            f"[STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL] Cannot use TTL for state={name} in "
            f"timeMode={time_mode}, use TimeMode.ProcessingTime() instead."
        )
    if ttl_ms <= 0:
        raise PySparkRuntimeError(
            "[STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE] TTL duration must be greater than zero for State store "
            f"operation=get_{kind}_state on state={name}."
        )
