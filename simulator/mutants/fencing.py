"""Broken fences: what copies of a location do to their outputs if a rule of ``docs/fencing.md`` is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from penstock.connectors import fence as fence_module
from penstock.connectors.base import FenceOpener
from penstock.connectors.fence import FIRST, Fence, FenceRecord
from penstock.connectors.python.fence_cell import FenceCell
from penstock.model.commits import LogPosition
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from simulator.models.fencing_driver import Driver
from simulator.models.fencing_outputs import (
    Database,
    Directory,
    Epoch,
    FilesModel,
    SinkModel,
    TableModel,
)
from simulator.mutants.mutation import mutant


def _nothing(original: Any) -> Any:
    return lambda *arguments, **named: None


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda original: lambda *arguments, **named: value


def _not_read_again(original: Any) -> Any:
    def begin(self: Fence, number: int, token: str, opener: FenceOpener) -> None:
        original(self, number, token, replace(opener, contains=lambda position: True))

    return begin


def _recorded_afterwards(original: Any) -> Any:
    def commit(self: FilesModel, epoch: Epoch, needed: set[str]) -> None:
        if all(number != epoch.number for number, _ in self._directory.visible):
            with self._in_work():
                self._directory.publish(self._work, epoch.name, epoch.number, epoch.name)
        original(self, epoch, needed)

    return commit


def _ready_before_recorded(original: Any) -> Any:
    def commit(self: TableModel, epoch: Epoch, needed: set[str]) -> None:
        files = self._directory.work.get(self._work, {})
        ready = f"ready-{epoch.number}"
        if int(files.get("mark", b"0")) < epoch.number and ready not in files:
            with self._in_work():
                self._directory.put(self._work, {ready: epoch.name.encode(), f"file-{epoch.number}": b""})
        original(self, epoch, needed)

    return commit


def _by_number(original: Any) -> Any:
    def contains(self: SnapshotLog, position: LogPosition) -> bool:
        return position.seq < self.view.next_seq

    return contains


def _made_again(original: Any) -> Any:
    def put(self: Directory, token: str, files: dict[str, bytes]) -> None:
        self.work.setdefault(token, {"position": msgspec.json.encode(FenceRecord())})
        original(self, token, files)

    return put


def _left_where_it_is(original: Any) -> Any:
    def move(self: Directory, older: str, token: str) -> None:
        found = dict(self.work.get(older, {}))
        original(self, older, token)
        self.work[older] = found

    return move


def _first_for_everyone(original: Any) -> Any:
    def take(self: Fence, number: int, token: str) -> None:
        if not any(name != FIRST for name in self._store.folders()):
            self._store.make_first()
        original(self, number, token)

    return take


def _goes_back(original: Any) -> Any:
    def advanced_to(self: FenceRecord, opener: FenceOpener, position: LogPosition, next_batch: int) -> FenceRecord:
        return FenceRecord(position, opener.location, opener.query_id, max(self.next_batch, next_batch))

    return advanced_to


def _forgets_batches(original: Any) -> Any:
    def advanced_to(self: FenceRecord, opener: FenceOpener, position: LogPosition, next_batch: int) -> FenceRecord:
        found: FenceRecord = original(self, opener, position, next_batch)
        return msgspec.structs.replace(found, next_batch=next_batch)

    return advanced_to


def _goes_on_without_a_word(original: Any) -> Any:
    def after_takeover(self: FenceRecord, opener: FenceOpener, output: str) -> FenceRecord:
        self.admits(opener, output)
        return self

    return after_takeover


def _only_over_others(original: Any) -> Any:
    def after_takeover(self: FenceRecord, opener: FenceOpener, output: str) -> FenceRecord:
        found: FenceRecord = original(self, replace(opener, left_at=0), output)
        return found

    return after_takeover


def _only_where_it_commits(original: Any) -> Any:
    def hold(self: Driver, committing: SinkModel, position: LogPosition, next_batch: int) -> None:
        committing.hold(position, next_batch)

    return hold


def _replaced_unseen(original: Any) -> Any:
    def unseen(self: Database, queryId: str, expected: bytes | None, value: bytes) -> bool:  # noqa: N803
        return bool(original(self, queryId, self.value, value))

    return unseen


def _own_epochs_only(original: Any) -> Any:
    """A rollback that was interrupted takes back what this location can have written."""

    def adopt(self: Driver, view: LogView, foreign: bool) -> None:
        append = self._log.append

        def shorter(entry: Any) -> Any:
            return append(msgspec.structs.replace(entry, retract=view.retract))

        self._log.append = shorter  # type: ignore[method-assign]
        try:
            original(self, view, foreign)
        finally:
            del self._log.append

    return adopt


def _numbers_of_others(original: Any) -> Any:
    def adopt(self: Driver, view: LogView, foreign: bool) -> None:
        original(self, view, foreign)
        self._ids_from = 1

    return adopt


def _batches_of_others(original: Any) -> Any:
    def adopt(self: Driver, view: LogView, foreign: bool) -> None:
        original(self, view, foreign)
        self._batches_from = 0

    return adopt


FENCING = {
    "position-not-read-behind-the-fence": mutant(
        "a driver trusts what it read before it had the output to itself", (Fence, "_begin", _not_read_again)
    ),
    "nothing-recorded": mutant("the output does not say which log knows of it", (Fence, "_record", _nothing)),
    "recorded-after-it-is-visible": mutant(
        "rows become visible before the output says which log knows of them",
        (FilesModel, "commit", _recorded_afterwards),
        (Driver, "_hold", _nothing),
    ),
    "ready-before-it-is-recorded": mutant(
        "rows of a table are ready before the output says which log knows of them",
        (TableModel, "commit", _ready_before_recorded),
        (Driver, "_hold", _nothing),
    ),
    "record-goes-back": mutant(
        "an epoch that is committed again hides that later ones were", (FenceRecord, "advanced_to", _goes_back)
    ),
    "lineage-by-number": mutant(
        "copies are compared by the numbers of their log entries", (SnapshotLog, "contains", _by_number)
    ),
    "work-directory-made-again": mutant(
        "what is written makes the work directory in which it is", (Directory, "put", _made_again)
    ),
    "work-directory-copied": mutant(
        "the older driver keeps its work directory", (Directory, "move", _left_where_it_is)
    ),
    "staged-files-removed-at-once": mutant(
        "what other copies staged is removed before this one has written", (Fence, "is_decided", lambda original: True)
    ),
    "log-not-checked-behind-the-fence": mutant(
        "a driver that has lost its location goes on opening the fence", (SnapshotLog, "check_owned", _nothing)
    ),
    "first-directory-at-once": mutant(
        "a work directory that is being renamed counts as one that was never there",
        (Fence, "_take", _first_for_everyone),
        (fence_module, "FIRST_TAKEN_AFTER", lambda original: 0),
    ),
    "other-outputs-not-held": mutant(
        "a commit to one output is made while another driver has the other one",
        (Driver, "_hold", _only_where_it_commits),
    ),
    "input-cleaned-by-a-fenced-driver": mutant(
        "input is cleaned away that a copy reads which has the output", (Driver, "_hold_input", _nothing)
    ),
    "goes-over-without-a-word": mutant(
        "a location that goes on over the output of another one does not say so",
        (FenceRecord, "after_takeover", _goes_on_without_a_word),
    ),
    "left-snapshots-stay-known": mutant(
        "a location that was rolled back lets a copy commit what it has left",
        (FenceRecord, "after_takeover", _only_over_others),
    ),
    "pending-epochs-of-others": mutant(
        "epochs that await their commit are taken for those of another copy", (Driver, "_is_pending", _constant(False))
    ),
    "goes-over-what-no-check-has-found": mutant(
        "a driver goes over what another copy has written after it took its own pending epochs for the newest",
        (Driver, "_over", lambda original: lambda self, view, foreign: view.over),
    ),
    "epochs-of-others": mutant(
        "epochs are numbered like those of the copy that was taken over from", (Driver, "_adopt", _numbers_of_others)
    ),
    "batches-of-others": mutant(
        "batch ids are those of the copy that was taken over from", (Driver, "_adopt", _batches_of_others)
    ),
    "batches-not-recorded": mutant(
        "the output forgets which batch ids it was given", (FenceRecord, "advanced_to", _forgets_batches)
    ),
    "retraction-of-own-epochs": mutant(
        "a retraction that goes on leaves what another copy wrote", (Driver, "_adopt", _own_epochs_only)
    ),
    "cell-replaced-unseen": mutant(
        "a fence is replaced whatever is stored", (Database, "replaceFence", _replaced_unseen)
    ),
    "cell-not-recorded": mutant(
        "a sink's fence does not say which log knows of its rows",
        (FenceCell, "record", lambda original: lambda self, position, next_batch=0: msgspec.json.encode(self._value)),
    ),
}
