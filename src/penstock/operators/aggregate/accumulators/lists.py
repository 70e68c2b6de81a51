"""``collect_list``, ``collect_set`` and ``collect_union``.

The list of a group is one value of its row in the state, as in Spark. The whole list is written again when the group
gets more values. It is kept until the group is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import plain_objects, validity
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.ordering import order_by
from penstock.state.vector import Rows, Vector


def sizes_of(lists: pa.Array) -> Rows:
    """Return the number of values of each list; 0 for null."""
    sizes: Rows = pc.list_value_length(lists).fill_null(0).to_numpy().astype(np.int64)
    return sizes


def flattened(groups: Rows, columns: Sequence[pa.Array]) -> tuple[Rows, list[pa.Array]]:
    """Return the group of each value in the lists, and the flattened columns.

    In each row the lists of all columns must be equally long.
    """
    return np.repeat(groups, sizes_of(columns[0])), [column.flatten() for column in columns]


def with_stored_lists(
    buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]
) -> tuple[Rows, list[pa.Array]]:
    """Return the group of each value, and the columns: the stored values of these groups, then the new values."""
    stored_rows, held = stored_lists(buffers, np.unique(groups))
    both = [pa.concat_arrays([old, new.cast(old.type)]) for old, new in zip(held, columns, strict=True)]
    return np.concatenate([stored_rows, groups]), both


def stored_lists(buffers: Sequence[Vector], groups: Rows) -> tuple[Rows, list[pa.Array]]:
    """Return the group of each value in the stored lists of these groups, and the flattened columns."""
    return flattened(groups, [buffer.to_arrow(groups) for buffer in buffers])


def store_lists(buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> None:
    """Store these values as the lists of their groups. ``groups`` must ascend."""
    present, sizes = np.unique(groups, return_counts=True)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    for buffer, column in zip(buffers, columns, strict=True):
        buffer.set(present, pa.ListArray.from_arrays(offsets, column, buffer.kind))


class Lists(Accumulator):
    """``collect_list``, ``collect_set`` and ``collect_union``: values in the order of arrival.

    ``collect_set`` and ``collect_union`` keep distinct values, with normalized floats.

    ``parameters``: True if nulls are skipped.
    """

    keeps_arrays = True

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._ignore_nulls] = call.parameters
        self._distinct = call.function != "collect_list"

    def initial_values(self) -> list[object]:
        return [None]

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        self._append(buffers[0], groups, groups[:0], pa.array([], buffers[0].kind.value_type))

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        owners = groups
        if self.call.function == "collect_union":
            owners, [values] = flattened(groups, [values])
        if self._ignore_nulls and values.null_count:
            known = validity(values)
            owners, values = owners[known], values.filter(pa.array(known))
        self._append(buffers[0], groups, owners, values)

    def partial(self, groups: Rows, count: int, arguments: Sequence[pa.Array]) -> list[pa.Array] | None:
        [values] = arguments
        [field] = self.call.buffer_fields(0)
        if self._distinct or values.type != field.type.value_type:
            return None
        if self._ignore_nulls and values.null_count:
            known = validity(values)
            groups, values = groups[known], values.filter(pa.array(known))
        offsets = pa.array(np.concatenate([[0], np.cumsum(np.bincount(groups, minlength=count))]), pa.int32())
        ordered = values.take(pa.array(order_by(groups)))
        return [pa.ListArray.from_arrays(offsets, ordered, field.type)]

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        owners, [values] = flattened(groups, partials)
        self._append(buffers[0], groups, owners, values)

    def _append(self, buffer: Vector, touched: Rows, groups: Rows, values: pa.Array) -> None:
        """Append ``values`` to the lists of ``groups``. Each group in ``touched`` gets a list, which may be empty."""
        if self._distinct:
            groups, values = self._new_values(buffer, groups, values)
        present = np.unique(touched)
        stored_rows, [held] = stored_lists([buffer], present)
        owners = np.searchsorted(present, np.concatenate([stored_rows, groups]))
        both = pa.concat_arrays([held, values.cast(held.type)])
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(present)))])
        ordered = both.take(pa.array(order_by(owners)))
        buffer.set(present, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered, buffer.kind))

    def _new_values(self, buffer: Vector, groups: Rows, values: pa.Array) -> tuple[Rows, pa.Array]:
        """Return the distinct values that are not stored yet, and their groups."""
        values = normalize_floats(values)
        owners, [both] = with_stored_lists([buffer], groups, [values])
        _, first = group_rows([pa.array(owners), both], len(owners))
        stored_rows = len(owners) - len(groups)
        new = np.sort(first[first >= stored_rows]) - stored_rows
        return groups[new], values.take(pa.array(new))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


def by_group(groups: Rows, values: pa.Array) -> Iterator[tuple[int, list[Any]]]:
    """Yield every group with its values, as ``plain_objects`` in their order."""
    order = order_by(groups)
    objects = plain_objects(values.take(pa.array(order)))
    ordered = groups[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = [*begins.tolist(), len(ordered)]
    for group, (begin, end) in zip(ordered[begins].tolist(), pairwise(ends), strict=True):
        yield group, objects[begin:end]


class DistinctValues(Accumulator):
    """Function with DISTINCT over session windows: each group stores its distinct argument values.

    When two sessions are merged, the distinct values of the result must be computed from the values of both. Therefore
    the values are stored in the session's row, and the function is evaluated when the session is emitted. Buffers: one
    list per argument; the values at one position belong to one row.
    """

    def __init__(self, call: AggregateCall, function: Accumulator) -> None:
        super().__init__(call)
        self._function = function

    def initial_values(self) -> list[object]:
        return [None for _ in self.call.buffer_fields(0)]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        owners, columns = with_stored_lists(buffers, groups, [normalize_floats(argument) for argument in arguments])
        _, first = group_rows([pa.array(owners), *columns], len(owners))
        first = np.sort(first)
        first = first[np.argsort(owners[first], kind="stable")]
        store_lists(buffers, owners[first], [column.take(pa.array(first)) for column in columns])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, *flattened(groups, partials))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        owners, columns = flattened(np.arange(len(rows)), [buffer.to_arrow(rows) for buffer in buffers])
        fields, initial_values = self._function.call.buffer_fields(0), self._function.initial_values()
        fresh = [Vector(field.type, fill) for field, fill in zip(fields, initial_values, strict=True)]
        for vector in fresh:
            vector.extend(len(rows))
        self._function.begin(fresh, np.arange(len(rows)))
        self._function.add(fresh, owners, columns)
        return self._function.result(fresh, np.arange(len(rows)))
