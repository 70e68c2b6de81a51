"""Option ``keys`` of a state table: the keys whose rows are read, and their key groups.

Filters of a DataFrame cannot be used for this. Spark 4.3 stores the filters that it passed to ``pushFilters`` with the
DataFrame's source and applies them to every later use of that DataFrame. An option applies to one ``load`` and to all
DataFrames that are derived from it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import ConfigError
from penstock.snapshots.restoring.state_tables import StateTable
from penstock.state.hashing import groups_of
from penstock.state.key_index import UNKNOWN, KeyIndex, is_indexable

GroupMask = npt.NDArray[np.bool_]
_UNFIT = (pa.ArrowException, TypeError, ValueError, KeyError, OverflowError, ArithmeticError)
"""Errors of a value that does not fit its column."""


@dataclass(frozen=True)
class KeyFilter:
    """Keys whose rows are read.

    Attributes:
        groups: by key group, True if one of the keys can be in it.
        positions: positions of the table's columns in ``index``.
        index: the keys; None: all rows are read.
    """

    groups: GroupMask
    positions: tuple[int, ...] = ()
    index: KeyIndex | None = None

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of ``batch``, which has the table's columns, that have one of the keys."""
        if self.index is None:
            return batch
        found = self.index.find([batch.column(position) for position in self.positions], batch.num_rows)
        return batch.filter(pa.array(found != UNKNOWN))


def parse_key_filter(text: str, table: StateTable) -> KeyFilter:
    """Parse the option.

    Args:
        text: a JSON object with one field per key column, or a list of such objects; empty: all keys are read.

    Raises:
        ConfigError: the text has another form, a column is missing or unknown, or a value does not fit its column.
    """
    if not text:
        return KeyFilter(np.ones(table.max_parallelism, np.bool_))
    names = table.display_names[1 : 1 + (table.key_count or 0)]
    needed = names if table.hash_key_count is None else names[: table.hash_key_count]
    keys = _objects(text)
    given = [name for name in names if name in keys[0]]
    for key in keys:
        if set(key) != set(given) or not set(needed) <= set(given):
            optional = [name for name in names if name not in needed]
            more = f", and may have {', '.join(optional)}, the same in all" if optional else ""
            raise ConfigError(
                f"option keys: {json.dumps(key)} must have the key columns of {table.name}: {', '.join(needed)}{more}"
            )
    positions = tuple(table.display_names.index(name) for name in given)
    columns = [_column(table, position, keys) for position in positions]
    groups = np.ones(table.max_parallelism, np.bool_)
    if table.hash_key_count is not None:
        groups = np.isin(
            np.arange(table.max_parallelism),
            groups_of(columns[: table.hash_key_count], len(keys), table.max_parallelism),
        )
    return KeyFilter(groups, positions, KeyIndex(columns, len(keys), [True] * len(columns)))


def _objects(text: str) -> list[dict[str, Any]]:
    try:
        parsed = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"option keys is not JSON: {error}; give, for example, {_EXAMPLE}") from None
    keys = parsed if isinstance(parsed, list) else [parsed]
    if not keys or not all(isinstance(key, dict) for key in keys):
        raise ConfigError(f"option keys must be an object or a list of objects, for example {_EXAMPLE}")
    return keys


_EXAMPLE = '{"user": "ada"} or [{"user": "ada"}, {"user": "bob"}]'


def _column(table: StateTable, position: int, keys: Sequence[Mapping[str, Any]]) -> pa.Array:
    name, kind = table.display_names[position], table.schema.field(position).type
    if not is_indexable(kind):
        raise ConfigError(f"option keys: column {name} of type {kind} cannot be looked up; leave the option out")
    try:
        return _array([key[name] for key in keys], kind)
    except _UNFIT as error:
        raise ConfigError(f"option keys: a value of column {name} does not fit its type {kind}: {error}") from None


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Convert values of JSON: types that JSON does not have are given as text, binary values in base 64."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        for value in values:
            if value is not None and set(value) != {field.name for field in fields}:
                raise ValueError(f"give all fields: {', '.join(field.name for field in fields)}")
        children = [_array([None if v is None else v[field.name] for v in values], field.type) for field in fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pa.array([v is None for v in values]))
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else b64decode(value, validate=True) for value in values], kind)
    if pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return pa.array(values, kind)
    if any(isinstance(value, bool) for value in values):
        raise ValueError("it is a boolean")
    return pa.array([None if value is None else str(value) for value in values], pa.string()).cast(kind)
