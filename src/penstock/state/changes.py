"""What happened to a table's rows since its captures: which ones changed, and what they held before."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.pages import Pages
from penstock.state.value_columns import ValueColumns
from penstock.state.vector import Rows, Vector

RowNumbers = npt.NDArray[np.int32]

_WORTH_KEEPING = 1 << 16
"""So many changed rows are remembered however small the table is."""
_MAX_INTERVALS = 1024
"""Captures since whom changes are remembered, if nobody says which ones will be asked for."""
_WORTH_GOING_BACK = 4
_STAMPS = 255


@dataclass(frozen=True)
class Removed:
    """Rows that were removed at one time, each named once: their key groups and key columns."""

    rows: RowNumbers
    groups: npt.NDArray[np.int16]
    keys: list[pa.Array]


@dataclass
class Changes:
    """What changed between capture ``serial`` and the next one.

    Attributes:
        rows: those created, written to or removed; each is named once.
        removed: keys that were removed. Some may be there again.
        count: how many of both.
    """

    serial: int
    rows: list[RowNumbers] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    count: int = 0


class Undo:
    """What rows held at a capture, of those that were written to between it and the next one.

    The chain of these from a capture on tells what it holds: of a row's entries the first one counts. The table's
    thread adds entries before it writes to the rows; another one reads up to ``count``, with the lock that is held for
    ``reserve``.

    Attributes:
        rows, groups, values: of each entry; group -1 stands for a row that was not in use.
        removed: all that were removed, in order; of a row's keys the first one counts.
        next: of the next capture; once it is there this one is complete.
    """

    def __init__(self, values: ValueColumns) -> None:
        self.rows = Pages(np.int32)
        self.groups = Pages(np.int16)
        self.values = values
        self.removed: list[Removed] = []
        self.count = 0
        self.next: Undo | None = None
        self._room = 0

    def add(self, rows: Rows, groups: npt.NDArray[np.int16], values: list[Vector], lock: threading.Lock) -> None:
        start, stop = self.count, self.count + len(rows)
        if stop > self._room:
            self._room = max(stop, 2 * self._room)
            with lock:
                self.rows.reserve(self._room)
                self.groups.reserve(self._room)
                self.values.reserve(self._room)
        self.rows.data[start:stop] = rows
        self.groups.data[start:stop] = groups
        self.values.put(np.arange(start, stop), values, len(rows))
        self.count = stop


@dataclass(eq=False)
class Kept:
    """A capture that the table may have to go back to.

    Attributes:
        undo: where its chain begins; None once it was given up.
        entries: see ``ChangeLog``, when it was taken.
    """

    undo: Undo | None
    entries: int


class ChangeLog:
    """Owned by the table's thread, but for ``release``, ``keep``, ``let_go`` and ``forget_before``.

    Changes are remembered since a capture as long as they may be asked for (``forget_before``) and are no more than the
    table has rows; those between two captures only while they are less than half: beyond, a delta is not worth it. A
    capture is kept until ``1 / _WORTH_GOING_BACK`` of the rows have changed: beyond, loading costs little more.

    Attributes:
        serial: of the newest capture.
        floor: changes are known since this capture, and every later one.
        undo: where entries go; see ``is_captured``.
        entries: how many rows were kept so far, removed ones twice.
        closed: the table was closed.
    """

    def __init__(self, fields: list[pa.Field], lock: threading.Lock) -> None:
        self._fields = fields
        self._lock = lock
        self._stamps = Pages(np.uint8)
        self._stamp = 1
        self._changes: deque[Changes] = deque()
        self._open: Changes | None = Changes(0)
        self._outstanding = 0
        self._kept: list[Kept] = []
        self._captured_size = 0
        self.serial = 0
        self.floor = 0
        self.entries = 0
        self.undo = self._new_undo()
        self.closed = False

    def reserve(self, rows: int) -> None:
        """Make room for so many rows."""
        self._stamps.reserve(rows)

    @property
    def is_captured(self) -> bool:
        """Whether some capture still has to be read, or gone back to: what rows held must be kept."""
        return self._outstanding > 0 or bool(self._kept)

    @property
    def asks_for_removed(self) -> bool:
        """Whether ``remove`` would keep anything."""
        return self.is_captured or self._open is not None

    def touch(self, rows: Rows, table_rows: int) -> Rows:
        """These rows (each named once) are about to change. Returns those whose content captures need and do not have:
        this is the first time since the newest capture, and there was a row of this number then."""
        stamps = self._stamps.data
        fresh: Rows = rows[stamps[rows] != self._stamp]
        stamps[fresh] = self._stamp
        if len(fresh) and self._open is not None:
            self._open.rows.append(fresh.astype(np.int32))
            self._count(len(fresh), table_rows)
        if self.is_captured:
            needed: Rows = fresh[fresh < self._captured_size]
            self.entries += len(needed)
            self._keep_what_is_worth_it(table_rows)
            if self.is_captured:
                return needed
        if self.undo.count or self.undo.removed:
            self.undo = self._new_undo()
        return fresh[:0]

    def remove(self, removed: Removed, table_rows: int) -> None:
        """These rows are about to be removed; ``touch`` came before."""
        if self.is_captured:
            self.undo.removed.append(removed)
            self.entries += len(removed.rows)
        if self._open is not None:
            self._open.removed.append(removed)
            self._count(len(removed.rows), table_rows)

    def capture(self, size: int) -> tuple[int, Undo, tuple[Changes, ...]]:
        """A new capture of the rows below ``size``: its serial, the beginning of its chain, and the changes before it
        that are known."""
        self._captured_size = size
        with self._lock:
            if self._open is not None:
                self._changes.append(self._open)
            if len(self._changes) > _MAX_INTERVALS:
                self.floor = self._changes.popleft().serial + 1
            known = tuple(self._changes)
            self.serial += 1
            self._open = Changes(self.serial)
            self._outstanding += 1
        self.undo.next = self.undo = self._new_undo()
        self._stamp += 1
        if self._stamp > _STAMPS:
            self._stamps.data[:] = 0
            self._stamp = 1
        return self.serial, self.undo, known

    def release(self) -> None:
        """A capture need not be read any more."""
        with self._lock:
            self._outstanding -= 1

    def keep(self, undo: Undo, entries: int) -> Kept:
        """Instead of ``release``: the table shall be able to go back to a capture, given the beginning of its chain and
        ``entries`` as they were then."""
        kept = Kept(undo, entries)
        with self._lock:
            self._kept.append(kept)  # first: the table's thread asks for ``is_captured`` without the lock
            self._outstanding -= 1
        return kept

    def let_all_go(self) -> None:
        """The table has gone back: there is no other way from there."""
        for kept in list(self._kept):
            self.let_go(kept)

    def let_go(self, kept: Kept) -> None:
        """Nobody will go back there."""
        with self._lock:
            kept.undo = None
            if kept in self._kept:
                self._kept.remove(kept)

    def _keep_what_is_worth_it(self, table_rows: int) -> None:
        most = max(table_rows // _WORTH_GOING_BACK, _WORTH_KEEPING)
        for kept in [kept for kept in list(self._kept) if self.entries - kept.entries > most]:
            self.let_go(kept)

    def forget_before(self, serial: int) -> None:
        """Nobody will ask for changes since a capture before this one."""
        with self._lock:
            while self._changes and self._changes[0].serial < serial:
                self.floor = self._changes.popleft().serial + 1

    def _new_undo(self) -> Undo:
        return Undo(ValueColumns(self._fields, [0] * len(self._fields)))

    def _count(self, more: int, table_rows: int) -> None:
        assert self._open is not None
        self._open.count += more
        with self._lock:
            total = self._open.count + sum(changes.count for changes in self._changes)
            while self._changes and total > max(table_rows, _WORTH_KEEPING):
                total -= self._changes[0].count
                self.floor = self._changes.popleft().serial + 1
            if self._open.count > max(table_rows // 2, _WORTH_KEEPING):
                self._open = None
                self._changes.clear()
                self.floor = self.serial + 1
