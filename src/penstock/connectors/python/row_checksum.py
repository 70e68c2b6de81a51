"""Running checksum of rows, independent of the division of the rows into batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash


class RowChecksum:
    """Running checksum: xxh3-128 digests of the columns, combined in a fixed order. Null values are zeroed.

    Each column and nested column has separate streams for validity (as bytes), lengths (as 32-bit integers) and values
    (as in Arrow). Data are only appended to streams. So the checksum of some rows does not depend on their division
    into batches.
    """

    def __init__(self) -> None:
        self._streams: dict[str, xxhash.xxh3_128] = {}

    def update(self, batch: pa.RecordBatch) -> None:
        for i, column in enumerate(batch.columns):
            self._array(str(i), column)

    def hexdigest(self) -> str:
        total = xxhash.xxh3_128()
        for path in sorted(self._streams):
            total.update(f"{path}:".encode())
            total.update(self._streams[path].digest())
        return str(total.hexdigest())

    def _feed(self, path: str, data: Any) -> None:
        stream = self._streams.get(path)
        if stream is None:
            stream = self._streams[path] = xxhash.xxh3_128()
        stream.update(data)

    def _array(self, path: str, array: pa.Array) -> None:
        kind = array.type
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.uint8)
        self._feed(f"{path}v", valid)
        if pa.types.is_null(kind):
            return
        if pa.types.is_struct(kind):
            for i in range(kind.num_fields):
                self._array(f"{path}.{i}", pc.struct_field(array, i))
        elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._nested(path, array)
        elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            self._texts(path, array)
        else:
            self._fixed(path, array)

    def _nested(self, path: str, array: pa.Array) -> None:
        kind = array.type
        if pa.types.is_map(kind):
            entry = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
            array = array.cast(pa.list_(entry))
        lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32())
        self._feed(f"{path}n", lengths.to_numpy(zero_copy_only=False))
        self._array(f"{path}[]", array.flatten())

    def _texts(self, path: str, array: pa.Array) -> None:
        kind = pa.large_binary()
        array = array.cast(kind) if array.type != kind else array
        # Concatenation compacts the array: its data buffer then has exactly these values, with empty ones for nulls.
        filled = pa.concat_arrays([pc.fill_null(array, pa.scalar(b"", kind))])
        lengths = pc.binary_length(filled).cast(pa.int32())
        self._feed(f"{path}n", lengths.to_numpy(zero_copy_only=False))
        offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
        data = filled.buffers()[2]
        if data is not None and len(filled):
            self._feed(f"{path}d", data[int(offsets[0]) : int(offsets[-1])].to_pybytes())

    def _fixed(self, path: str, array: pa.Array) -> None:
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        width = array.type.bit_width // 8
        data = array.buffers()[1]
        if data is None or not len(array):
            return
        values = np.frombuffer(data, dtype=np.uint8)[array.offset * width : (array.offset + len(array)) * width]
        if array.null_count:
            present = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), dtype=np.uint8)
            values = values.reshape(len(array), width) * present[:, None]
        self._feed(f"{path}d", np.ascontiguousarray(values))
