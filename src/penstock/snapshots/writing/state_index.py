"""What of a keyed table is stored where, and how much of it the next checkpoint writes anew: a *rolling base*.

A table's entries are its base sections, then its deltas in the order in which they apply. Each counts in a range of key
groups alone; groups that no entry has are empty. A checkpoint adds one delta since its base checkpoint and, for a few
key groups instead, new base sections: a window that moves on with every checkpoint, as large a part of the groups as of
the rows has changed, but at least ``1 / MAX_CHAIN``. So a group's chain has at most about ``MAX_CHAIN`` deltas, all
deltas together hold about as many rows as the table, and the table is never written as a whole unless most of it
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from penstock.model.ids import SubtaskId
from penstock.model.manifest import StateEntry

BASE = "base"
DELTA = "delta"

MAX_CHAIN = 96
"""Deltas after which a key group gets a new base, if little changes: while so many checkpoints go by, the state is
written once for bases. Fewer make restores quicker and checkpoints larger."""

KeyGroups = tuple[int, int]
"""Key groups ``[first, last]``, both inclusive."""


@dataclass(frozen=True)
class TableId:
    """One table of one subtask."""

    subtask: SubtaskId
    operator_id: str
    table: str


@dataclass(frozen=True)
class TableBase:
    """A table as a checkpoint has it, for those whose base that is.

    Attributes:
        entries: as in ``SubtaskManifest.states``, of this table alone.
        serial: of the capture that they hold; see ``TableCapture``.
        forget_before: of that capture.
        cursor: the key group where the window of new bases goes on.
        credit: how many groups (a part of one, mostly) the window has been too small so far.
    """

    entries: Sequence[StateEntry]
    serial: int
    forget_before: Callable[[], None]
    cursor: int = 0
    credit: float = 0.0

    @staticmethod
    def restored(entries: Sequence[StateEntry]) -> TableBase:
        """What a table was loaded with. The newest base comes last, so the window goes on behind it; it has at least
        one group, so that restarts without end do not make chains without end."""
        bases = [entry for entry in entries if entry.kind == BASE]
        cursor = bases[-1].key_group_last + 1 if bases else 0
        return TableBase(entries, 0, _nothing_to_forget, cursor, 1.0)

    @property
    def span(self) -> KeyGroups | None:
        """The first and the last key group that any entry has; None for an empty table."""
        ranges = [_range(entry) for entry in self.entries if entry.key_group_first <= entry.key_group_last]
        return (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None

    @property
    def stored_bytes(self) -> int:
        """Of all sections that it refers to."""
        return stored_bytes(self.entries)


@dataclass(frozen=True)
class Rebasing:
    """Key groups that get a new base now, in the order in which they are to be written; and what comes next."""

    ranges: Sequence[KeyGroups]
    cursor: int
    credit: float


def rebasing(base: TableBase, changed: int, rows: int) -> Rebasing | None:
    """Which key groups are to be written anew; None: all of them.

    A group without a delta is as good as new: the window passes over it, and waits for nothing there.

    Args:
        base: what there is.
        changed: rows that a delta would have.
        rows: of the table now.
    """
    span = base.span
    if span is None or changed >= rows:
        return None
    first, last = span
    groups = last - first + 1
    credit = base.credit + groups * max(changed / rows, 1 / MAX_CHAIN)
    count = min(int(credit), groups)
    start = base.cursor if first <= base.cursor <= last else first
    end = start + count
    windows = [(start, min(end - 1, last)), (first, end - 1 - groups)]
    covered = merged(_range(entry) for entry in base.entries if entry.kind == DELTA)
    ranges = [part for window in windows for part in minus(window, list(minus(window, covered)))]
    return Rebasing(ranges, end if end <= last else end - groups, credit - count)


def narrowed(entries: Iterable[StateEntry], gone: Iterable[KeyGroups]) -> Iterator[StateEntry]:
    """The entries without these key groups: smaller, in two, or not there any more."""
    removed = merged(gone)
    for entry in entries:
        for first, last in minus(_range(entry), removed):
            yield msgspec.structs.replace(entry, key_group_first=first, key_group_last=last)


def stored_bytes(entries: Iterable[StateEntry]) -> int:
    """Of all sections that entries refer to, each once."""
    return sum(section.length for section in dict.fromkeys(entry.section for entry in entries))


def merged(ranges: Iterable[KeyGroups]) -> list[KeyGroups]:
    """The same key groups as ranges that ascend and have gaps between them."""
    found: list[KeyGroups] = []
    for first, last in sorted(ranges):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def minus(whole: KeyGroups, removed: Sequence[KeyGroups]) -> Iterator[KeyGroups]:
    """What is left of a range, ascending; ``removed`` as from ``merged``."""
    first, last = whole
    for start, end in removed:
        if end < first:
            continue
        if start > last:
            break
        if first < start:
            yield first, start - 1
        first = end + 1
    if first <= last:
        yield first, last


def _range(entry: StateEntry) -> KeyGroups:
    return entry.key_group_first, entry.key_group_last


def _nothing_to_forget() -> None:
    """What a table was loaded with is the oldest there is of it."""
