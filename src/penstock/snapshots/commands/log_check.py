"""Every entry of a log, not only those that a driver reads: what is broken, and what the log says all the same."""

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
    passed,
)
from penstock.snapshots.log.snapshot_log import FOLDER, Body, SnapshotLog, entry_path
from penstock.snapshots.store.parallel_reads import together
from penstock.snapshots.store.store import Store

_NAME = re.compile(rf"{FOLDER}/(\d{{20}})\.json")
READ_TOGETHER = 256
"""Entries in memory."""
MISSING_AT_MOST = 1000
"""Missing entries that are named one by one: a forged number may be of any size, and there may be many."""


@dataclass
class CheckedLog:
    """``view``: what the readable entries say together. ``problems``: by file."""

    entries: int = 0
    missing: int = 0
    view: LogView = field(default_factory=LogView)
    problems: dict[str, str] = field(default_factory=dict)


def check_log(store: Store, progress: Callable[[], None] = lambda: None) -> CheckedLog:
    """Read the whole log. A broken entry is passed over: the next summary says what it said.

    Entries that are covered may be missing, and strays may have their numbers (``docs/log-compaction.md``).

    Args:
        progress: called after each entry.
    """
    checked = CheckedLog()
    known = _read(store) or LogView()
    holes: list[range] = []
    whole = True  # since the last summary
    expected = 1
    for path, read in _entries(store):
        name = _NAME.fullmatch(path)
        if name is None:
            checked.problems[path] = "does not belong into a log"
            continue
        seq = int(name[1])
        if expected < seq:
            whole = False
            holes.append(range(expected, seq))
        expected = seq + 1
        checked.entries += 1
        whole = _check_entry(read, path, seq, checked, whole, known)
        progress()
    if not checked.entries:
        checked.problems.setdefault(f"{FOLDER}/", "there is no log entry")
    if holes or checked.problems:
        known = _read(store) or checked.view
        _forgive(checked, known)
    for hole in holes:
        _note_missing(checked, hole.start, min(hole.stop, known.head + 1 if known.head else hole.stop))
        _note_missing(checked, max(hole.start, known.kept_from), hole.stop if known.head else 0)
    return checked


def _read(store: Store) -> LogView | None:
    try:
        return SnapshotLog(store).refresh()
    except (CorruptSnapshot, OSError):
        return None  # the entries themselves say what is wrong


def _forgive(checked: CheckedLog, now: LogView) -> None:
    """Take back what was found about entries that the owner may have removed meanwhile."""
    for path in list(checked.problems):
        name = _NAME.fullmatch(path)
        if name is not None and now.is_covered(int(name[1])):
            del checked.problems[path]
    if now.next_seq > checked.view.next_seq:
        checked.view = now


def _entries(store: Store) -> Iterator[tuple[str, bytes | OSError]]:
    """What is in the folder, in order, with its content or why it cannot be read."""

    def read(path: str) -> bytes | OSError:
        try:
            return store.read(path)
        except OSError as error:
            return error

    paths = store.list(FOLDER)
    for first in range(0, len(paths), READ_TOGETHER):
        some = paths[first : first + READ_TOGETHER]
        yield from zip(some, together(store, read, some), strict=True)


def _check_entry(read: bytes | OSError, path: str, seq: int, checked: CheckedLog, whole: bool, known: LogView) -> bool:
    """Whether the view is still known to be whole behind it."""
    try:
        body = _body(read, path, seq)
    except CorruptSnapshot as error:
        checked.problems[path] = str(error)
        return False
    entry, position = body.entry, LogPosition(seq, body.token)
    if known.is_covered(seq) and not known.was_written(position):
        return False  # a stray, or of a writer that is not known any more: the next summary counts
    before = replace(checked.view, next_seq=seq)
    try:
        after = fold(before if whole else _as_entry_says(before, entry), entry)
    except ValueError as error:
        if whole:  # else it may well be right about what could not be read
            checked.problems[path] = f"contradicts the entries before it: {error}"
        return False
    if isinstance(entry, ANY_SUMMARY):
        said = replace(
            after, next_seq=seq, last_summary=before.last_summary, head=before.head, kept_from=before.kept_from
        )
        if whole and said != before:
            checked.problems[path] = "is a summary that says something else than the entries before it"
        whole = True
    checked.view = passed(after, position)
    return whole


def _as_entry_says(view: LogView, entry: Entry) -> LogView:
    """The owner may be one whose opening could not be read; what it completed is to be verified all the same."""
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


def _note_missing(checked: CheckedLog, first: int, behind: int) -> None:
    if first >= behind:
        return
    named = min(behind, first + max(MISSING_AT_MOST - checked.missing, 0))
    for seq in range(first, named):
        checked.problems[entry_path(seq)] = "is missing, though later log entries exist"
    checked.missing += behind - first
    if named < behind:
        checked.problems[f"{FOLDER}/"] = f"entries up to {behind - 1} are missing, {checked.missing} in all"
