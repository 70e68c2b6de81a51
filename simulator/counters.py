"""Counters of events in simulated runs; they show that a run has covered what it must."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.snapshots.format.sections import data_path, state_path
from penstock.snapshots.writing.state_index import BASE, DELTA


class Counters:
    """Counts by name, over one run or summed over many."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: dict[str, int] = dict(counts or {})

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + by

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, 0)

    def add(self, other: Counters) -> None:
        """Sum up another run."""
        for name, value in other.counts.items():
            self.count(name, value)

    def lines(self) -> list[str]:
        """Return the counters as lines of text."""
        return [f"{value:>9,} {name}" for name, value in sorted(self.counts.items())]


def count_snapshot(counters: Counters, metadata: SnapshotMetadata) -> None:
    """Count the contents of a snapshot that has just become complete."""
    for slot in metadata.slots:
        own = data_path(metadata.generation, metadata.checkpoint, slot.slot)
        for metrics in slot.metrics:
            counters.count("subtasks captured unaligned" if metrics.unaligned else "subtasks captured aligned")
        for subtask in slot.subtasks:
            for entry in subtask.inflight:
                if entry.layer < metadata.generation:
                    counters.count("carried rows in snapshots", entry.rows)
                elif entry.section.path != own:
                    counters.count("rows referred to in snapshots", entry.rows)
                else:
                    counters.count("rows written in snapshots", entry.rows)
            _count_tables(counters, subtask.states, state_path(metadata.generation, metadata.checkpoint, slot.slot))


def _count_tables(counters: Counters, states: list[StateEntry], own: str) -> None:
    tables: dict[tuple[str, str], list[StateEntry]] = {}
    for entry in states:
        tables.setdefault((entry.operator_id, entry.table), []).append(entry)
    for entries in tables.values():
        written = {entry.kind for entry in entries if entry.section.path == own}
        referred = any(entry.section.path != own for entry in entries)
        counters.count("tables written whole", BASE in written and not referred)
        counters.count("tables written as a delta", DELTA in written)
        counters.count("tables given a new base in part", BASE in written and referred)
        counters.count("tables only referred to", not written)
        deltas = {(entry.section.path, entry.section.offset) for entry in entries if entry.kind == DELTA}
        counters.count("chains of several deltas", len(deltas) > 1)
