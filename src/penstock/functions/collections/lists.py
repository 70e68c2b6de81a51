"""Functions of arrays. Plain functions are ``ArrayFunction``s for ``VectorFunction``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.collections import failures as errors
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import (
    Ragged,
    aligned,
    as_type,
    interleave,
    is_null,
    list_array,
    ragged,
    struct_array,
    total_of,
)
from penstock.functions.core.ranks import ranks, total_order
from penstock.functions.core.size_limits import require_elements, sized_by
from penstock.functions.core.strict import Eager, Strict
from penstock.functions.core.vectors import (
    Vector,
    first,
    from_vector,
    select,
    storage_type,
    to_vector,
    valid_rows,
)
from penstock.functions.logic.comparison import compare

MAX_ARRAY_LENGTH = 2**31 - 1 - 15
"""Spark's maximum length of an array."""

Arrays = list[pa.Array]


class MakeArray(Expression):
    """``array(...)``. The array itself is never null."""

    nullable = False

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType) -> None:
        self.children = tuple(children)
        self.data_type = data_type

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        element = self.data_type.value_type
        arrays = [as_type(child.evaluate(batch, mask), element) for child in self.children]
        values = interleave(arrays) if arrays else pa.nulls(0, element)
        return list_array(np.full(batch.num_rows, len(arrays)), values, self.data_type)


class GetItem(Strict):
    """``array[index]`` with a zero-based index.

    An index out of bounds raises if ``ansi`` is set and gives null otherwise.
    """

    def __init__(self, array: Expression, index: Expression, ansi: bool) -> None:
        super().__init__((array, index), array.data_type.value_type)
        self.ansi = ansi

    def compute(self, arrays: Arrays, rows: Mask | None) -> pa.Array:
        index = to_vector(arrays[1]).astype(np.int64)
        return item(arrays[0], index, rows, failures.array_index if self.ansi else None)


def item(lists: pa.Array, index: Vector, rows: Mask | None, error: Callable[..., Exception] | None) -> pa.Array:
    """Return elements by zero-based index.

    An index out of bounds raises ``error(index, size)``; the result is null if ``error`` is None.
    """
    offsets = to_vector(lists.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    outside = select(rows, (index < 0) | (index >= sizes))
    if error is not None and outside.any():
        row = first(outside)
        raise error(index[row], sizes[row])
    usable = select(rows, ~outside)
    positions = np.where(usable, offsets[:-1] + index, 0)
    return lists.values.take(pa.array(positions, mask=~usable))


def element_at(ansi: bool, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``element_at`` of an array: one-based, from the end if negative."""
    index = to_vector(arrays[1]).astype(np.int64)
    if select(rows, index == 0).any():
        raise errors.index_of_zero()
    sizes = np.diff(to_vector(arrays[0].offsets).astype(np.int64))
    outside = select(rows, np.abs(index) > sizes)
    if ansi and outside.any():
        raise errors.element_outside(index[first(outside)], sizes[first(outside)])
    return item(arrays[0], np.where(index > 0, index - 1, index + sizes), rows, None)


class Size(Expression):
    """``size`` of an array or map. The size of null is null, or -1 with ``spark.sql.legacy.sizeOfNull``."""

    data_type = pa.int32()

    def __init__(self, child: Expression, null_is_minus_one: bool) -> None:
        self.child = child
        self.null_is_minus_one = null_is_minus_one
        self.nullable = child.nullable and not null_is_minus_one

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        array = self.child.evaluate(batch, mask)
        sizes = from_vector(np.diff(to_vector(array.offsets)), pa.int32(), valid_rows(array))
        return pc.fill_null(sizes, -1) if self.null_is_minus_one else sizes


def list_fields(ordinal: int, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_of_structs.field``: an array of the field's values, null for a null struct."""
    lists = ragged(arrays[0], rows)
    return Ragged(lists.sizes, pc.struct_field(lists.values, [ordinal])).array(data_type, rows)


def _equals(lists: Ragged, searched: pa.Array) -> tuple[Mask, Mask]:
    """Return masks of the values that equal the searched value of their row, and of the values that are null."""
    return to_vector(compare("=", lists.values, as_type(lists.expand_rows(searched), lists.values.type))), is_null(
        lists.values
    )


def contains(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_contains``: null where no element is equal and there is a null."""
    lists = ragged(arrays[0], rows)
    equal, null = _equals(lists, arrays[1])
    found = lists.any(equal)
    return from_vector(found, data_type, select(rows, found | ~lists.any(null)))


def position(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_position``: one-based, 0 if no element is equal."""
    lists = ragged(arrays[0], rows)
    found = lists.first(_equals(lists, arrays[1])[0])
    return from_vector(np.where(found >= 0, found - lists.starts + 1, 0), data_type, rows)


def extreme(sign: int, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_max`` (``sign`` is 1) or ``array_min`` (-1). Nulls are skipped; the first of equals is kept."""
    lists = ragged(arrays[0], rows)
    order = ranks(lists.values)
    key = np.where(order == 0, np.iinfo(np.int64).min, sign * order)
    best = np.full(len(lists.sizes), np.iinfo(np.int64).min)
    np.maximum.at(best, lists.row_of, key)
    found = lists.first((key == best[lists.row_of]) & (order > 0))
    return as_type(lists.values.take(pa.array(np.maximum(found, 0), mask=found < 0)), data_type)


def sort(descending: bool, exact: bool, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``sort_array``: nulls first in ascending and last in descending order. The sort is stable.

    Args:
        descending: sort in descending order.
        exact: sort -0.0 before 0.0, as Spark does for arrays of primitive values without nulls.
        arrays: one array.
        rows: the selected rows.
        data_type: the result's type.
    """
    lists = ragged(arrays[0], rows)
    if exact and pa.types.is_floating(lists.values.type):
        floats = to_vector(lists.values).astype(np.float64)
        keys = total_order(np.where(np.isnan(floats), np.nan, floats))
    else:
        keys = ranks(lists.values)
    return lists.reordered(np.lexsort((-keys if descending else keys, lists.row_of))).array(data_type, rows)


def cut(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``slice(array, start, length)``: one-based, from the end if negative."""
    start, length = (to_vector(array).astype(np.int64) for array in arrays[1:])
    lists = ragged(arrays[0], rows)
    if select(rows, start == 0).any():
        raise errors.slice_start()
    begin = np.where(start > 0, start - 1, start + lists.sizes)
    negative = select(rows, length < 0)
    if negative.any():
        raise errors.slice_length(length[first(negative)])
    end = np.where((begin < 0) | (begin >= lists.sizes), begin, begin + length)
    chosen = (lists.position >= begin[lists.row_of]) & (lists.position < end[lists.row_of])
    return lists.keep(chosen).array(data_type, rows)


class ConcatArrays(Eager):
    """``concat`` of arrays; null if any of them is null."""

    def compute(self, arrays: Arrays, rows: Mask | None) -> pa.Array:
        return append(arrays, rows, self.data_type)


def append(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return the arrays of each row, concatenated."""
    parts = [ragged(array, rows) for array in arrays]
    return concatenated(parts, data_type.value_type).array(data_type, rows)


def concatenated(parts: Sequence[Ragged], value_type: pa.DataType) -> Ragged:
    """Return, for each row, the values of the first part, then those of the second part, and so on."""
    values = pa.concat_arrays([as_type(part.values, value_type) for part in parts])
    row_of = np.concatenate([part.row_of for part in parts])
    sizes = np.sum([part.sizes for part in parts], axis=0)
    return Ragged(sizes, values.take(pa.array(np.argsort(row_of, kind="stable"))))


@sized_by(1)
def insert(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_insert(array, position, value)``: one-based, from the end if negative.

    If the position is outside the array, nulls fill the gap.
    """
    lists = ragged(arrays[0], rows)
    index = to_vector(arrays[1]).astype(np.int64)
    if select(rows, index == 0).any():
        raise errors.index_of_zero()
    selected = np.ones(len(index), np.bool_) if rows is None else rows
    sizes = lists.sizes
    from_end = index + sizes + 1  # position of the value, from the first element
    insert_at = np.where(index > 0, index - 1, np.maximum(from_end, 0))
    shift = np.where(index > 0, 0, np.maximum(-from_end, 0))  # number of nulls between the value and the array
    total = np.where(selected, np.maximum(np.maximum(insert_at + 1, sizes + 1), sizes + shift + 1), 0)
    too_many = select(rows, total > MAX_ARRAY_LENGTH)
    if too_many.any():
        raise errors.too_many_elements(total[first(too_many)], "array_insert")
    require_elements(total_of(total))
    out = Ragged(total, pa.nulls(int(total.sum())))
    target = lists.position + shift[lists.row_of]
    target += target >= insert_at[lists.row_of]
    source = np.full(len(out.values), -1)
    source[out.starts[lists.row_of] + target] = np.arange(len(lists.values))
    source[(out.starts + insert_at)[selected]] = len(lists.values) + np.flatnonzero(selected)
    values = pa.concat_arrays([as_type(array, data_type.value_type) for array in (lists.values, arrays[2])])
    taken = values.take(pa.array(np.maximum(source, 0), mask=source < 0)) if len(source) else values.slice(0, 0)
    return Ragged(total, taken).array(data_type, rows)


@sized_by(1)
def repeat(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_repeat(value, count)``."""
    sizes = np.maximum(to_vector(arrays[1]).astype(np.int64), 0)
    sizes = sizes if rows is None else np.where(rows, sizes, 0)
    too_many = sizes > MAX_ARRAY_LENGTH
    if too_many.any():
        raise errors.too_many_elements(sizes[first(too_many)], "array_repeat")
    require_elements(total_of(sizes))
    return list_array(sizes, arrays[0].take(pa.array(np.repeat(np.arange(len(sizes)), sizes))), data_type, rows)


def flatten(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``flatten``: null if an inner array is null."""
    outer = ragged(arrays[0], rows)
    complete = ~outer.any(is_null(outer.values))
    rows = complete if rows is None else rows & complete
    inner = ragged(outer.values, ~is_null(outer.values) & complete[outer.row_of])
    sizes = np.bincount(outer.row_of, inner.sizes, len(outer.sizes)).astype(np.int64)
    return list_array(sizes, inner.values, data_type, rows)


def reverse(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``reverse`` of arrays."""
    lists = ragged(arrays[0], rows)
    return lists.reordered((lists.ends + lists.starts)[lists.row_of] - 1 - np.arange(len(lists.values))).array(
        data_type, rows
    )


def zipped(arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``arrays_zip``: structs of the elements at each position. Shorter arrays are extended with nulls."""
    parts = [ragged(array, rows) for array in arrays]
    sizes = np.max([part.sizes for part in parts], axis=0)
    struct = data_type.value_type
    fields = [as_type(aligned(part, sizes), struct.field(i).type) for i, part in enumerate(parts)]
    return list_array(sizes, struct_array(fields, struct, None, int(sizes.sum())), data_type, rows)


def joined(replaced: bool, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``array_join(array, separator[, replacement])``. Nulls are left out, or replaced if ``replaced``."""
    lists = ragged(arrays[0], rows)
    if replaced:
        values = pc.coalesce(lists.values, lists.expand_rows(arrays[2]))
        lists = Ragged(lists.sizes, values)
    else:
        lists = lists.keep(~is_null(lists.values))
    texts = lists.array(pa.list_(pa.string()), rows)
    return pc.binary_join(texts, arrays[1])


@sized_by(0, 1, 2)
def sequence(stride: int, unit: int, arrays: Arrays, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``sequence(start, stop[, step])``. It contains ``stop`` if the steps reach it exactly.

    Args:
        stride: the default step, up or down: 1 for integers and dates, one day for instants.
        unit: the divisor that converts a given step to the unit of the values.
        arrays: start, stop and, if given, step.
        rows: the selected rows.
        data_type: the result's type.
    """
    start, stop = (to_vector(array).astype(np.int64) for array in arrays[:2])
    if len(arrays) > 2:
        given = to_vector(arrays[2]).astype(np.int64)
        if select(rows, given % unit != 0).any():
            raise errors.sequence_of_parts_of_days()
        step = given // unit
    else:
        step = np.where(start <= stop, stride, -stride)
    allowed = ((step > 0) & (start <= stop)) | ((step < 0) & (start >= stop)) | ((step == 0) & (start == stop))
    wrong = select(rows, ~allowed)
    if wrong.any():
        row = first(wrong)
        raise errors.sequence_boundaries(start[row], stop[row], step[row])
    with np.errstate(all="ignore"):
        # Distances are unsigned words, because they may overflow signed words but not unsigned ones.
        distance = np.where(stop >= start, stop - start, start - stop).view(np.uint64)
        steps = distance // np.where(step < 0, -step, np.where(step == 0, 1, step)).view(np.uint64)
    too_many = select(rows, steps >= MAX_ARRAY_LENGTH)
    if too_many.any():
        raise errors.too_many_elements(int(steps[first(too_many)]) + 1, "sequence")
    sizes = steps.astype(np.int64) + 1
    sizes = sizes if rows is None else np.where(rows, sizes, 0)
    require_elements(total_of(sizes))
    out = Ragged(sizes, pa.nulls(int(sizes.sum())))
    with np.errstate(all="ignore"):
        numbers = start[out.row_of] + out.position * step[out.row_of]
    element = data_type.value_type
    return list_array(sizes, from_vector(numbers.astype(storage_type(element)), element), data_type, rows)


max_of = partial(extreme, 1)
min_of = partial(extreme, -1)
