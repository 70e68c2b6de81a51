"""``collect_list``, ``collect_set`` and ``collect_union``: the values themselves.

A group's list is one value of its row in the state, as it is in Spark's; it is written anew when the group gets more,
and held until the group is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.value_lists import held_of, unrolled, with_held
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import plain_objects, validity
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.ordering import order_by
from penstock.state.vector import Rows, Vector


class Lists(Accumulator):
    """Values in the order in which they come; of ``collect_set``, and of the arrays of ``collect_union``, those that
    differ in Spark's sense, floats normalised.

    ``parameters``: whether nulls are passed over.
    """

    keeps_arrays = True

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._ignore_nulls] = call.parameters
        self._distinct = call.function != "collect_list"

    def fills(self) -> list[object]:
        return [None]

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        self._append(buffers[0], groups, groups[:0], pa.array([], buffers[0].kind.value_type))

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        owners = groups
        if self.call.function == "collect_union":
            owners, [values] = unrolled(groups, [values])
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
        owners, [values] = unrolled(groups, partials)
        self._append(buffers[0], groups, owners, values)

    def _append(self, buffer: Vector, touched: Rows, groups: Rows, values: pa.Array) -> None:
        """``values`` belong to ``groups``; every one of ``touched`` has a list from now on."""
        if self._distinct:
            groups, values = self._new_values(buffer, groups, values)
        present = np.unique(touched)
        there, [held] = held_of([buffer], present)
        owners = np.searchsorted(present, np.concatenate([there, groups]))
        both = pa.concat_arrays([held, values.cast(held.type)])
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(present)))])
        ordered = both.take(pa.array(order_by(owners)))
        buffer.set(present, pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), ordered, buffer.kind))

    def _new_values(self, buffer: Vector, groups: Rows, values: pa.Array) -> tuple[Rows, pa.Array]:
        """The first of equal ones, without those that are there already."""
        values = normalize_floats(values)
        owners, [both] = with_held([buffer], groups, [values])
        _, first = group_rows([pa.array(owners), both], len(owners))
        there = len(owners) - len(groups)
        new = np.sort(first[first >= there]) - there
        return groups[new], values.take(pa.array(new))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


def by_group(groups: Rows, values: pa.Array) -> Iterator[tuple[int, list[Any]]]:
    """Every group with its values as ``plain_objects``, in their order."""
    order = order_by(groups)
    objects = plain_objects(values.take(pa.array(order)))
    ordered = groups[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    ends = [*begins.tolist(), len(ordered)]
    for group, (begin, end) in zip(ordered[begins].tolist(), pairwise(ends), strict=True):
        yield group, objects[begin:end]
