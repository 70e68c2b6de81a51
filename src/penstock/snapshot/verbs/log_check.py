"""Every entry of a log, not only those that a driver reads: what is broken, and what the log says all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot
from penstock.snapshot.envelope import open_envelope
from penstock.snapshot.log import FOLDER, Body, entry_path
from penstock.snapshot.log_entries import (
    Entry,
    Forked,
    GenerationOpened,
    LogView,
    Summary,
    SummaryOfVersion1,
    fold,
)
from penstock.snapshot.store import Store
from penstock.snapshot.together import together

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

    Args:
        progress: called after each entry.
    """
    checked = CheckedLog()
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
            _note_missing(checked, expected, seq)
        expected = seq + 1
        checked.entries += 1
        whole = _check_entry(read, path, seq, checked, whole)
        progress()
    if not checked.entries:
        checked.problems.setdefault(f"{FOLDER}/", "there is no log entry")
    return checked


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


def _check_entry(read: bytes | OSError, path: str, seq: int, checked: CheckedLog, whole: bool) -> bool:
    """Whether the view is still known to be whole behind it."""
    try:
        entry = _entry(read, path, seq)
    except CorruptSnapshot as error:
        checked.problems[path] = str(error)
        return False
    before = replace(checked.view, next_seq=seq)
    try:
        after = fold(before if whole else _as_entry_says(before, entry), entry)
    except ValueError as error:
        if whole:  # else it may well be right about what could not be read
            checked.problems[path] = f"contradicts the entries before it: {error}"
        return False
    if isinstance(entry, Summary | SummaryOfVersion1):
        if whole and replace(after, next_seq=seq, last_summary=before.last_summary) != before:
            checked.problems[path] = "is a summary that says something else than the entries before it"
        whole = True
    checked.view = after
    return whole


def _as_entry_says(view: LogView, entry: Entry) -> LogView:
    """The owner may be one whose opening could not be read; what it completed is to be verified all the same."""
    if isinstance(entry, GenerationOpened | Forked | Summary | SummaryOfVersion1) or entry.generation <= view.owner:
        return view
    return replace(view, owner=entry.generation)


def _entry(read: bytes | OSError, path: str, seq: int) -> Entry:
    if isinstance(read, OSError):
        raise CorruptSnapshot(f"cannot be read: {read}") from read
    try:
        body = convert(open_envelope(read, path), Body)
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"is not a log entry: {error}") from error
    if body.seq != seq:
        raise CorruptSnapshot(f"holds entry {body.seq}: it was copied or renamed")
    return body.entry


def _note_missing(checked: CheckedLog, first: int, behind: int) -> None:
    named = min(behind, first + max(MISSING_AT_MOST - checked.missing, 0))
    for seq in range(first, named):
        checked.problems[entry_path(seq)] = "is missing, though later log entries exist"
    checked.missing += behind - first
    if named < behind:
        checked.problems[f"{FOLDER}/"] = f"entries up to {behind - 1} are missing, {checked.missing} in all"
