"""Change log of a RocksDB table: an index of the keys that changed between captures.

An *epoch* is the time between two captures; its number is the serial of the later capture. The key of an entry is the
epoch and the row's key; the value shows whether it is a tombstone. The last entry of a key is always up to date, so the
index at a capture is sufficient for its deltas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from rocksdict import WriteBatch

from penstock.state.rocksdb_store import ColumnFamily, View

_EPOCH_BYTES = 8
_DELETED = b"\1"
_WRITTEN = b"\0"

_MAX_EPOCHS = 64
"""Limit for the epochs that a delta merges. A base is better than a delta since a capture that is 64 captures old."""

_ALWAYS_KEPT = 4096
"""Number of entries that are kept even if the table is smaller."""

_READ_AHEAD = 4096
"""Number of entries of one epoch that are read at a time."""


def _epoch_key(epoch: int) -> bytes:
    return epoch.to_bytes(_EPOCH_BYTES, "big")


class RocksDBChangeLog:
    """Change log. Owned by the table's thread, except ``forget_before``.

    It has at most as many entries as the table has rows, because a larger delta is useless. Entries of older epochs are
    removed first, then those of the current epoch.

    Attributes:
        epoch: the current epoch: the serial of the next capture.
        oldest: changes are known since this capture and since all later captures.
    """

    def __init__(self, family: ColumnFamily) -> None:
        self._family = family
        self._counts: dict[int, int] = {}
        self._purged = 0
        self._keep_from = 0
        self.epoch = 1
        self.oldest = 1

    def begin_with_rows(self) -> None:
        """Begin with loaded content, so that a delta since capture 0 is possible.

        A table that started empty does not need it: a base is as small as this delta.
        """
        assert self.epoch == 1
        self.oldest = 0

    def record(self, batch: WriteBatch, keys: Sequence[bytes], deleted: bool, table_rows: int) -> None:
        """Record keys that a batch writes or removes. ``table_rows``: number of rows in the table after the batch."""
        if self.oldest >= self.epoch or not keys:
            return
        self._counts[self.epoch] = self._counts.get(self.epoch, 0) + len(keys)
        while sum(self._counts.values()) > max(table_rows, _ALWAYS_KEPT):
            self._forget(min(self._counts))
            if self.oldest >= self.epoch:
                return
        prefix, value = _epoch_key(self.epoch), _DELETED if deleted else _WRITTEN
        put = self._family.target(batch).put
        for key in keys:
            put(prefix + key, value)

    def end_epoch(self) -> CapturedChanges:
        """End the epoch at a capture, and return the changes for its deltas."""
        self._forget(self._keep_from)
        while len(self._counts) > _MAX_EPOCHS:
            self._forget(min(self._counts))
        changes = CapturedChanges(self._family.view(), dict(self._counts), self.oldest, self.epoch)
        self.epoch += 1
        return changes

    def forget_before(self, serial: int) -> None:
        """Forget changes before this capture when the next capture is taken. May be called on any thread."""
        self._keep_from = max(self._keep_from, serial)

    def _forget(self, through: int) -> None:
        """Forget the epochs up to this one, which may be the current one."""
        self.oldest = max(self.oldest, through)
        for epoch in [epoch for epoch in self._counts if epoch <= through]:
            del self._counts[epoch]
        if through > self._purged:
            self._family.delete_range(_epoch_key(self._purged), _epoch_key(through + 1))
            self._purged = through


@dataclass(frozen=True)
class CapturedChanges:
    """Change log at a capture.

    Attributes:
        view: view of the index.
        counts: number of entries by epoch.
        oldest: changes are known since this capture and since all later ones.
        serial: serial of the capture.
    """

    view: View
    counts: dict[int, int]
    oldest: int
    serial: int

    def since(self, serial: int) -> int | None:
        """Return an upper bound for the keys that changed since a capture; None if it is not known."""
        if serial < self.oldest:
            return None
        return sum(count for epoch, count in self.counts.items() if epoch > serial)

    def keys(self, since: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each key in ``[start, stop)`` that changed since a capture, in order, and True if it was removed."""
        epochs = [self._entries(epoch, start, stop) for epoch in sorted(self.counts) if epoch > since]
        last = None
        for key, _, value in epochs[0] if len(epochs) == 1 else merge(*epochs):
            if key != last:
                yield key, value == _DELETED
                last = key

    def _entries(self, epoch: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield the entries of an epoch. Of all entries of a key, that of the latest epoch sorts first."""
        prefix = _epoch_key(epoch)
        for block in self.view.blocks(prefix + start, prefix + stop, _READ_AHEAD):
            for key, value in block:
                yield key[_EPOCH_BYTES:], -epoch, value
