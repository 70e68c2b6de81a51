"""Mapping of the state of ``transformWithState``: Spark's column families of variables and timers become tables.

Spark's own reader returns each of them: a value state as ``key`` and ``value``, a list as ``key`` and an array, a map
as ``key``, ``user_map_key`` and ``user_map_value``, timers as ``key`` and ``expiration_timestamp_ms``. With a time to
live each value is a struct of the value and ``ttlExpirationMs``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from penstock.catalyst.types import to_arrow_schema
from penstock.errors import NotSupported
from penstock.interop.spark_checkpoint.buffers import column_list, type_text
from penstock.interop.spark_checkpoint.findings import SAME, Finding
from penstock.interop.spark_checkpoint.mapping import SparkState, StateMapping, fields_of, with_positional_names
from penstock.interop.spark_checkpoint.state import MappedTable
from penstock.operators.stateful.declaration import RowForm
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TIMERS, UNPROCESSED, Kind, StateVariable, TimeMode

_PANDAS, _ROWS = "transformWithStateInPandasExec", "transformWithStateInPySparkExec"
_KINDS = {"ValueState": Kind.VALUE, "ListState": Kind.LIST, "MapState": Kind.MAP}
_OF_TIMERS = "TimerState"
_TTL = "ttlExpirationMs"
_VALUES = {Kind.VALUE: "value", Kind.LIST: "list_value", Kind.MAP: "user_map_value"}
"""Column of Spark's reader with the values, by kind of variable."""
_ANEW = "start the query anew"


class _Variable(msgspec.Struct, rename="camel"):
    """Spark's metadata of a state variable."""

    state_name: str
    state_variable_type: str
    ttl_enabled: bool = False


class _Properties(msgspec.Struct, rename="camel"):
    """Spark's metadata of the operator."""

    time_mode: str
    state_variables: list[_Variable]


class StatefulMapping(StateMapping):
    """Mapping of PySpark's ``transformWithState`` to ``TransformWithStateSpec``."""

    spark_names = (_PANDAS, _ROWS)

    def __init__(self, spec: TransformWithStateSpec) -> None:
        self._spec = spec

    @property
    def spark_name(self) -> str:
        return _PANDAS if self._spec.form is RowForm.FRAMES else _ROWS

    @property
    def drops_late_rows(self) -> bool:
        return self._spec.event_time is not None

    def findings(self, state: SparkState) -> list[Finding]:
        state.reader.check_partitions(state.operator, len(self._spec.keys))
        properties = _properties(state)
        what = f"state of {self._spec.name}"
        if properties.time_mode != self._spec.time_mode:
            why = f"Spark's time mode is {properties.time_mode}, not {self._spec.time_mode}"
            return [Finding(what, why, SAME)]
        stored = _stored(properties)
        findings = []
        known = {*(variable.name for variable in self._spec.variables), *self._spec.deleted}
        for name in sorted(stored.keys() - known):
            way_out = "declare it, or delete it (deleteIfExists)"
            findings.append(Finding(f"{what}, {name}", "the processor does not declare it", way_out))
        for variable in self._spec.variables:
            if variable.name in stored:
                findings += self._compare(f"{what}, {variable.name}", variable, stored[variable.name], state)
        return findings

    def _compare(self, what: str, variable: StateVariable, stored: _Variable, state: SparkState) -> list[Finding]:
        if _KINDS.get(stored.state_variable_type) is not variable.kind:
            return [Finding(what, f"Spark's is a {stored.state_variable_type}, not a {variable.kind} state", SAME)]
        if stored.ttl_enabled != (variable.ttl_ms is not None):
            with_ttl, without = "with a time to live", "without"
            theirs, ours = (with_ttl, without) if stored.ttl_enabled else (without, with_ttl)
            return [Finding(what, f"Spark's is {theirs}, the processor's {ours}", SAME)]
        rows = _rows(state, variable)
        expected = {"grouping keys": ("key", self._spec.grouping), "values": ("value", variable.value.columns)}
        if variable.map_key is not None:
            expected["keys of the map"] = ("user_map_key", variable.map_key.columns)
        findings = []
        for part, (column, columns) in expected.items():
            kind = _value_type(rows, variable) if column == "value" else rows.schema[column].dataType
            try:
                stored_columns = [type_text(field.type) for field in to_arrow_schema(kind.jsonValue())]
            except NotSupported as error:
                findings.append(Finding(f"{what}, {part}", str(error), _ANEW))
                continue
            own_columns = [type_text(field.type) for field in columns]
            if stored_columns != own_columns:
                why = f"Spark's are {column_list(stored_columns)}, not {column_list(own_columns)}"
                findings.append(Finding(f"{what}, {part}", why, SAME))
        return findings

    def tables(self, state: SparkState) -> list[MappedTable]:
        stored = _stored(_properties(state))
        keys = len(self._spec.keys)
        tables = [
            MappedTable(variable.name, self._table(state, variable, variable.name in stored), keys)
            for variable in self._spec.variables
        ]
        if self._spec.time_mode is not TimeMode.NONE:
            timers = state.reader.rows(state.operator, readRegisteredTimers="true")
            columns = [*_keys(timers), F.col("expiration_timestamp_ms")]
            tables.append(MappedTable(TIMERS, with_positional_names(timers, columns), keys))
        return [*tables, MappedTable(UNPROCESSED, self._empty(state, UNPROCESSED), keys)]  # Spark's batch is complete

    def _table(self, state: SparkState, variable: StateVariable, is_stored: bool) -> DataFrame:
        """Return the rows of a variable; empty for a new one, as in Spark."""
        if not is_stored:
            return self._empty(state, variable.name)
        rows = _rows(state, variable)
        columns = _keys(rows)
        if variable.kind is Kind.LIST:
            rows = rows.select("key", F.posexplode("list_value").alias("position", "list_value"))
            columns.append(F.col("position").cast("long"))
        elif variable.kind is Kind.MAP:
            columns += _keys(rows, "user_map_key")
        held = _VALUES[variable.kind]
        if variable.ttl_ms is None:
            return with_positional_names(rows, [*columns, *fields_of(rows, held)])
        unpacked = rows.withColumn("inner", F.col(held).getField("value"))
        columns += [*fields_of(unpacked, "inner"), F.col(held).getField(_TTL)]
        return with_positional_names(unpacked, columns)

    def _empty(self, state: SparkState, table: str) -> DataFrame:
        return state.reader.no_rows(pa.schema(list(self._spec.state_schemas[table])[1:]))


def _properties(state: SparkState) -> _Properties:
    return state.reader.properties(state.operator, _Properties)


def _stored(properties: _Properties) -> Mapping[str, _Variable]:
    """Return the user's variables by name."""
    variables = [one for one in properties.state_variables if one.state_variable_type != _OF_TIMERS]
    return {one.state_name: one for one in variables}


def _rows(state: SparkState, variable: StateVariable) -> DataFrame:
    """Return the rows of a variable, with lists as arrays to preserve their order."""
    flattened = str(variable.kind is not Kind.LIST).lower()
    return state.reader.rows(state.operator, stateVarName=variable.name, flattenCollectionTypes=flattened)


def _value_type(rows: DataFrame, variable: StateVariable) -> DataType:
    """Return the type of one value of the variable, without its time to live."""
    kind = rows.schema[_VALUES[variable.kind]].dataType
    if isinstance(kind, ArrayType):
        kind = kind.elementType
    if variable.ttl_ms is not None:
        assert isinstance(kind, StructType)
        kind = kind["value"].dataType
    return kind


def _keys(rows: DataFrame, name: str = "key") -> list[Column]:
    """Return the columns of a key, with 0.0 for -0.0, as in Penstock's keys."""
    kind = rows.schema[name].dataType
    assert isinstance(kind, StructType)
    return [
        column + F.lit(0.0).cast(field.dataType) if isinstance(field.dataType, DoubleType | FloatType) else column
        for column, field in zip(fields_of(rows, name), kind, strict=True)
    ]
