"""Mutants of requests from outside: commands that ask the owner, and stops with a snapshot."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.snapshot.verbs import changing as changing_module
from penstock.snapshot.verbs import deleting as deleting_module
from penstock.snapshot.verbs import ownership as ownership_module
from penstock.testing.mutation import mutant


def _files_first(original: Any) -> Any:
    def delete_snapshots(owned: Any, checkpoints: Any) -> Any:
        for path in deleting_module.planned(owned, checkpoints).files:
            owned.store.delete(path)
        return original(owned, checkpoints)

    return delete_snapshots


def _from_nothing(original: Any) -> Any:
    def _opening(view: Any) -> Any:
        oldest = view.snapshots[0].checkpoint if view.snapshots else 0
        return msgspec.structs.replace(original(view), restored=oldest)

    return _opening


REQUESTS = {
    "delete-files-first": mutant(
        "a command deletes the files of a snapshot before the log says that it is gone",
        (changing_module, "delete_snapshots", _files_first),
    ),
    "taken-over-from-the-oldest": mutant(
        "a command that takes the location over restores the oldest snapshot",
        (ownership_module, "_opening", _from_nothing),
    ),
}
