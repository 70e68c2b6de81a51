"""Mutants of edited jobs: in-flight rows on an edited exchange."""

from __future__ import annotations

from typing import Any

from penstock.snapshots.rescaling import relocate
from penstock.snapshots.rescaling.relocate import _Relocation
from simulator.mutants.mutation import mutant


def _stays(original: Any) -> Any:
    def is_repartitioned(new: Any, old: Any) -> bool:
        return False

    return is_repartitioned


def _twice(original: Any) -> Any:
    def move(self: _Relocation) -> None:
        original(self)
        for entries in self._inflight.values():
            entries.extend([entry for entry in entries if entry.narrowed][:1])

    return move


EDITS = {
    "carried-rows-keep-their-owners": mutant(
        "rows that are carried over an exchange with other keys go to the owners of the old keys",
        (relocate, "is_repartitioned", _stays),
    ),
    "carried-entry-twice": mutant(
        "an entry of rows in flight is dealt out twice", (_Relocation, "_move_inflight", _twice)
    ),
}
