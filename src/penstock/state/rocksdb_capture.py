"""Capture of a RocksDB table: views of its rows and of its change log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.rocksdb_changes import CapturedChanges
from penstock.state.rocksdb_keys import GROUP_BYTES, KeyCodec
from penstock.state.rocksdb_store import View, keys_of
from penstock.state.row_codec import RowCodec
from penstock.state.stored_form import delta_schema, stored_schema
from penstock.state.table import TableCapture, TableSpec

STAMP_BYTES = 4
_DELTA_ROWS = 8192
"""Number of keys of a delta that are looked up at a time."""


def group_key(group: int) -> bytes:
    """Return the prefix of a key group's row keys."""
    return group.to_bytes(GROUP_BYTES, "big")


def key_groups_of(keys: Sequence[bytes]) -> npt.NDArray[np.int16]:
    """Return the key groups of row keys."""
    return np.frombuffer(b"".join([key[:GROUP_BYTES] for key in keys]), ">i2").astype(np.int16)


@dataclass(frozen=True)
class RowLayout:
    """Layout of a table's rows in RocksDB.

    Keys are encoded by ``KeyCodec``. A value consists of the last epoch that wrote it and the value columns. The epoch
    serves to log a change only once per epoch.
    """

    spec: TableSpec
    keys: KeyCodec
    values: RowCodec

    @classmethod
    def of(cls, spec: TableSpec) -> RowLayout:
        return cls(spec, KeyCodec(spec), RowCodec([field.type for field in spec.value_fields], STAMP_BYTES))

    def encode_values(self, columns: Sequence[pa.Array], rows: int, epoch: int) -> list[bytes]:
        stamp = np.frombuffer(epoch.to_bytes(STAMP_BYTES, "little"), np.uint8)
        return self.values.encode(columns, rows, np.broadcast_to(stamp, (rows, STAMP_BYTES)))


class RocksDBCapture(TableCapture):
    """Capture that reads from views, so that the table's owner never waits."""

    def __init__(
        self,
        layout: RowLayout,
        rows: int,
        view: View,
        changes: CapturedChanges,
        forget_before: Callable[[int], None],
        on_release: Callable[[int], None],
    ) -> None:
        self.schema = stored_schema(layout.spec.schema)
        self.serial = changes.serial
        self.rows = rows
        self._layout = layout
        self._view: View | None = view
        self._changes: CapturedChanges | None = changes
        self._forget_before = forget_before
        self._on_release = on_release

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        view, _ = self._opened()
        for block in view.blocks(group_key(first), group_key(last + 1)):
            self._opened()
            keys = keys_of(block)
            values = self._layout.values.decode([value for _, value in block])
            yield pa.RecordBatch.from_arrays([*self._key_columns(keys), *values], schema=self.schema)

    def changed_since(self, serial: int) -> int | None:
        return self._opened()[1].since(serial)

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        view, changes = self._opened()
        assert changes.since(since) is not None, f"changed_since({since}) says that this delta is not known"
        schema = delta_schema(self.schema)
        entries = changes.keys(since, group_key(first), group_key(last + 1))
        while block := list(islice(entries, _DELTA_ROWS)):
            self._opened()
            keys = [key for key, _ in block]
            deleted = np.array([is_deleted for _, is_deleted in block])
            values = self._values_at(view, keys, deleted)
            columns = [*self._key_columns(keys), *values, pa.array(deleted)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _values_at(self, view: View, keys: list[bytes], deleted: npt.NDArray[np.bool_]) -> list[pa.Array]:
        """Return the value columns of keys, with null for deleted keys."""
        live = [key for key, is_deleted in zip(keys, deleted.tolist(), strict=True) if not is_deleted]
        columns = self._layout.values.decode(view.values(live))
        if len(live) == len(keys):
            return columns
        indices = pa.array(np.cumsum(~deleted) - 1, mask=deleted)
        return [column.take(indices) for column in columns]

    def _key_columns(self, keys: list[bytes]) -> list[pa.Array]:
        return [pa.array(key_groups_of(keys)), *self._layout.keys.decode(keys)]

    def _opened(self) -> tuple[View, CapturedChanges]:
        view, changes = self._view, self._changes
        if view is None or changes is None:
            raise RuntimeError(f"capture {self.serial} of a state table was released, or its table closed")
        return view, changes

    def forget_before(self) -> None:
        self._forget_before(self.serial)

    def release(self) -> None:
        self._view = self._changes = None
        self._on_release(self.serial)
