"""Timers: registered and deleted by user code, and taken out of the table when they are due.

The table holds all timers except two kinds. ``due_timers`` are due and have not fired yet. Deferred timers were
registered while timers fire and were due already. They fire in the next pass, like Spark's in the next batch. Otherwise
a handler that always registers such a timer would never end. ``all_in_table`` puts timers of both kinds into the table
for a snapshot; deferred timers stay there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.codec import hashable, stored_tuples
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.table import KeyedTable

_AT_ONCE = 4096
"""Maximum number of timers that are taken out of the table in one step. A snapshot must put the pending ones back."""


class DueTimers:
    """Block of due timers, earliest first.

    Attributes:
        keys: columns of the distinct grouping keys.
        count: number of keys.
        owners: for each timer the number of its key.
        moments: for each timer its timestamp in milliseconds.
        fired: number of timers that have fired or were skipped, from the start of the block.
        deleted: positions of timers that a handler deleted before they fired.
        positions: positions of timers, by key number and timestamp.
    """

    def __init__(self, keys: Sequence[pa.Array], moments: Sequence[int]) -> None:
        columns = [normalize_floats(column) for column in keys]
        owners, first = group_rows(columns, len(moments))
        chosen = pa.array(first)
        self.keys = [column.take(chosen) for column in columns]
        self.count = len(first)
        self.owners: list[int] = owners.tolist()
        self.moments = list(moments)
        self.fired = 0
        self.deleted: set[int] = set()
        timers = zip(self.owners, self.moments, strict=True)
        self.positions = {timer: position for position, timer in enumerate(timers)}

    def pending(self) -> list[int]:
        """Return the positions of the timers that have not fired yet, including one that is firing."""
        return [position for position in range(self.fired, len(self.moments)) if position not in self.deleted]


class TimerStore:
    """Timers of one subtask."""

    def __init__(self, table: KeyedTable) -> None:
        self.table = table
        self.due_timers: DueTimers | None = None
        self._until: int | None = None  # while timers fire: timestamp up to which timers are due
        self._keys: Sequence[pa.Array] = ()
        self._count = 0
        self._listed: list[set[int]] | None = None
        self._changed: dict[tuple[int, int], bool] = {}  # by key and timestamp: registered (True) or deleted
        self._deferred: dict[tuple[object, int], list[pa.Array]] = {}  # by key and timestamp: the key's columns
        self.earliest: int | None = None
        """Lower bound for the timestamps of all timers; None if there are none."""

    def begin(self, keys: Sequence[pa.Array], count: int) -> None:
        """Begin a unit of these distinct grouping keys."""
        assert not self._changed
        self._keys, self._count = keys, count
        self._listed = None

    def register(self, key: int, moment: int) -> None:
        """Register a timer. If the timer exists already, nothing changes."""
        if self._due_position(key, moment) is None:
            self._changed[key, moment] = True
            if self._listed is not None:
                self._listed[key].add(moment)

    def delete(self, key: int, moment: int) -> None:
        position = self._due_position(key, moment)
        if position is not None and self.due_timers is not None:
            self.due_timers.deleted.add(position)
        else:
            self._changed[key, moment] = False
        if self._listed is not None:
            self._listed[key].discard(moment)

    def timers_of(self, key: int) -> list[int]:
        """Return the timestamps of all timers of a key in ascending order, including a timer that is firing."""
        if self._listed is None:
            self._listed = self._read()
        return sorted(self._listed[key])

    def _read(self) -> list[set[int]]:
        """Return the timers of every key: those in the table, due and deferred timers, and unwritten changes."""
        timers: list[set[int]] = [set() for _ in range(self._count)]
        owners, found = self.table.find_by_prefix(self._keys, self._count)
        moments = found.keys[-1].to_pylist() if len(owners) else []
        for owner, moment in zip(owners.tolist(), moments, strict=True):
            timers[owner].add(moment)
        if self.due_timers is not None:
            for position in self.due_timers.pending():
                timers[self.due_timers.owners[position]].add(self.due_timers.moments[position])
        for key in range(self._count if self._deferred else 0):
            timers[key] |= {moment for name, moment in self._deferred if name == self._key_identity(key)}
        for (owner, moment), present in self._changed.items():
            (timers[owner].add if present else timers[owner].discard)(moment)
        return timers

    def mark_fired(self) -> None:
        """Mark the next timer of ``due_timers`` as fired."""
        assert self.due_timers is not None
        position = self.due_timers.fired
        self.due_timers.fired += 1
        self.due_timers.deleted.discard(position)
        if self._listed is not None:
            self._listed[self.due_timers.owners[position]].discard(self.due_timers.moments[position])

    def flush(self) -> None:
        """Write the changes of the unit to the table."""
        changed, self._changed = self._changed, {}
        added = [timer for timer, present in changed.items() if present]
        removed = [timer for timer, present in changed.items() if not present]
        if self._until is not None:
            deferred = [timer for timer in added if timer[1] <= self._until]
            added = [timer for timer in added if timer[1] > self._until]
            for key, moment in deferred:
                self._deferred[self._key_identity(key), moment] = [column.slice(key, 1) for column in self._keys]
        if removed:
            for key, moment in removed if self._deferred else ():
                self._deferred.pop((self._key_identity(key), moment), None)
            self.table.remove(self._at(removed), len(removed))
        if added:
            self._insert(self._at(added), len(added))
            self._update_earliest(min(moment for _, moment in added))

    def find_earliest(self) -> None:
        """Update ``earliest`` from the table."""
        self.earliest = self.table.first_due()

    def due(self, until: int) -> Iterator[DueTimers]:
        """Yield the due timers in blocks. Call ``mark_fired`` for every timer of a block before the next block.

        ``until``: timestamp up to which timers are due, in milliseconds.
        """
        self._until = until
        try:
            while True:
                block = next(self.table.take_due(until, _AT_ONCE), None)
                if block is None:
                    break
                self.due_timers = DueTimers(block.keys[:-1], block.keys[-1].to_pylist())
                yield self.due_timers
                assert self.due_timers.fired == len(self.due_timers.moments)
                self.due_timers = None
        finally:
            self._until = None
        self._register_deferred()

    @contextmanager
    def all_in_table(self) -> Iterator[None]:
        """Return a context during which all timers are in the table. Deferred timers stay in it."""
        self._register_deferred()
        pending = self._unprocessed()
        if pending is None:
            yield
            return
        columns, count = pending
        self._insert(columns, count)
        yield
        self.table.remove(columns, count)

    def _register_deferred(self) -> None:
        deferred, self._deferred = self._deferred, {}
        if deferred:
            moments = [moment for _, moment in deferred]
            columns = [pa.concat_arrays(parts) for parts in zip(*deferred.values(), strict=True)]
            self._insert([*columns, pa.array(moments, pa.int64())], len(moments))
            self._update_earliest(min(moments))

    def _key_identity(self, key: int) -> object:
        """Return a value that identifies a grouping key across units."""
        return hashable(stored_tuples([column.slice(key, 1) for column in self._keys], 1)[0])

    def _update_earliest(self, moment: int) -> None:
        self.earliest = moment if self.earliest is None else min(moment, self.earliest)

    def _unprocessed(self) -> tuple[list[pa.Array], int] | None:
        due_timers = self.due_timers
        positions = [] if due_timers is None else due_timers.pending()
        if due_timers is None or not positions:
            return None
        chosen = pa.array(np.array(due_timers.owners)[positions])
        moments = [due_timers.moments[position] for position in positions]
        return [*[column.take(chosen) for column in due_timers.keys], pa.array(moments, pa.int64())], len(positions)

    def _due_position(self, key: int, moment: int) -> int | None:
        """Return the position of a timer among the pending due timers; None if it is not one of them."""
        if self.due_timers is None:
            return None
        position = self.due_timers.positions.get((key, moment))
        if position is None or position < self.due_timers.fired or position in self.due_timers.deleted:
            return None
        return position

    def _at(self, timers: Sequence[tuple[int, int]]) -> list[pa.Array]:
        chosen = pa.array([key for key, _ in timers], pa.int64())
        moments = pa.array([moment for _, moment in timers], pa.int64())
        return [*[column.take(chosen) for column in self._keys], moments]

    def _insert(self, columns: list[pa.Array], count: int) -> None:
        with self.table.edit(columns, count):
            pass
