"""Row keys of a RocksDB table: the key group (big-endian), then the key columns. Rows of a prefix are adjacent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.row_codec import RowCodec
from penstock.state.table import TableSpec

GROUP_BYTES = 2


class KeyCodec:
    """Codec of row keys.

    The columns of the prefix are encoded as a separate row before the other columns. No such row is a prefix of another
    row, because the head of a row determines its length.
    """

    def __init__(self, spec: TableSpec) -> None:
        kinds = spec.key_schema.types
        leading = spec.prefix or len(kinds)
        self._prefix = spec.prefix
        self._leading = RowCodec(kinds[:leading], GROUP_BYTES)
        self._rest = RowCodec(kinds[leading:])

    def encode(self, columns: Sequence[pa.Array], rows: int, groups: npt.NDArray[np.int16]) -> list[bytes]:
        """Encode the keys as one byte string per row."""
        prefixes = self.encode_prefixes(columns, rows, groups)
        if not self._prefix:
            return prefixes
        rest = self._rest.encode(columns[self._prefix :], rows)
        return [prefix + key for prefix, key in zip(prefixes, rest, strict=True)]

    def encode_prefixes(self, columns: Sequence[pa.Array], rows: int, groups: npt.NDArray[np.int16]) -> list[bytes]:
        """Encode the columns of the prefix, as the common prefix of the keys that have these values."""
        group = groups.astype(">i2").view(np.uint8).reshape(rows, GROUP_BYTES)
        return self._leading.encode(columns[: self._prefix or None], rows, group)

    def decode(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """Decode the key columns."""
        if not self._prefix:
            return self._leading.decode(keys)
        ends = self._leading.lengths(keys).tolist()
        leading = self._leading.decode([key[:end] for key, end in zip(keys, ends, strict=True)])
        return leading + self._rest.decode([key[end:] for key, end in zip(keys, ends, strict=True)])


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with this prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
