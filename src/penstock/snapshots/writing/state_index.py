"""Index of a keyed table's stored sections, and the choice of what the next checkpoint writes: a *rolling base*.

A table's entries are its base sections, followed by its deltas in the order in which they apply. Each entry applies to
a range of key groups; key groups without an entry are empty. A checkpoint adds one delta with the changes since its
base checkpoint. For a few key groups it writes new base sections instead. These key groups form a window that advances
with every checkpoint. If a fraction f of the rows has changed, the window covers the fraction f of the key groups, but
at least ``1 / MAX_DELTAS``. So a key group has at most about ``MAX_DELTAS`` deltas, all deltas together hold about as
many rows as the table, and the whole table is written only if most of it has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from penstock.model.ids import SubtaskId
from penstock.model.manifest import StateEntry

BASE = "base"
DELTA = "delta"

MAX_DELTAS = 96
"""Number of deltas after which a key group gets a new base if little changes.

During this many checkpoints the whole state is written once as bases. A lower number makes restores faster and
checkpoints larger.
"""

KeyGroups = tuple[int, int]
"""Key groups ``[first, last]``, both inclusive."""


@dataclass(frozen=True)
class TableId:
    """Identity of one table of one subtask."""

    subtask: SubtaskId
    operator_id: str
    table: str


@dataclass(frozen=True)
class TableBase:
    """Stored form of a table at a checkpoint, for checkpoints that use it as their base.

    Attributes:
        entries: as in ``SubtaskManifest.states``, of this table only.
        serial: serial of the stored capture; see ``TableCapture``.
        forget_before: ``forget_before`` of that capture.
        cursor: first key group of the next window of new bases.
        credit: number of key groups, usually below one, by which the windows so far have been too small.
    """

    entries: Sequence[StateEntry]
    serial: int
    forget_before: Callable[[], None]
    cursor: int = 0
    credit: float = 0.0

    @staticmethod
    def restored(entries: Sequence[StateEntry]) -> TableBase:
        """Return the base of a table that was loaded from these entries.

        The newest base section is the last one, so the window continues after it. The window covers at least one key
        group. Otherwise endless restarts would make endless chains of deltas.
        """
        bases = [entry for entry in entries if entry.kind == BASE]
        cursor = bases[-1].key_group_last + 1 if bases else 0
        return TableBase(entries, 0, _nothing_to_forget, cursor, 1.0)

    @property
    def span(self) -> KeyGroups | None:
        """First and last key group of all entries; None for an empty table."""
        ranges = [_range(entry) for entry in self.entries if entry.key_group_first <= entry.key_group_last]
        return (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None

    @property
    def stored_bytes(self) -> int:
        """Bytes of all sections of the table."""
        return stored_bytes(self.entries)


@dataclass(frozen=True)
class Rebase:
    """Key groups that get a new base now, in the order of writing, and the next cursor and credit."""

    ranges: Sequence[KeyGroups]
    cursor: int
    credit: float


def plan_rebase(base: TableBase, changed: int, rows: int) -> Rebase | None:
    """Choose the key groups that get a new base; None to write all of them.

    A key group without a delta needs no new base, so the window skips it.

    Args:
        base: the stored form of the table.
        changed: number of rows of the delta.
        rows: number of rows of the table.
    """
    span = base.span
    if span is None or changed >= rows:
        return None
    first, last = span
    groups = last - first + 1
    credit = base.credit + groups * max(changed / rows, 1 / MAX_DELTAS)
    count = min(int(credit), groups)
    start = base.cursor if first <= base.cursor <= last else first
    end = start + count
    windows = [(start, min(end - 1, last)), (first, end - 1 - groups)]
    covered = merge_ranges(_range(entry) for entry in base.entries if entry.kind == DELTA)
    ranges = [part for window in windows for part in subtract(window, list(subtract(window, covered)))]
    return Rebase(ranges, end if end <= last else end - groups, credit - count)


def without_groups(entries: Iterable[StateEntry], groups: Iterable[KeyGroups]) -> Iterator[StateEntry]:
    """Yield the entries without these key groups. An entry may be narrowed, split in two, or left out."""
    removed = merge_ranges(groups)
    for entry in entries:
        for first, last in subtract(_range(entry), removed):
            yield msgspec.structs.replace(entry, key_group_first=first, key_group_last=last)


def stored_bytes(entries: Iterable[StateEntry]) -> int:
    """Return the bytes of all sections that entries refer to, each section once."""
    return sum(section.length for section in dict.fromkeys(entry.section for entry in entries))


def merge_ranges(ranges: Iterable[KeyGroups]) -> list[KeyGroups]:
    """Return the same key groups as ascending ranges with gaps between them."""
    found: list[KeyGroups] = []
    for first, last in sorted(ranges):
        if first > last:
            continue
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def subtract(whole: KeyGroups, removed: Sequence[KeyGroups]) -> Iterator[KeyGroups]:
    """Yield the rest of a range, ascending. ``removed`` must be a result of ``merge_ranges``."""
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
    """Do nothing: a loaded table has no older changes."""
