"""Conversions between Arrow arrays and NumPy vectors, without copies where the layouts agree.

The value of a vector at a null or unselected row is arbitrary. Kernels compute every row, and only the results at
``rows`` are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.size_limits import require_bytes
from penstock.state.arrays import plain_objects

Vector = npt.NDArray[Any]

_STORAGE: dict[int, Any] = {
    pa.lib.Type_INT8: np.int8,
    pa.lib.Type_INT16: np.int16,
    pa.lib.Type_INT32: np.int32,
    pa.lib.Type_INT64: np.int64,
    pa.lib.Type_FLOAT: np.float32,
    pa.lib.Type_DOUBLE: np.float64,
    pa.lib.Type_DATE32: np.int32,
    pa.lib.Type_TIMESTAMP: np.int64,
    pa.lib.Type_DURATION: np.int64,
}


def storage_type(data_type: pa.DataType) -> Any:
    """Return the NumPy type of a fixed-width type's buffer: days for dates, microseconds for timestamps."""
    return _STORAGE[data_type.id]


def to_vector(array: pa.Array) -> Vector:
    """Return the array's values, as a view of its buffer except for booleans. The vector must not be modified."""
    if pa.types.is_boolean(array.type):
        filled: Vector = array.fill_null(False).to_numpy(zero_copy_only=False)
        return filled
    dtype = storage_type(array.type)
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, count=len(array) + array.offset)[array.offset :]


def from_vector(values: Vector, data_type: pa.DataType, rows: Mask | None = None) -> pa.Array:
    """Return an array of ``values`` that is null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    if pa.types.is_boolean(data_type):
        data = pa.array(np.ascontiguousarray(values, dtype=np.bool_)).buffers()[1]
    else:
        data = pa.py_buffer(np.ascontiguousarray(values, dtype=storage_type(data_type)))
    return pa.Array.from_buffers(data_type, len(values), [validity, data])


def valid_rows(array: pa.Array) -> Mask | None:
    """Return a mask of the values that are not null; ``None`` if all are."""
    if array.null_count == 0:
        return None
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def intersect_masks(left: Mask | None, right: Mask | None) -> Mask | None:
    """Return the intersection of two selections."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def all_valid(arrays: Iterable[pa.Array], mask: Mask | None = None) -> Mask | None:
    """Return the rows of ``mask`` at which no array is null."""
    for array in arrays:
        mask = intersect_masks(mask, valid_rows(array))
    return mask


def select(rows: Mask | None, condition: Mask) -> Mask:
    """Return ``condition`` restricted to ``rows``."""
    return condition if rows is None else condition & rows


def first(condition: Mask) -> int:
    """Return the first row at which ``condition`` holds. There must be one."""
    return int(np.argmax(condition))


def null_outside(array: pa.Array, rows: Mask | None) -> pa.Array:
    """Return the array with nulls outside ``rows``, so that Arrow's kernels and Python loops skip unselected rows."""
    if rows is None or rows.all():
        return array
    return pc.if_else(pa.array(rows), array, pa.scalar(None, array.type))


def map_dictionary(function: Callable[[pa.Array], pa.Array], array: pa.Array, rows: Mask | None) -> pa.Array:
    """Apply a function of arrays to the distinct non-null values within ``rows``; null elsewhere."""
    encoded = null_outside(array, rows).dictionary_encode()
    return function(encoded.dictionary).take(encoded.indices)


def map_distinct(
    function: Callable[..., object], arrays: Sequence[pa.Array], data_type: pa.DataType, rows: Mask | None
) -> pa.Array:
    """Apply a Python function to each distinct row of non-null arguments within ``rows``; null elsewhere.

    The function is called once per batch for each distinct row, with values as from ``plain_objects``. Its errors
    propagate. A result of None becomes null.
    """
    columns = [null_outside(array, rows) for array in arrays]
    if len(columns) == 1:
        encoded = columns[0].dictionary_encode()
        results = (None if value is None else function(value) for value in plain_objects(encoded.dictionary))
        return _expanded(_array(results, data_type), encoded.indices)
    valid = all_valid(columns)
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        null = len(encoded.dictionary)
        pairs = codes * (null + 1) + to_vector(encoded.indices.fill_null(null)).astype(np.int64)
        _, representative, codes = np.unique(pairs, return_index=True, return_inverse=True)
    selected = np.ones(len(representative), np.bool_) if valid is None else valid[representative]
    arguments = zip(*(plain_objects(column.take(pa.array(representative))) for column in columns), strict=True)
    out = (function(*values) if row else None for row, values in zip(selected, arguments, strict=True))
    return _expanded(_array(out, data_type), pa.array(codes))


def _array(results: Iterable[object], data_type: pa.DataType) -> pa.Array:
    return pa.array(_within_limit(results) if _is_text(data_type) else list(results), data_type)


def _within_limit(texts: Iterable[object]) -> list[object]:
    """Return the texts, and raise ``BatchTooLarge`` as soon as they are too long. A character counts as one byte."""
    made: list[object] = []
    total = 0
    for text in texts:
        if text is not None:
            require_bytes(total := total + len(text))  # type: ignore[arg-type]
        made.append(text)
    return made


def _expanded(distinct: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the distinct value at each index."""
    if _is_text(distinct.type):
        require_bytes(pc.sum(pc.binary_length(distinct).take(indices)).as_py() or 0)
    return distinct.take(indices)


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))


def by_distinct_key(
    keys: pa.Array, rows: Mask | None, function: Callable[[object, Mask], pa.Array], data_type: pa.DataType
) -> pa.Array:
    """Apply ``function`` to the rows of each distinct key; null keys give null. Most batches have one key."""
    encoded = null_outside(keys, rows).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()
    result = pa.nulls(len(keys), data_type)
    for code, key in enumerate(encoded.dictionary.to_pylist()):
        key_rows: Mask = codes == code
        result = pc.if_else(pa.array(key_rows), function(key, key_rows), result)
    return result
