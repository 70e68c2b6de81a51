"""Row keys of a RocksDB table: the key group, big endian, then the key columns, so that rows with one prefix stand
together where the table is asked for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.row_codec import RowCodec
from penstock.state.table import TableSpec

GROUP_BYTES = 2


class KeyCodec:
    """The columns of the prefix are a row of their own in front of the others: no such row's bytes begin another's, as
    a row's head tells its length."""

    def __init__(self, spec: TableSpec) -> None:
        kinds = spec.key_schema.types
        leading = spec.prefix or len(kinds)
        self._prefix = spec.prefix
        self._leading = RowCodec(kinds[:leading], GROUP_BYTES)
        self._rest = RowCodec(kinds[leading:])

    def encode(self, columns: Sequence[pa.Array], rows: int, groups: npt.NDArray[np.int16]) -> list[bytes]:
        """One byte string per row."""
        prefixes = self.encode_prefixes(columns, rows, groups)
        if not self._prefix:
            return prefixes
        rest = self._rest.encode(columns[self._prefix :], rows)
        return [prefix + key for prefix, key in zip(prefixes, rest, strict=True)]

    def encode_prefixes(self, columns: Sequence[pa.Array], rows: int, groups: npt.NDArray[np.int16]) -> list[bytes]:
        """What the keys with these leading columns begin with."""
        group = groups.astype(">i2").view(np.uint8).reshape(rows, GROUP_BYTES)
        return self._leading.encode(columns[: self._prefix or None], rows, group)

    def decode(self, keys: Sequence[bytes]) -> list[pa.Array]:
        """The key columns."""
        if not self._prefix:
            return self._leading.decode(keys)
        ends = self._leading.lengths(keys).tolist()
        leading = self._leading.decode([key[:end] for key, end in zip(keys, ends, strict=True)])
        return leading + self._rest.decode([key[end:] for key, end in zip(keys, ends, strict=True)])


def after(prefix: bytes) -> bytes | None:
    """What comes behind everything that begins so; None: nothing does."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
