"""Broken fences: what two copies of a location do to one output if a rule of ``docs/fencing.md`` is left out."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors import fence as fence_module
from penstock.connectors.base import FenceOpener, LogPosition
from penstock.connectors.fence import FIRST, Fence
from penstock.snapshot.log import SnapshotLog
from penstock.testing.fencing import Driver, Output
from penstock.testing.mutation import mutant


def _nothing(original: Any) -> Any:
    return lambda *arguments: None


def _not_read_again(original: Any) -> Any:
    def admits(self: Fence, opener: FenceOpener, folder: str) -> bool:
        return folder == self._token or original(self, opener, folder)

    return admits


def _recorded_afterwards(original: Any) -> Any:
    def commit(self: Driver, epoch: int, position: LogPosition, name: str) -> None:
        if (epoch, name) not in self._output.visible:
            with self._slots():
                self._output.publish(self._work, name, epoch)
        original(self, epoch, position, name)

    return commit


def _by_number(original: Any) -> Any:
    def contains(self: SnapshotLog, position: LogPosition) -> bool:
        return position.seq < self.view.next_seq

    return contains


def _made_again(original: Any) -> Any:
    def stage(self: Output, token: str, name: str) -> None:
        self.work.setdefault(token, {"position": msgspec.json.encode(fence_module.Committed())})
        original(self, token, name)

    return stage


def _left_where_it_is(original: Any) -> Any:
    def move(self: Output, older: str, token: str) -> None:
        found = dict(self.work.get(older, {}))
        original(self, older, token)
        self.work[older] = found

    return move


def _at_once(original: Any) -> Any:
    return lambda self, position: True


def _first_at_once(original: Any) -> Any:
    return 0


def _first_for_everyone(original: Any) -> Any:
    def take(self: Fence, number: int, token: str) -> None:
        if not any(name != FIRST for name in self._store.folders()):
            self._store.make_first()
        original(self, number, token)

    return take


FENCING = {
    "position-not-read-behind-the-fence": mutant(
        "a driver trusts what it read before it had the output to itself", (Fence, "_admits", _not_read_again)
    ),
    "nothing-recorded": mutant("the output does not say which log knows of it", (Fence, "record", _nothing)),
    "recorded-after-it-is-visible": mutant(
        "rows become visible before the output says which log knows of them", (Driver, "_commit", _recorded_afterwards)
    ),
    "lineage-by-number": mutant(
        "copies are compared by the numbers of their log entries", (SnapshotLog, "contains", _by_number)
    ),
    "work-directory-made-again": mutant(
        "a slot makes the directory in which it stages rows", (Output, "stage", _made_again)
    ),
    "work-directory-copied": mutant("the older driver keeps its work directory", (Output, "move", _left_where_it_is)),
    "staged-files-removed-at-once": mutant(
        "what other copies staged is removed before this one has written", (Driver, "_may_remove", _at_once)
    ),
    "log-not-checked-behind-the-fence": mutant(
        "a driver that has lost its location goes on opening the fence", (SnapshotLog, "check_owned", _nothing)
    ),
    "first-directory-at-once": mutant(
        "a work directory that is being renamed counts as one that was never there",
        (Fence, "_take", _first_for_everyone),
        (fence_module, "FIRST_AFTER", _first_at_once),
    ),
}
