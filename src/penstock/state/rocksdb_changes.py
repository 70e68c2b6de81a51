"""Which keys of a RocksDB table changed after which capture, as an index beside the rows.

An *epoch* is what lies between two captures and is named by the later one's serial. An entry is the epoch, then the
row's key; its value tells a tombstone. The last entry of a key is true at any moment, so what the index held at a
capture is all that its deltas need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge

from rocksdict import WriteBatch

from penstock.state.rocksdb_store import Family, View

_EPOCH_BYTES = 8
_DELETED = b"\1"
_WRITTEN = b"\0"

_MAX_EPOCHS = 64
"""As many indexes a delta merges at most; a checkpoint that is 64 captures old is better replaced by a base."""

_ALWAYS_KEPT = 4096
"""Entries that are kept however small the table is."""

_READ_AHEAD = 4096
"""Entries of one epoch that are read at a time."""


def _epoch_key(epoch: int) -> bytes:
    return epoch.to_bytes(_EPOCH_BYTES, "big")


class ChangeLog:
    """Owned by the table's thread, but for ``forget_before``.

    It keeps no more entries than the table has rows (older epochs go first, then the current one's): a delta that is
    larger than the table is worth nothing.

    Attributes:
        epoch: the current one: the serial of the next capture.
    """

    def __init__(self, family: Family) -> None:
        self._family = family
        self._counts: dict[int, int] = {}
        self._purged = 0
        self._wanted = 0
        self.epoch = 1
        self.oldest = 1

    def begin_with_rows(self) -> None:
        """The table was loaded: what changes in epoch 1 makes a delta of that content. (Of an empty table a delta would
        be all there is.)"""
        assert self.epoch == 1
        self.oldest = 0

    def record(self, batch: WriteBatch, keys: Sequence[bytes], deleted: bool, table_rows: int) -> None:
        """These keys are written to (or removed) by the batch. ``table_rows``: the table's rows after it."""
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

    def end_epoch(self) -> ChangesAt:
        """At a capture: what its deltas need."""
        self._forget(self._wanted)
        while len(self._counts) > _MAX_EPOCHS:
            self._forget(min(self._counts))
        changes = ChangesAt(self._family.view(), dict(self._counts), self.oldest, self.epoch)
        self.epoch += 1
        return changes

    def forget_before(self, serial: int) -> None:
        """No delta will be asked for since an older capture. On any thread; heeded at the next capture."""
        self._wanted = max(self._wanted, serial)

    def _forget(self, through: int) -> None:
        """Forget the epochs up to this one, which may be the current one."""
        self.oldest = max(self.oldest, through)
        for epoch in [epoch for epoch in self._counts if epoch <= through]:
            del self._counts[epoch]
        if through > self._purged:
            self._family.delete_range(_epoch_key(self._purged), _epoch_key(through + 1))
            self._purged = through


@dataclass(frozen=True)
class ChangesAt:
    """The index at a capture. ``counts``: entries by epoch; ``oldest``: deltas since this capture and later ones can be
    told."""

    view: View
    counts: dict[int, int]
    oldest: int
    serial: int

    def since(self, serial: int) -> int | None:
        """An upper bound of the keys that changed since that capture; None if that is not known."""
        if serial < self.oldest:
            return None
        return sum(count for epoch, count in self.counts.items() if epoch > serial)

    def keys(self, since: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bool]]:
        """Every key in ``[start, stop)`` that changed since that capture, ascending, and whether it was removed."""
        epochs = [self._entries(epoch, start, stop) for epoch in sorted(self.counts) if epoch > since]
        last = None
        for key, _, value in epochs[0] if len(epochs) == 1 else merge(*epochs):
            if key != last:
                yield key, value == _DELETED
                last = key

    def _entries(self, epoch: int, start: bytes, stop: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """The later of two epochs' entries for a key sorts first."""
        prefix = _epoch_key(epoch)
        for block in self.view.blocks(prefix + start, prefix + stop, _READ_AHEAD):
            for key, value in block:
                yield key[_EPOCH_BYTES:], -epoch, value
