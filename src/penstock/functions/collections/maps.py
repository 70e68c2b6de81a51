"""Functions of maps. Plain functions are ``ArrayFunction``s for ``VectorFunction``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.collections import failures as errors
from penstock.functions.collections.lists import concatenated
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import (
    Ragged,
    as_type,
    interleave,
    is_null,
    list_array,
    plain_floats,
    ragged,
    struct_array,
)
from penstock.functions.core.ranks import ranks
from penstock.functions.core.vectors import Vector, first, null_outside, select, to_vector
from penstock.functions.logic.comparison import compare

Arrays = list[pa.Array]


@dataclass(frozen=True)
class MapRules:
    """Rules by which Spark builds a map from entries.

    Attributes:
        last_wins: of equal keys, keep the position of the first and the value of the last. Otherwise equal keys are an
            error.
        plain_keys: normalize -0.0 and NaN in keys. Where Spark copies whole key arrays, keys keep their bits, except in
            maps that had equal keys.
    """

    last_wins: bool
    plain_keys: bool

    def build(
        self, sizes: Vector, keys: pa.Array, values: pa.Array, data_type: pa.DataType, rows: Mask | None = None
    ) -> pa.Array:
        """Return maps of these entries, null outside ``rows``.

        Raises:
            EvaluationError: a key is null, or it occurs twice and ``last_wins`` is False.
        """
        if keys.null_count:
            raise errors.null_map_key()
        keys = as_type(keys, data_type.key_type)
        values = as_type(values, data_type.item_type)
        plain = plain_floats(keys)
        lists = Ragged(np.asarray(sizes), plain)
        order = ranks(plain)
        codes = lists.row_of * (order.max(initial=0) + 1) + order
        _, begin, back = np.unique(codes, return_index=True, return_inverse=True)
        again = np.ones(len(codes), np.bool_)
        again[begin] = False
        if again.any() and not self.last_wins:
            raise errors.duplicated_map_key(keys[first(again)])
        if again.any():
            last = np.zeros(len(begin), np.int64)
            last[back.reshape(-1)] = np.arange(len(codes))
            values = values.take(pa.array(last[back.reshape(-1)]))
        if not self.plain_keys and pa.types.is_floating(keys.type):
            plain = pc.if_else(pa.array(lists.any(again)[lists.row_of]), plain, keys)
        entries = struct_array([plain, values], data_type.field(0).type, None, len(plain))
        return Ragged(lists.sizes, entries).keep(~again).array(data_type, rows)


class MakeMap(Expression):
    """``map(key, value, ...)``. The map itself is never null."""

    nullable = False

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType, rules: MapRules) -> None:
        self.children = tuple(children)
        self.data_type = data_type
        self.rules = rules

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = [child.evaluate(batch, mask) for child in self.children]
        rows = np.ones(batch.num_rows, np.bool_) if mask is None else mask
        parts = []
        for start, data_type in enumerate((self.data_type.key_type, self.data_type.item_type)):
            columns = [as_type(array, data_type) for array in arrays[start::2]]
            values = interleave(columns) if columns else pa.nulls(0, data_type)
            parts.append(values.filter(pa.array(np.repeat(rows, len(columns)))))
        sizes = np.where(rows, len(arrays) // 2, 0)
        return self.rules.build(sizes, parts[0], parts[1], self.data_type)


def from_arrays(rules: MapRules, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map_from_arrays(keys, values)``."""
    keys, values = (ragged(array, rows) for array in arrays)
    if not np.array_equal(keys.sizes, values.sizes):
        raise errors.unequal_map_parts()
    return rules.build(keys.sizes, keys.values, values.values, data_type, rows)


def from_entries(rules: MapRules, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map_from_entries``: null if an entry is null."""
    lists = ragged(arrays[0], rows)
    complete = select(rows, ~lists.any(is_null(lists.values)))
    lists = ragged(arrays[0], complete)
    keys, values = (pc.struct_field(lists.values, [i]) for i in (0, 1))
    return rules.build(lists.sizes, keys, values, data_type, complete)


def concat(rules: MapRules, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map_concat``."""
    lists = concatenated([ragged(array, rows) for array in arrays], data_type.field(0).type)
    return rules.build(lists.sizes, lists.values.field(0), lists.values.field(1), data_type, rows)


def entries(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map_entries``."""
    return ragged(arrays[0], rows).array(data_type, rows)


def part(ordinal: int, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map_keys`` (``ordinal`` is 0) or ``map_values`` (1)."""
    lists = ragged(arrays[0], rows)
    return list_array(lists.sizes, lists.values.field(ordinal), data_type, rows)


def lookup(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``map[key]``: null if there is no such key."""
    lists = ragged(arrays[0], rows)
    keys, values = lists.values.field(0), lists.values.field(1)
    found = lists.first(to_vector(compare("=", keys, as_type(lists.expand_rows(arrays[1]), keys.type))))
    return as_type(values.take(pa.array(np.maximum(found, 0), mask=found < 0)), data_type)


def from_text(
    separators: tuple[str, str], rules: MapRules, arrays: Arrays, rows: Mask | None, data_type: pa.DataType
) -> pa.Array:
    """Return ``str_to_map``. A pair without the second separator has a null value."""
    encoded = null_outside(arrays[0], rows).dictionary_encode()
    keys: list[str] = []
    values: list[str | None] = []
    sizes = []
    for text in encoded.dictionary.to_pylist():
        pairs = [pair.split(separators[1], 1) for pair in text.split(separators[0])]
        keys += [pair[0] for pair in pairs]
        values += [pair[1] if len(pair) > 1 else None for pair in pairs]
        sizes.append(len(pairs))
    texts = pa.array(keys, pa.string()), pa.array(values, pa.string())
    distinct = rules.build(np.array(sizes, np.int64), *texts, data_type)
    return distinct.take(encoded.indices)
