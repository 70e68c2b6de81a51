"""Lists and maps in a form for NumPy and Arrow kernels: the sizes, and all values in one array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.size_limits import MAX_COLUMN_SIZE, require_elements
from penstock.functions.core.vectors import Vector, from_vector, to_vector, valid_rows


@dataclass(frozen=True)
class Ragged:
    """Lists of different sizes.

    Attributes:
        sizes: number of values per row; zero where there is no list.
        values: the values of all lists, one list after the other, without gaps. Values of a map are structs of key and
            value.
    """

    sizes: npt.NDArray[np.int64]
    values: pa.Array

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.sizes)

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Position of each row's first value."""
        return self.ends - self.sizes

    @cached_property
    def row_of(self) -> npt.NDArray[np.int64]:
        """Row of each value."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def position(self) -> npt.NDArray[np.int64]:
        """Zero-based position of each value in its list."""
        return np.arange(len(self.values)) - self.starts[self.row_of]

    def keep(self, chosen: Mask) -> Ragged:
        """Return the lists with the chosen values only."""
        return Ragged(self.count(chosen), self.values.filter(pa.array(chosen)))

    def reordered(self, order: Vector) -> Ragged:
        """Return lists of the same sizes with their values in another order."""
        return Ragged(self.sizes, self.values.take(pa.array(order)))

    def count(self, chosen: Mask) -> npt.NDArray[np.int64]:
        """Count the chosen values of each row."""
        return np.bincount(self.row_of[chosen], minlength=len(self.sizes)).astype(np.int64)

    def any(self, chosen: Mask) -> Mask:
        """Return a mask of the rows with at least one chosen value."""
        return self.count(chosen) > 0

    def first(self, chosen: Mask) -> npt.NDArray[np.int64]:
        """Return the position of each row's first chosen value among all values; -1 if the row has none."""
        positions = np.flatnonzero(chosen)
        found = np.full(len(self.sizes), -1)
        found[self.row_of[positions[::-1]]] = positions[::-1]  # the last assignment to an index wins
        return found

    def expand_rows(self, array: pa.Array) -> pa.Array:
        """Return, for each value, the element of ``array`` for its row."""
        return array.take(pa.array(self.row_of))

    def array(self, data_type: pa.DataType, rows: Mask | None = None) -> pa.Array:
        """Return a list or map array that is null outside ``rows``. There must be no values outside ``rows``."""
        return list_array(self.sizes, self.values, data_type, rows)


def ragged(array: pa.Array, rows: Mask | None) -> Ragged:
    """Return the lists or maps at ``rows``, which must not include nulls."""
    offsets = to_vector(array.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    if rows is not None:
        sizes = np.where(rows, sizes, 0)
    first, last, total = int(offsets[0]), int(offsets[-1]), int(sizes.sum())
    if total == last - first:
        return Ragged(sizes, array.values.slice(first, total))
    selected = Ragged(sizes, pa.nulls(total))
    positions = offsets[:-1][selected.row_of] + selected.position
    return Ragged(sizes, array.values.take(pa.array(positions)))


def valid_lists(array: pa.Array) -> Ragged:
    """Return the lists that are not null."""
    return ragged(array, valid_rows(array))


def total_of(sizes: Vector) -> int:
    """Return the number of values in lists of these sizes."""
    return int(np.sum(sizes, dtype=np.int64))


def list_array(sizes: Vector, values: pa.Array, data_type: pa.DataType, rows: Mask | None = None) -> pa.Array:
    """Return a list or map array of ``values``, null outside ``rows``.

    Raises:
        BatchTooLarge: there are more values than a column of a batch can hold.
    """
    if (total := total_of(sizes)) > MAX_COLUMN_SIZE:
        require_elements(total)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    field = data_type.field(0)  # for a map: the entries
    child = as_type(values, field.type)
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(data_type, len(sizes), buffers, children=[child])


def as_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the same values as a type that differs only in the names and the nullability of nested fields."""
    if array.type == data_type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), data_type)
    if pa.types.is_struct(data_type):
        children = [as_type(array.field(i), data_type.field(i).type) for i in range(data_type.num_fields)]
        return struct_array(children, data_type, valid_rows(array), len(array))
    if not pa.types.is_list(data_type) and not pa.types.is_map(data_type):
        return array.cast(data_type)
    child = as_type(array.values, data_type.field(0).type)
    return pa.Array.from_buffers(data_type, len(array), array.buffers()[:2], offset=array.offset, children=[child])


def struct_array(children: list[pa.Array], data_type: pa.DataType, rows: Mask | None, length: int) -> pa.Array:
    """Return a struct array that is null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    return pa.Array.from_buffers(data_type, length, [validity], children=children)


def aligned_positions(part: Ragged, sizes: Vector) -> Vector:
    """Return the positions of the values of lists extended to ``sizes``; -1 for the added values."""
    longer = Ragged(sizes, pa.nulls(int(sizes.sum())))
    inside = longer.position < part.sizes[longer.row_of]
    return np.where(inside, part.starts[longer.row_of] + longer.position, -1)


def aligned(part: Ragged, sizes: Vector) -> pa.Array:
    """Return the values of lists extended with nulls to ``sizes``."""
    positions = aligned_positions(part, sizes)
    return part.values.take(pa.array(np.maximum(positions, 0), mask=positions < 0))


def interleave(arrays: list[pa.Array]) -> pa.Array:
    """Return the first values of all arrays, then their second values, and so on."""
    count, length = len(arrays), len(arrays[0])
    order = np.arange(count * length).reshape(count, length).T.ravel()
    return pa.concat_arrays(arrays).take(pa.array(order))


def is_null(array: pa.Array) -> Mask:
    """Return a mask of the nulls."""
    return np.asarray(pc.is_null(array).to_numpy(zero_copy_only=False))


def plain_floats(array: pa.Array) -> pa.Array:
    """Return floats with one bit pattern for NaN and one for zero; other types unchanged."""
    if not pa.types.is_floating(array.type):
        return array
    values = to_vector(array)
    plain = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
    return from_vector(plain, array.type, valid_rows(array))
