"""Filters that Spark hands over before it plans a read: which key groups they leave, and which rows.

Spark evaluates every filter again on what it gets: nothing here has to be complete. But no row may be dropped that a
filter would keep, so that whatever cannot be told for sure is kept: a value that does not fit the column's type, floats
(NaN equals NaN in Spark), nested columns as a whole.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from penstock.snapshot.state_tables import KEY_GROUP, StateTable
from penstock.state.hashing import groups_of

MAX_KEYS = 1024
"""Keys that a filter names; of more, all key groups are read."""
Wanted = npt.NDArray[np.bool_]
Path = tuple[str, ...]

_BOUNDS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_COMPARED = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
}
_TEXT = {StringStartsWith: pc.starts_with, StringEndsWith: pc.ends_with, StringContains: pc.match_substring}
_UNSURE = (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError)
"""What a value that does not fit its column ends in."""


def wanted_groups(filters: Sequence[Filter], table: StateTable) -> Wanted:
    """By key group, whether rows of it can pass the filters, which name columns as ``table.shown_names``."""
    wanted = np.ones(table.max_parallelism, np.bool_)
    for one in filters:
        if getattr(one, "attribute", None) == (KEY_GROUP,):
            wanted &= _groups_between(one, table.max_parallelism)
    keys = _groups_of_keys(filters, table)
    if keys is not None:
        wanted &= np.isin(np.arange(table.max_parallelism), keys)
    return wanted


def _groups_between(one: Filter, count: int) -> Wanted:
    groups = np.arange(count)
    if isinstance(one, In):
        return np.isin(groups, [value for value in one.value if isinstance(value, int)])
    compare = _BOUNDS.get(type(one))
    value = getattr(one, "value", None)
    if compare is None or not isinstance(value, int):
        return np.ones(count, np.bool_)
    return np.asarray(compare(groups, value), np.bool_)


def _groups_of_keys(filters: Sequence[Filter], table: StateTable) -> npt.NDArray[np.int16] | None:
    """The key groups of all keys that can pass; None if that may be any."""
    if table.hashed is None:
        return None
    names = table.shown_names
    fields = [table.schema.field(1 + position).with_name(names[1 + position]) for position in range(table.hashed)]
    leaves = [leaf for field in fields for leaf in _leaves(field)]
    known = _values(filters)
    if any(path not in known for path, _ in leaves) or np.prod([len(known[path]) for path, _ in leaves]) > MAX_KEYS:
        return None
    keys = list(product(*(known[path] for path, _ in leaves)))
    try:
        columns = [pa.array([key[i] for key in keys], kind) for i, (_, kind) in enumerate(leaves)]
    except _UNSURE:
        return None
    return groups_of(columns, len(keys), table.max_parallelism)


def _leaves(field: pa.Field) -> Iterator[tuple[Path, pa.DataType]]:
    """Structs hash as their fields do, one after the other."""
    if not pa.types.is_struct(field.type):
        yield (field.name,), field.type
        return
    for position in range(field.type.num_fields):
        for path, kind in _leaves(field.type.field(position)):
            yield (field.name, *path), kind


def _values(filters: Sequence[Filter]) -> Mapping[Path, Sequence[object]]:
    """The values that a column can have."""
    found: dict[Path, Sequence[object]] = {}
    for one in filters:
        if isinstance(one, EqualTo | EqualNullSafe):
            found[one.attribute] = [one.value]
        elif isinstance(one, IsNull):
            found[one.attribute] = [None]
        elif isinstance(one, In):
            found.setdefault(one.attribute, list(dict.fromkeys(one.value)))
    return found


def passing(batch: pa.RecordBatch, names: Sequence[str], filters: Sequence[Filter]) -> pa.RecordBatch:
    """The rows without those that surely fail a filter; ``names`` are the columns', as filters call them."""
    kept = None
    for one in filters:
        mask = _mask(batch, names, one)
        if mask is not None:
            mask = pc.fill_null(mask, False)
            kept = mask if kept is None else pc.and_(kept, mask)
    return batch if kept is None else batch.filter(kept)


def _mask(batch: pa.RecordBatch, names: Sequence[str], one: Filter) -> pa.Array | None:
    """True where it passes, null or false where it does not; None: nobody knows."""
    if isinstance(one, Not):
        mask = _mask(batch, names, one.child)
        return None if mask is None else pc.invert(mask)
    path: Path = getattr(one, "attribute", ())
    try:
        column = batch.column(list(names).index(path[0]))
        for name in path[1:]:
            column = pc.struct_field(column, name)
    except (*_UNSURE, IndexError):
        return None
    if isinstance(one, IsNull):
        return pc.is_null(column)
    if isinstance(one, IsNotNull):
        return pc.is_valid(column)
    if pa.types.is_nested(column.type) or pa.types.is_floating(column.type):
        return None
    try:
        return _compared(column, one)
    except _UNSURE:
        return None


def _compared(column: pa.Array, one: Filter) -> pa.Array | None:
    if isinstance(one, In):
        if any(value is None for value in one.value):
            return None
        found = pc.is_in(column, pa.array(list(one.value), column.type))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
    value = getattr(one, "value", None)
    if isinstance(one, EqualNullSafe):
        if value is None:
            return pc.is_null(column)
        return pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
    if value is None:
        return None
    if type(one) in _TEXT:
        return _TEXT[type(one)](column, value) if pa.types.is_string(column.type) else None
    compare = _COMPARED.get(type(one))
    return None if compare is None else compare(column, pa.scalar(value, column.type))
