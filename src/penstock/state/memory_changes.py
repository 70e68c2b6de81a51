"""Change log of a table in memory: rows that changed since captures, and their contents at the captures."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.growable_array import GrowableArray
from penstock.state.value_columns import ValueColumns
from penstock.state.vector import Rows, Vector

RowNumbers = npt.NDArray[np.int32]

_MIN_REMEMBERED = 1 << 16
"""Number of changed rows that are recorded even if the table is smaller."""
_MAX_INTERVALS = 1024
"""Maximum number of captures since which changes are known, unless ``forget_before`` releases them."""
_KEPT_DIVISOR = 4
_STAMPS = 255


@dataclass(frozen=True)
class Removed:
    """Distinct rows that were removed in one step, with their key groups and key columns."""

    rows: RowNumbers
    groups: npt.NDArray[np.int16]
    keys: list[pa.Array]


@dataclass
class Changes:
    """Changes between capture ``serial`` and the next one.

    Attributes:
        rows: distinct rows that were created, written to or removed.
        removed: keys that were removed. They may have been added again.
        count: number of ``rows`` plus number of removed keys.
    """

    serial: int
    rows: list[RowNumbers] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    count: int = 0


class Undo:
    """Undo log of a capture: contents of the rows that were written to between it and the next capture.

    The undo logs of a capture and of all later captures form a chain, which restores the capture. If a row has several
    entries in it, the first one is valid. The table's thread adds an entry before it writes to the row. Another thread
    reads entries below ``count``, with the lock that is held during ``reserve``.

    Attributes:
        rows, groups, values: row number, key group and values of each entry. Key group -1 means that the row was not
            in use.
        removed: all removed rows, in order. If a row has several keys, the first one is valid.
        count: number of entries.
        next: undo log of the next capture. When it is set, this undo log is complete.
    """

    def __init__(self, values: ValueColumns) -> None:
        self.rows = GrowableArray(np.int32)
        self.groups = GrowableArray(np.int16)
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
class KeptCapture:
    """Capture to which the table may be restored.

    Attributes:
        undo: first undo log of its chain; None after the capture was discarded.
        entries: ``MemoryChangeLog.entries`` at the capture.
    """

    undo: Undo | None
    entries: int


class MemoryChangeLog:
    """Change log of a table. Owned by the table's thread, except ``release``, ``keep``, ``discard``, ``forget_before``.

    Changes since a capture are kept as long as a delta may need them (``forget_before``) and their number does not
    exceed the number of rows in the table. Changes between two captures are kept only up to half of the rows, because a
    larger delta is not worth its cost. A capture is kept until ``1 / _KEPT_DIVISOR`` of the rows have changed: then
    loading costs little more than restoring.

    Attributes:
        serial: serial of the newest capture.
        floor: changes are known since this capture and since all later captures.
        undo: undo log of the newest capture; see ``is_captured``.
        entries: number of undo entries so far; removed rows count twice.
        closed: True if the table was closed.
    """

    def __init__(self, fields: list[pa.Field], lock: threading.Lock) -> None:
        self._fields = fields
        self._lock = lock
        self._stamps = GrowableArray(np.uint8)
        self._stamp = 1
        self._changes: deque[Changes] = deque()
        self._open: Changes | None = Changes(0)
        self._outstanding = 0
        self._kept: list[KeptCapture] = []
        self._captured_size = 0
        self.serial = 0
        self.floor = 0
        self.entries = 0
        self.undo = self._new_undo()
        self.closed = False

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows in total."""
        self._stamps.reserve(rows)

    @property
    def is_captured(self) -> bool:
        """True if a capture may still be read or restored, so that contents of rows must be kept."""
        return self._outstanding > 0 or bool(self._kept)

    @property
    def needs_removed(self) -> bool:
        """True if ``remove`` records removed rows."""
        return self.is_captured or self._open is not None

    def touch(self, rows: Rows, table_rows: int) -> Rows:
        """Record that rows are about to change. ``rows`` are distinct.

        Returns:
            The rows whose contents must be saved for captures. They change for the first time since the newest capture,
            and their numbers were allocated at that capture.
        """
        stamps = self._stamps.data
        fresh: Rows = rows[stamps[rows] != self._stamp]
        stamps[fresh] = self._stamp
        if len(fresh) and self._open is not None:
            self._open.rows.append(fresh.astype(np.int32))
            self._count(len(fresh), table_rows)
        if self.is_captured:
            needed: Rows = fresh[fresh < self._captured_size]
            self.entries += len(needed)
            self._discard_changed_captures(table_rows)
            if self.is_captured:
                return needed
        if self.undo.count or self.undo.removed:
            self.undo = self._new_undo()
        return fresh[:0]

    def remove(self, removed: Removed, table_rows: int) -> None:
        """Record that rows are about to be removed. Call ``touch`` first."""
        if self.is_captured:
            self.undo.removed.append(removed)
            self.entries += len(removed.rows)
        if self._open is not None:
            self._open.removed.append(removed)
            self._count(len(removed.rows), table_rows)

    def capture(self, size: int) -> tuple[int, Undo, tuple[Changes, ...]]:
        """Begin a capture of the rows below ``size``.

        Returns:
            Its serial, the first undo log of its chain, and the known changes before it.
        """
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
        """Release a capture, which is not read any more."""
        with self._lock:
            self._outstanding -= 1

    def keep(self, undo: Undo, entries: int) -> KeptCapture:
        """Keep a capture instead of releasing it, so that the table can be restored to it.

        Args:
            undo: first undo log of its chain.
            entries: ``entries`` at the capture.
        """
        kept = KeptCapture(undo, entries)
        with self._lock:
            self._kept.append(kept)  # first, because the table's thread reads ``is_captured`` without the lock
            self._outstanding -= 1
        return kept

    def discard_all(self) -> None:
        """Discard all kept captures, because the table was restored to one of them."""
        for kept in list(self._kept):
            self.discard(kept)

    def discard(self, kept: KeptCapture) -> None:
        """Discard a kept capture."""
        with self._lock:
            kept.undo = None
            if kept in self._kept:
                self._kept.remove(kept)

    def _discard_changed_captures(self, table_rows: int) -> None:
        most = max(table_rows // _KEPT_DIVISOR, _MIN_REMEMBERED)
        for kept in [kept for kept in list(self._kept) if self.entries - kept.entries > most]:
            self.discard(kept)

    def forget_before(self, serial: int) -> None:
        """Forget changes before this capture. No delta since an earlier capture will be requested."""
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
            while self._changes and total > max(table_rows, _MIN_REMEMBERED):
                total -= self._changes[0].count
                self.floor = self._changes.popleft().serial + 1
            if self._open.count > max(table_rows // 2, _MIN_REMEMBERED):
                self._open = None
                self._changes.clear()
                self.floor = self.serial + 1
