"""State variables of a StatefulProcessor, and the layout of their keyed tables.

The key of every table starts with the columns of the grouping key, under their names in the DataFrame. These columns
alone determine the key group. The tables are::

    value state   grouping key                    -> the value's fields
    list state    grouping key, __position        -> the element's fields; positions ascend from 0, without gaps unless
                                                     the list has a time to live (expired elements leave gaps)
    map state     grouping key, the map key's     -> the value's fields
                  fields
    __timers      grouping key, __expires_ms      -> no values
    __waiting     grouping key, __position        -> input rows whose key was unprocessed at the snapshot

With a time to live, the last value column is ``__expires_ms``: from this processing time on, the row does not exist for
the user. Timestamps are longs, in milliseconds since 1970. A field whose name is already taken gets a suffix ``_1``,
``_2`` and so on. The table of a variable has the variable's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from penstock.state.stored_form import DELETED_COLUMN, KEY_GROUP_COLUMN
from penstock.state.table import TableSpec

TIMERS = "__timers"
UNPROCESSED = "__waiting"
POSITION = "__position"
EXPIRES = "__expires_ms"

TIME_MODE = "time_mode"
"""Name of the scalar with the ``TimeMode`` of the timers' timestamps."""

_TAKEN = (KEY_GROUP_COLUMN, DELETED_COLUMN, POSITION, EXPIRES)


class Kind(StrEnum):
    """Kind of a state variable."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"


class TimeMode(StrEnum):
    """Catalyst's time modes."""

    NONE = "NoTime"
    PROCESSING_TIME = "ProcessingTime"
    EVENT_TIME = "EventTime"


@dataclass(frozen=True)
class Fields:
    """Declared Spark schema: as JSON text for PySpark's converters, and as Arrow columns."""

    spark_json: str
    columns: pa.Schema


@dataclass(frozen=True)
class StateVariable:
    """State variable that ``getValueState``, ``getListState`` or ``getMapState`` declared.

    Attributes:
        map_key: schema of the keys of a map state; None for other kinds.
        ttl_ms: time to live of a value after it was written, in milliseconds. If None, it is kept for ever.
    """

    name: str
    kind: Kind
    value: Fields
    map_key: Fields | None = None
    ttl_ms: int | None = None

    def key_count(self, grouping: pa.Schema) -> int:
        return len(grouping) + len(self._own_keys())

    def table_schema(self, grouping: pa.Schema) -> pa.Schema:
        """Return the key columns, then the value columns. ``grouping``: schema of the grouping key."""
        fields = [*grouping, *self._own_keys(), *self.value.columns]
        fields = _with_unique_names(fields, {len(grouping)} if self.kind is Kind.LIST else set())
        return pa.schema(fields if self.ttl_ms is None else [*fields, pa.field(EXPIRES, pa.int64())])

    def renamed(self, grouping: pa.Schema) -> dict[str, str]:
        """Return the field name of each value column whose name differs from that of its field."""
        stored = self.table_schema(grouping).names[self.key_count(grouping) :]
        return {
            column: field for column, field in zip(stored, self.value.columns.names, strict=False) if column != field
        }

    def table_spec(self, grouping: pa.Schema, max_parallelism: int) -> TableSpec:
        keys = self.key_count(grouping)
        prefix = len(grouping) if keys > len(grouping) else 0
        return TableSpec(
            self.table_schema(grouping), keys, max_parallelism, key_group_columns=len(grouping), prefix=prefix
        )

    def _own_keys(self) -> list[pa.Field]:
        """Return the key columns that follow the grouping key."""
        if self.kind is Kind.LIST:
            return [pa.field(POSITION, pa.int64())]
        return list(self.map_key.columns) if self.map_key is not None else []


def timers_schema(grouping: pa.Schema) -> pa.Schema:
    """Return the schema of the table of timers. All its columns are key columns."""
    return pa.schema([*_with_unique_names(list(grouping), set()), pa.field(EXPIRES, pa.int64())])


def timers_spec(grouping: pa.Schema, max_parallelism: int) -> TableSpec:
    return TableSpec(
        timers_schema(grouping),
        len(grouping) + 1,
        max_parallelism,
        key_group_columns=len(grouping),
        prefix=len(grouping),
        event_time=(len(grouping),),
    )


def unprocessed_schema(grouping: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """Return the schema of the table of unprocessed input rows. ``rows``: schema of the input."""
    fields = [*grouping, pa.field(POSITION, pa.int64()), *rows]
    return pa.schema(_with_unique_names(fields, {len(grouping)}))


def _with_unique_names(fields: list[pa.Field], own: set[int]) -> list[pa.Field]:
    """Return the fields, nullable and with distinct names. ``own``: positions of fields that have reserved names."""
    taken = set(_TAKEN)
    result = []
    for position, field in enumerate(fields):
        name = field.name
        number = 0
        while name in taken and position not in own:
            number += 1
            name = f"{field.name}_{number}"
        taken.add(name)
        result.append(field.with_name(name).with_nullable(True))
    return result
