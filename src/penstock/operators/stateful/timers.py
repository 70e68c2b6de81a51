"""Timers: registered and deleted by the slice that is worked on, taken out of the table when they are due.

The table holds every timer but those of ``taken``, which are due and have not fired yet, and those that were registered
while timers fire and are due already: they wait for the next pass, as they wait for the next batch in Spark, so that a
handler that registers such a timer again and again does not fire for ever. ``stored`` puts all of them into the table
for the moment of a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.codec import hashable, rows_of
from penstock.operators.stateful.variables import timers_spec
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.table import KeyedTable, TableSpec

_AT_ONCE = 4096
"""Timers taken out of the table at a time: while they wait, a snapshot puts them back, which takes milliseconds."""


class Taken:
    """Due timers, earliest first.

    Attributes:
        keys: the distinct grouping keys.
        count: how many these are.
        owners: by timer, the number of its key.
        moments: by timer, when it was to fire.
        fired: so many of them are done.
        deleted: places of timers that a handler deleted before their turn.
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
        self.places = {timer: place for place, timer in enumerate(zip(self.owners, self.moments, strict=True))}

    def waiting(self) -> list[int]:
        """The places of those that are still to fire, or firing."""
        return [place for place in range(self.fired, len(self.moments)) if place not in self.deleted]


class TimerStore:
    """Of one subtask."""

    def __init__(self, table: KeyedTable) -> None:
        self.table = table
        self.taken: Taken | None = None
        self._until: int | None = None  # while timers fire: up to when they are due
        self._keys: Sequence[pa.Array] = ()
        self._count = 0
        self._listed: list[set[int]] | None = None
        self._changed: dict[tuple[int, int], bool] = {}  # by key and moment: registered (True) or deleted
        self._later: dict[tuple[object, int], list[pa.Array]] = {}  # by key and moment: the key's columns
        self.earliest: int | None = None
        """No timer is due before; None: there is none. May be too early."""

    @staticmethod
    def spec(grouping: pa.Schema, max_parallelism: int) -> TableSpec:
        return timers_spec(grouping, max_parallelism)

    def begin(self, keys: Sequence[pa.Array], count: int) -> None:
        """A slice of these distinct grouping keys."""
        assert not self._changed
        self._keys, self._count = keys, count
        self._listed = None

    def register(self, key: int, moment: int) -> None:
        """Nothing happens if there is such a timer already."""
        if self._place(key, moment) is None:
            self._changed[key, moment] = True
            if self._listed is not None:
                self._listed[key].add(moment)

    def delete(self, key: int, moment: int) -> None:
        place = self._place(key, moment)
        if place is not None and self.taken is not None:
            self.taken.deleted.add(place)
        else:
            self._changed[key, moment] = False
        if self._listed is not None:
            self._listed[key].discard(moment)

    def all_of(self, key: int) -> list[int]:
        """All of a key's, in ascending order, the one that fires now included."""
        if self._listed is None:
            self._listed = self._read()
        return sorted(self._listed[key])

    def _read(self) -> list[set[int]]:
        """Every key's timers, whether they are in the table, taken out of it, or not in it yet."""
        timers: list[set[int]] = [set() for _ in range(self._count)]
        owners, found = self.table.find_under(self._keys, self._count)
        moments = found.keys[-1].to_pylist() if len(owners) else []
        for owner, moment in zip(owners.tolist(), moments, strict=True):
            timers[owner].add(moment)
        if self.taken is not None:
            for place in self.taken.waiting():
                timers[self.taken.owners[place]].add(self.taken.moments[place])
        for key in range(self._count if self._later else 0):
            timers[key] |= {moment for name, moment in self._later if name == self._name(key)}
        for (owner, moment), there in self._changed.items():
            (timers[owner].add if there else timers[owner].discard)(moment)
        return timers

    def has_fired(self) -> None:
        """The first one that waited is done."""
        assert self.taken is not None
        place = self.taken.fired
        self.taken.fired += 1
        self.taken.deleted.discard(place)
        if self._listed is not None:
            self._listed[self.taken.owners[place]].discard(self.taken.moments[place])

    def flush(self) -> None:
        """Write what changed."""
        changed, self._changed = self._changed, {}
        added = [timer for timer, there in changed.items() if there]
        gone = [timer for timer, there in changed.items() if not there]
        if self._until is not None:
            later = [timer for timer in added if timer[1] <= self._until]
            added = [timer for timer in added if timer[1] > self._until]
            for key, moment in later:
                self._later[self._name(key), moment] = [column.slice(key, 1) for column in self._keys]
        if gone:
            for key, moment in gone if self._later else ():
                self._later.pop((self._name(key), moment), None)
            self.table.remove(self._at(gone), len(gone))
        if added:
            self._insert(self._at(added), len(added))
            self._noticed(min(moment for _, moment in added))

    def look(self) -> None:
        """Find out when the next timer is due."""
        self.earliest = self.table.first_due()

    def due(self, until: int) -> Iterator[Taken]:
        """A pass: what is due now, in blocks; each one is to be gone through, and counted in ``fired``, before the
        next."""
        self._until = until
        try:
            while True:
                block = next(self.table.take_due(until, _AT_ONCE), None)
                if block is None:
                    break
                self.taken = Taken(block.keys[:-1], block.keys[-1].to_pylist())
                yield self.taken
                assert self.taken.fired == len(self.taken.moments)
                self.taken = None
        finally:
            self._until = None
        self._put_later()

    @contextmanager
    def stored(self) -> Iterator[None]:
        """All timers are in the table."""
        self._put_later()
        waiting = self._waiting()
        if waiting is None:
            yield
            return
        columns, count = waiting
        self._insert(columns, count)
        yield
        self.table.remove(columns, count)

    def _put_later(self) -> None:
        later, self._later = self._later, {}
        if later:
            moments = [moment for _, moment in later]
            columns = [pa.concat_arrays(parts) for parts in zip(*later.values(), strict=True)]
            self._insert([*columns, pa.array(moments, pa.int64())], len(moments))
            self._noticed(min(moments))

    def _name(self, key: int) -> object:
        """Tells a grouping key apart across slices."""
        return hashable(rows_of([column.slice(key, 1) for column in self._keys], 1)[0])

    def _noticed(self, moment: int) -> None:
        self.earliest = moment if self.earliest is None else min(moment, self.earliest)

    def _waiting(self) -> tuple[list[pa.Array], int] | None:
        taken = self.taken
        places = [] if taken is None else taken.waiting()
        if taken is None or not places:
            return None
        chosen = pa.array(np.array(taken.owners)[places])
        moments = [taken.moments[place] for place in places]
        return [*[column.take(chosen) for column in taken.keys], pa.array(moments, pa.int64())], len(places)

    def _place(self, key: int, moment: int) -> int | None:
        """Where such a timer waits among those that were taken out."""
        if self.taken is None:
            return None
        place = self.taken.places.get((key, moment))
        return None if place is None or place < self.taken.fired or place in self.taken.deleted else place

    def _at(self, timers: Sequence[tuple[int, int]]) -> list[pa.Array]:
        chosen = pa.array([key for key, _ in timers], pa.int64())
        moments = pa.array([moment for _, moment in timers], pa.int64())
        return [*[column.take(chosen) for column in self._keys], moments]

    def _insert(self, columns: list[pa.Array], count: int) -> None:
        with self.table.edit(columns, count):
            pass
