"""Mutants of requests from outside: commands that ask the owner, and stops with a snapshot."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.coordinator.machines import checkpoints as coordinator_module
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.snapshots.commands import changes as changes_module
from penstock.snapshots.commands import deleting as deleting_module
from penstock.snapshots.commands import ownership as ownership_module
from simulator.mutants.mutation import mutant


def _files_first(original: Any) -> Any:
    def delete_snapshots(owned: Any, checkpoints: Any) -> Any:
        for path in deleting_module.plan_files_of_deletion(owned, checkpoints).files:
            owned.store.delete(path)
        return original(owned, checkpoints)

    return delete_snapshots


def _from_nothing(original: Any) -> Any:
    def _opening(view: Any) -> Any:
        oldest = view.snapshots[0].checkpoint if view.snapshots else 0
        return msgspec.structs.replace(original(view), restored=oldest)

    return _opening


def _keeps_all_waiting(original: Any) -> Any:
    def gives_way_at_ms(self: CheckpointCoordinator, pending: Any) -> None:
        return None

    return gives_way_at_ms


def _periodic_keeps_all_waiting(original: Any) -> Any:
    def gives_way_at_ms(self: CheckpointCoordinator, pending: Any) -> Any:
        return None if pending.periodic else original(self, pending)

    return gives_way_at_ms


def _at_once(original: Any) -> Any:
    def gives_way_at_ms(self: CheckpointCoordinator, pending: Any) -> Any:
        at_ms = original(self, pending)
        return None if at_ms is None else at_ms - self._policy.interval_ms

    return gives_way_at_ms


def _forgotten(original: Any) -> Any:
    def cancel(self: CheckpointCoordinator, pending: Any, now_ms: float) -> Any:
        waiting = len(self._requests)
        commands = original(self, pending, now_ms)
        while len(self._requests) > waiting:
            self._requests.pop()
        return commands

    return cancel


def _without_end(original: Any) -> Any:
    return 1 << 30


REQUESTS = {
    "delete-files-first": mutant(
        "a command deletes the files of a snapshot before the log says that it is gone",
        (changes_module, "delete_snapshots", _files_first),
    ),
    "taken-over-from-the-oldest": mutant(
        "a command that takes the location over restores the oldest snapshot",
        (ownership_module, "_opened_entry", _from_nothing),
    ),
    "strict-holds-back": mutant(
        "a strictly aligned snapshot keeps all others waiting until its time is over",
        (CheckpointCoordinator, "_gives_way_at_ms", _keeps_all_waiting),
    ),
    "strict-periodic-holds-back": mutant(
        "a strictly aligned periodic checkpoint keeps all others waiting until its time is over",
        (CheckpointCoordinator, "_gives_way_at_ms", _periodic_keeps_all_waiting),
    ),
    "strict-gives-way-at-once": mutant(
        "a strictly aligned snapshot is cancelled as soon as another one waits",
        (CheckpointCoordinator, "_gives_way_at_ms", _at_once),
    ),
    "strict-forgotten": mutant(
        "a strictly aligned snapshot that was cancelled is not triggered again, and its request is not answered",
        (CheckpointCoordinator, "_cancel", _forgotten),
    ),
    "strict-without-end": mutant(
        "a strictly aligned snapshot is triggered again without end",
        (coordinator_module, "MAX_CANCELLATIONS", _without_end),
    ),
}
