"""Verification of a whole log. It reads every entry, not only those that a driver reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot
from penstock.model.commits import LogPosition
from penstock.snapshots.format.envelope import open_envelope
from penstock.snapshots.log.entries import (
    ANY_SUMMARY,
    Entry,
    Forked,
    GenerationOpened,
    LogView,
    fold,
    with_writer,
)
from penstock.snapshots.log.snapshot_log import FOLDER, Body, SnapshotLog, entry_path
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store

_NAME = re.compile(rf"{FOLDER}/(\d{{20}})\.json")
ENTRIES_PER_READ = 256
"""Number of entries that are read in parallel and held in memory."""
MAX_MISSING_LISTED = 1000
"""Maximum number of missing entries that are listed. A forged number may leave a gap of any size."""


@dataclass
class CheckedLog:
    """Result of the verification. ``view`` combines the readable entries; ``problems`` is keyed by file."""

    entries: int = 0
    missing: int = 0
    view: LogView = field(default_factory=LogView)
    problems: dict[str, str] = field(default_factory=dict)


def check_log(store: Store, progress: Callable[[], None] = lambda: None) -> CheckedLog:
    """Read the whole log. A damaged entry is skipped, because the next summary repeats its content.

    Covered entries may be missing, and stray entries may have their numbers (``docs/log-compaction.md``).

    Args:
        progress: called after each entry.
    """
    checked = CheckedLog()
    known = _read(store) or LogView()
    holes: list[range] = []
    is_complete = True  # True if no entry has been missing or damaged since the last summary.
    expected = 1
    for path, read in _entries(store):
        name = _NAME.fullmatch(path)
        if name is None:
            checked.problems[path] = "does not belong into a log"
            continue
        seq = int(name[1])
        if expected < seq:
            is_complete = False
            holes.append(range(expected, seq))
        expected = seq + 1
        checked.entries += 1
        is_complete = _check_entry(read, path, seq, checked, is_complete, known)
        progress()
    if not checked.entries:
        checked.problems.setdefault(f"{FOLDER}/", "there is no log entry")
    if holes or checked.problems:
        known = _read(store) or checked.view
        _drop_problems_of_removed(checked, known)
    for hole in holes:
        _note_missing(checked, hole.start, min(hole.stop, known.head + 1 if known.head else hole.stop))
        _note_missing(checked, max(hole.start, known.kept_from), hole.stop if known.head else 0)
    return checked


def _read(store: Store) -> LogView | None:
    try:
        return SnapshotLog(store).refresh()
    except (CorruptSnapshot, OSError):
        return None  # The entries themselves report what is wrong.


def _drop_problems_of_removed(checked: CheckedLog, now: LogView) -> None:
    """Remove problems of entries that the owner may have deleted meanwhile."""
    for path in list(checked.problems):
        name = _NAME.fullmatch(path)
        if name is not None and now.is_covered(int(name[1])):
            del checked.problems[path]
    if now.next_seq > checked.view.next_seq:
        checked.view = now


def _entries(store: Store) -> Iterator[tuple[str, bytes | OSError]]:
    """Yield the paths in the log folder in order, each with its content or the error that reading it raised."""

    def read(path: str) -> bytes | OSError:
        try:
            return store.read(path)
        except OSError as error:
            return error

    paths = store.list(FOLDER)
    for first in range(0, len(paths), ENTRIES_PER_READ):
        part = paths[first : first + ENTRIES_PER_READ]
        yield from zip(part, read_in_parallel(store, read, part), strict=True)


def _check_entry(
    read: bytes | OSError, path: str, seq: int, checked: CheckedLog, is_complete: bool, known: LogView
) -> bool:
    """Check one entry. Return True if the view is still complete after it."""
    try:
        body = _body(read, path, seq)
    except CorruptSnapshot as error:
        checked.problems[path] = str(error)
        return False
    entry, position = body.entry, LogPosition(seq, body.token)
    if known.is_covered(seq) and not known.was_written(position):
        return False  # The entry is a stray, or its writer is no longer known. The next summary decides.
    before = replace(checked.view, next_seq=seq)
    try:
        after = fold(before if is_complete else _with_owner_of(before, entry), entry)
    except ValueError as error:
        if is_complete:  # Otherwise the entry may be consistent with entries that could not be read.
            checked.problems[path] = f"contradicts the entries before it: {error}"
        return False
    if isinstance(entry, ANY_SUMMARY):
        summary_view = replace(
            after, next_seq=seq, last_summary=before.last_summary, head=before.head, kept_from=before.kept_from
        )
        if is_complete and summary_view != before:
            checked.problems[path] = "is a summary that says something else than the entries before it"
        is_complete = True
    checked.view = with_writer(after, position)
    return is_complete


def _with_owner_of(view: LogView, entry: Entry) -> LogView:
    """Assume the owner that the entry names, because the entry that opened it could not be read."""
    if isinstance(entry, GenerationOpened | Forked | ANY_SUMMARY) or entry.generation <= view.owner:
        return view
    return replace(view, owner=entry.generation)


def _body(read: bytes | OSError, path: str, seq: int) -> Body:
    if isinstance(read, OSError):
        raise CorruptSnapshot(f"cannot be read: {read}") from read
    try:
        body = convert(open_envelope(read, path), Body)
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"is not a log entry: {error}") from error
    if body.seq != seq:
        raise CorruptSnapshot(f"holds entry {body.seq}: it was copied or renamed")
    return body


def _note_missing(checked: CheckedLog, first: int, end: int) -> None:
    if first >= end:
        return
    named = min(end, first + max(MAX_MISSING_LISTED - checked.missing, 0))
    for seq in range(first, named):
        checked.problems[entry_path(seq)] = "is missing, though later log entries exist"
    checked.missing += end - first
    if named < end:
        checked.problems[f"{FOLDER}/"] = f"entries up to {end - 1} are missing, {checked.missing} in all"
