"""Conversion between Arrow and numpy arrays, without Python objects and without float64 for columns with nulls."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_STORED: dict[int, np.dtype[Any]] = {  # by the type's id, because it is looked up for every column of every batch
    kind.id: np.dtype(stored)
    for stored, kinds in {
        np.int8: [pa.int8(), pa.bool_()],
        np.int16: [pa.int16()],
        np.int32: [pa.int32(), pa.date32(), pa.time32("s")],
        np.int64: [pa.int64(), pa.timestamp("us"), pa.duration("us"), pa.time64("us"), pa.date64()],
        np.uint8: [pa.uint8()],
        np.uint16: [pa.uint16()],
        np.uint32: [pa.uint32()],
        np.uint64: [pa.uint64()],
        np.float16: [pa.float16()],
        np.float32: [pa.float32()],
        np.float64: [pa.float64()],
    }.items()
    for kind in kinds
}
_MASK_64 = (1 << 64) - 1


def storage_dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return the numpy dtype of a fixed-width Arrow type; None for other types.

    Numbers have the equivalent dtype, dates and times have an integer dtype, and booleans have int8.
    """
    return _STORED.get(kind.id)


def fixed_values(array: pa.Array) -> npt.NDArray[Any] | None:
    """Return the values of a fixed-width array, possibly as a read-only view; None for other types.

    Values of null rows are arbitrary. See ``storage_dtype`` for the types.
    """
    dtype = storage_dtype(array.type)
    if dtype is None:
        return None
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=len(array), offset=array.offset * dtype.itemsize)


def validity(array: pa.Array) -> npt.NDArray[np.bool_]:
    """Return True for values that are not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    mask: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with all dates, times and durations in it replaced by integers."""
    stored = storage_dtype(kind)
    if stored is not None and pa.types.is_temporal(kind):
        return pa.from_numpy_dtype(stored)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), kind.item_field.with_type(plain_type(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(plain_type(kind.value_type)))
    return kind


def plain_objects(array: pa.Array) -> list[Any]:
    """Return the values as Python objects, from which ``pa.array`` can create the same array again.

    Dates, times and durations are integers, because Python's types end with the year 9999 but Spark's types do not.
    """
    kind = plain_type(array.type)
    objects: list[Any] = (array if kind == array.type else array.cast(kind)).to_pylist()
    return objects


def readable_objects(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the values for display: Python objects, or strings for values that Python's types cannot represent."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        if len(column) == 1:
            return [column.to_string(skip_new_lines=True).strip("[]")]
        return [readable_objects(column.slice(row, 1))[0] for row in range(len(column))]


def readable_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as dictionaries of ``readable_objects`` by column."""
    columns = dict(zip(batch.schema.names, map(readable_objects, batch.columns), strict=True))
    return [{name: values[row] for name, values in columns.items()} for row in range(batch.num_rows)]


def from_fixed(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """Create an array of a fixed-width type, with null where ``valid`` is False: the inverse of ``fixed_values``."""
    bitmap, nulls = from_validity(valid)
    if pa.types.is_boolean(kind):
        data = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(values, storage_dtype(kind)))
    return pa.Array.from_buffers(kind, len(values), [bitmap, data], nulls)


def decimal_words(array: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the low and high 64-bit words of a decimal128 array's unscaled values; arbitrary for null rows."""
    assert pa.types.is_decimal128(array.type)
    data = array.buffers()[1]
    if data is None:
        return np.zeros(len(array), np.uint64), np.zeros(len(array), np.int64)
    pairs = np.frombuffer(data, np.uint64, count=2 * len(array), offset=16 * array.offset)
    return pairs[0::2].copy(), pairs[1::2].copy().view(np.int64)


def decimal_ints(array: pa.Array) -> npt.NDArray[np.object_]:
    """Return the unscaled values of a decimal128 array as Python ints; arbitrary for null rows."""
    low, high = decimal_words(array)
    ints: npt.NDArray[np.object_] = (high.astype(np.object_) << 64) + low.astype(np.object_)
    return ints


def from_decimal_words(
    low: npt.NDArray[np.uint64],
    high: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_] | None,
    kind: pa.DataType,
) -> pa.Array:
    """Create a decimal128 array from the words of its unscaled values, which must fit the type's precision."""
    pairs = np.empty(2 * len(low), np.uint64)
    pairs[0::2] = low
    pairs[1::2] = high.view(np.uint64)
    bitmap, nulls = from_validity(valid)
    return pa.Array.from_buffers(kind, len(low), [bitmap, pa.py_buffer(pairs)], nulls)


def from_decimal_ints(
    unscaled: npt.NDArray[np.object_], valid: npt.NDArray[np.bool_] | None, kind: pa.DataType
) -> pa.Array:
    """Create a decimal128 array from unscaled Python ints. Values where ``valid`` is False are ignored."""
    ints = unscaled.tolist() if valid is None else np.where(valid, unscaled, 0).tolist()
    low = np.array([value & _MASK_64 for value in ints], np.uint64)
    high = np.array([value >> 64 for value in ints], np.int64)
    return from_decimal_words(low, high, valid, kind)


def from_validity(valid: npt.NDArray[np.bool_] | None) -> tuple[pa.Buffer | None, int]:
    """Return the validity bitmap of an array, and its number of nulls."""
    if valid is None:
        return None, 0
    nulls = int(len(valid) - np.count_nonzero(valid))
    return (pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None), nulls
