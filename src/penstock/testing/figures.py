"""What happened in simulated runs: to be sure that the faults one wants to see were seen."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.protocol import coordinator_types as ct
from penstock.protocol.elements import Alignment
from penstock.snapshot import work as w
from penstock.snapshot.model import SnapshotMetadata


@dataclass
class Figures:
    """Counts over one run, or summed over many."""

    runs: int = 0
    steps: int = 0
    slot_crashes: int = 0
    driver_crashes: int = 0
    second_drivers: int = 0
    fenced: int = 0
    store_faults: int = 0
    generations: int = 0
    newest_generation: int = 0
    restored_inflight_rows: int = 0
    completed: int = 0
    completed_aligned: int = 0
    completed_unaligned: int = 0
    captured_inflight_rows: int = 0
    carried_rows: int = 0
    aborted: int = 0
    snapshots: dict[int, SnapshotMetadata] = field(default_factory=dict)

    def count(self, output: w.Output) -> None:
        match output:
            case w.Deploy(ready):
                self.generations += 1
                self.newest_generation = max(self.newest_generation, ready.generation)
                self.restored_inflight_rows += ready.inflight_rows
            case ct.Abort():
                self.aborted += 1
            case w.SnapshotExists(metadata):
                self._complete(metadata)

    def add(self, other: Figures) -> None:
        """Sum up another run."""
        for name, value in vars(other).items():
            if name == "newest_generation":
                self.newest_generation = max(self.newest_generation, other.newest_generation)
            elif isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)

    def lines(self) -> list[str]:
        """For a reader."""
        return [f"{value:>9,} {name.replace('_', ' ')}" for name, value in vars(self).items() if isinstance(value, int)]

    def _complete(self, metadata: SnapshotMetadata) -> None:
        self.completed += 1
        if metadata.alignment == Alignment.ALIGNED.value:
            self.completed_aligned += 1
        else:
            self.completed_unaligned += 1
        self.snapshots[metadata.checkpoint] = metadata
        for slot in metadata.slots:
            for subtask in slot.subtasks:
                for entry in subtask.inflight:
                    if entry.layer == metadata.generation:
                        self.captured_inflight_rows += entry.rows
                    else:
                        self.carried_rows += entry.rows
