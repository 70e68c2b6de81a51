"""Timers of many keys at a time. They are registered and deleted in arrays. A call fires at most one timer per key.

As in ``TimerStore``, the table holds all timers except two kinds: those of the current block, which are due and have
not fired yet; and deferred timers, which were registered while timers fire and were due already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.timers import TimerStore
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.memory_table import MemoryTable
from penstock.state.ordering import order_by
from penstock.state.table import KeyedTable
from penstock.state.vector import Mask, Rows

_AT_ONCE = 8192


class DueTimerBlock:
    """Block of due timers, taken out of the table. It is divided into turns, each with at most one timer per key.

    The timers of one key are in successive turns, by ascending timestamp.
    """

    def __init__(self, keys: Sequence[pa.Array], moments: Rows) -> None:
        columns = [normalize_floats(column) for column in keys]
        owners, first = group_rows(columns, len(moments))
        order = order_by(owners, moments)
        self._columns = [column.take(pa.array(first)) for column in columns]
        self._owners, self._moments = owners[order], moments[order]
        self._distinct = np.unique(moments)
        self._codes = self._timer_codes(self._owners, np.searchsorted(self._distinct, self._moments))
        turns = np.arange(len(order)) - np.searchsorted(self._owners, np.arange(len(first)))[self._owners]
        self._by_turn = np.split(np.argsort(turns, kind="stable"), np.cumsum(np.bincount(turns))[:-1])
        self._turn = 0
        self._is_pending = np.ones(len(order), np.bool_)
        self._firing = np.zeros(0, np.int64)

    def next_turn(self) -> bool:
        """Advance to the next turn that has pending timers. Return False if there is none."""
        while self._turn < len(self._by_turn):
            positions = self._by_turn[self._turn]
            self._firing = positions[self._is_pending[positions]]
            self._turn += 1
            if len(self._firing):
                return True
        return False

    def mark_fired(self) -> None:
        """Mark the timers of the current turn as fired."""
        self._is_pending[self._firing] = False

    @property
    def keys(self) -> list[pa.Array]:
        """Key columns of the timers of the current turn."""
        return self._keys_at(self._firing)

    @property
    def moments(self) -> Rows:
        """Timestamps of the timers of the current turn."""
        return self._moments[self._firing]

    def pending(self) -> list[pa.Array]:
        """Return the key columns, then the timestamps, of all pending timers."""
        positions = np.flatnonzero(self._is_pending)
        return [*self._keys_at(positions), pa.array(self._moments[positions])]

    def contains(self, keys: Rows, moments: Rows) -> Mask:
        """Return a mask of the timers that are pending in this block. ``keys``: key numbers in the current turn."""
        return self._positions_of(keys, moments) >= 0

    def delete(self, keys: Rows, moments: Rows) -> None:
        """Delete these timers. Timers that are not in the block are ignored."""
        positions = self._positions_of(keys, moments)
        self._is_pending[positions[positions >= 0]] = False

    def _positions_of(self, keys: Rows, moments: Rows) -> Rows:
        """Return the positions of these timers in the block; -1 for timers that are not pending in it."""
        codes = np.minimum(np.searchsorted(self._distinct, moments), len(self._distinct) - 1)
        names = self._timer_codes(self._owners[self._firing[keys]], codes)
        positions = np.minimum(np.searchsorted(self._codes, names), len(self._codes) - 1)
        present = (self._distinct[codes] == moments) & (self._codes[positions] == names) & self._is_pending[positions]
        return np.where(present, positions, -1)

    def _timer_codes(self, owners: Rows, codes: Rows) -> Rows:
        """Return a number for each timer that ascends in the order of the block."""
        return owners * len(self._distinct) + codes

    def _keys_at(self, positions: Rows) -> list[pa.Array]:
        chosen = pa.array(self._owners[positions])
        return [column.take(chosen) for column in self._columns]


class TimerArrays(TimerStore):
    """Timers of one subtask, whose keys are passed in arrays instead of one by one.

    It inherits the table, ``earliest``, and the handling of snapshots from ``TimerStore``.
    """

    def __init__(self, table: KeyedTable) -> None:
        super().__init__(table)
        self._block: DueTimerBlock | None = None
        self._next_pass: KeyedTable = MemoryTable(table.spec)

    @property
    def count(self) -> int:
        """Number of keys of the current call."""
        return self._count

    def register_all(self, keys: Rows, moments: Rows) -> None:
        """Register a timer for each of these key numbers. Timers that exist already are not duplicated."""
        columns = self._timers(keys, moments)
        if self._until is not None:
            assert self._block is not None
            new = ~self._block.contains(keys, moments)
            due = moments <= self._until
            _insert(self._next_pass, columns, new & due)
            chosen = new & ~due
        else:
            chosen = np.ones(len(keys), np.bool_)
        if chosen.any():
            _insert(self.table, columns, chosen)
            self._update_earliest(int(moments[chosen].min()))

    def delete_all(self, keys: Rows, moments: Rows) -> None:
        """Delete a timer of each of these key numbers. Timers that do not exist are ignored."""
        if not len(keys):
            return
        columns = self._timers(keys, moments)
        self.table.remove(columns, len(keys))
        if len(self._next_pass):
            self._next_pass.remove(columns, len(keys))
        if self._block is not None:
            self._block.delete(keys, moments)

    def blocks(self, until: int, at_once: Callable[[], int]) -> Iterator[DueTimerBlock]:
        """Yield the due timers in blocks. All turns of a block must be fired before the next block.

        Args:
            until: timestamp up to which timers are due, in milliseconds.
            at_once: returns the maximum number of timers of the next block.
        """
        self._until = until
        try:
            while (due_timers := next(self.table.take_due(until, at_once()), None)) is not None:
                self._block = DueTimerBlock(due_timers.keys[:-1], due_timers.keys[-1].to_numpy())
                yield self._block
                self._block = None
        finally:
            self._until = None
        self._register_deferred()

    @contextmanager
    def all_in_table(self) -> Iterator[None]:
        """Return a context during which all timers are in the table. Deferred timers stay in it."""
        self._register_deferred()
        if self._block is None:
            yield
            return
        columns = self._block.pending()
        _insert(self.table, columns)
        yield
        self.table.remove(columns, len(columns[-1]))

    def _register_deferred(self) -> None:
        if not len(self._next_pass):
            return
        for rows in self._next_pass.scan(_AT_ONCE):
            columns = list(rows.keys)
            _insert(self.table, columns)
            self._update_earliest(int(columns[-1].to_numpy().min()))
        self._next_pass = MemoryTable(self.table.spec)

    def _timers(self, keys: Rows, moments: Rows) -> list[pa.Array]:
        chosen = pa.array(keys)
        return [*[column.take(chosen) for column in self._keys], pa.array(moments)]


def _insert(table: KeyedTable, columns: list[pa.Array], chosen: Mask | None = None) -> None:
    if chosen is not None and not chosen.all():
        columns = [column.filter(pa.array(chosen)) for column in columns]
    if count := len(columns[-1]):
        with table.edit(columns, count):
            pass
