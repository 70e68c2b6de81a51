"""Broken compaction: what happens to a log if a rule of ``docs/log-compaction.md`` is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.model.commits import LogPosition
from penstock.snapshots.log import snapshot_log as log_module
from penstock.snapshots.log.entries import LogView, Summary
from penstock.snapshots.log.snapshot_log import FOLDER, SnapshotLog, entry_number, entry_path
from simulator.mutants.mutation import mutant


def _nothing(original: Any) -> Any:
    return lambda *arguments: None


def _one_listing(original: Any) -> Any:
    return lambda self, seq: self._store.list(FOLDER, after=entry_path(seq) if seq else "")


def _descending(original: Any) -> Any:
    return lambda self: original(self)[::-1]


def _without_strays(original: Any) -> Any:
    def covered(self: Any) -> list[str]:
        strays = {entry_path(stray.seq) for stray in self._store.strays}
        return [path for path in original(self) if path not in strays]

    return covered


def _from_the_first(original: Any) -> Any:
    def covered(self: SnapshotLog) -> list[str]:
        return [path for path in self._store.list(FOLDER) if path < entry_path(self.view.kept_from)]

    return covered


def _covered_up_to(last: Callable[[LogView], int]) -> Callable[[Any], Any]:
    return lambda original: lambda self, seq: 0 < self.head < seq <= last(self)


def _read_once(original: Any) -> Any:
    """The reader takes what it finds after one listing."""

    def refresh(self: SnapshotLog) -> LogView:
        newest = self.view.next_seq - 1
        if paths := self._above(newest):
            self._apply(self._read_back_to_summary(entry_number(paths[-1]), newest))
        return self.view

    return refresh


def _reads_what_it_can(original: Any) -> Any:
    """The reader lists again if an entry is missing, but not if it has found all."""

    def refresh(self: SnapshotLog) -> LogView:
        newest = self.view.next_seq - 1
        while paths := self._above(newest):
            try:
                bodies = self._read_back_to_summary(entry_number(paths[-1]), newest)
            except CorruptSnapshot:
                continue
            self._apply(bodies)
            break
        return self.view

    return refresh


def _by_file(original: Any) -> Any:
    def contains(self: SnapshotLog, position: LogPosition) -> bool:
        body = self._read_if_there(position.seq)
        return body is not None and body.token == position.token

    return contains


def _nameless(original: Any) -> Any:
    def summary_of(view: LogView) -> Summary:
        made: Summary = original(view)
        return msgspec.structs.replace(made, writers=[])

    return summary_of


COMPACTION = {
    "number-created-again-counts": mutant(
        "a driver does not look above the entry that it has created", (SnapshotLog, "_check_newest", _nothing)
    ),
    "own-entry-not-looked-at": mutant(
        "a driver trusts a listing during which everything it could find was removed",
        (SnapshotLog, "_above", _one_listing),
    ),
    "removed-in-descending-order": mutant(
        "the highest covered entry is removed first", (SnapshotLog, "_covered_paths", _descending)
    ),
    "last-summary-removed": mutant(
        "the last summary is removed with what it covers",
        (LogView, "is_covered", _covered_up_to(lambda view: view.last_summary)),
    ),
    "uncovered-entries-removed": mutant(
        "entries are removed that no summary covers",
        (LogView, "is_covered", _covered_up_to(lambda view: view.next_seq - 2)),
    ),
    "head-removed": mutant(
        "the head is removed with the covered entries", (SnapshotLog, "_covered_paths", _from_the_first)
    ),
    "strays-stay": mutant(
        "a number that was removed is not removed again", (SnapshotLog, "_covered_paths", _without_strays)
    ),
    "removal-taken-for-damage": mutant(
        "a reader does not list again if an entry is missing", (SnapshotLog, "refresh", _read_once)
    ),
    "stray-read": mutant(
        "a reader does not list again after it has read", (SnapshotLog, "refresh", _reads_what_it_can)
    ),
    "positions-asked-of-files": mutant(
        "a covered position is looked for in a file", (SnapshotLog, "contains", _by_file)
    ),
    "positions-forgotten": mutant("a summary does not name the writers", (log_module, "summary_of", _nameless)),
}
