"""Watches the log and what it refers to: one linear lineage, and every reference exists at every visible step."""

from __future__ import annotations

from collections.abc import Callable

from penstock.decoding import convert, decode_json
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SlotManifest, SnapshotMetadata
from penstock.snapshots.catalog import sections_of
from penstock.snapshots.format.envelope import open_envelope
from penstock.snapshots.log.entries import Entry, GenerationOpened, LogView, SnapshotComplete, fold
from penstock.snapshots.log.snapshot_log import entry_number, entry_path
from penstock.testing.failure import SimulationFailure
from simulator.counters import Counters
from simulator.engine.store import SimulatedStore


class LogWatch:
    """Oracle that checks every file when it appears or disappears.

    Attributes:
        view: the actual log, whatever a driver knows of it.
        complete: every snapshot that was ever complete, including deleted ones.
        lineage: ids of the snapshots that the current Generation descends from, ascending, including deleted ones.
        passed_over: ids of snapshots that a recovery found corrupt and skipped.
        may_pass_over: True if a file was changed on purpose, so that an older snapshot may be restored instead.
        on_complete: called with every snapshot when it becomes complete.
        on_passed_over: called with the checkpoint that is restored instead of a corrupt one.
    """

    def __init__(self, store: SimulatedStore, counters: Counters) -> None:
        self.view = LogView()
        self.complete: dict[CheckpointId, SnapshotMetadata] = {}
        self.lineage: list[CheckpointId] = []
        self.passed_over: dict[CheckpointId, None] = {}
        self.may_pass_over = False
        self.on_complete: Callable[[SnapshotMetadata], None] = lambda metadata: None
        self.on_passed_over: Callable[[CheckpointId], None] = lambda checkpoint: None
        self._store = store
        self._counters = counters
        self._never: set[str] = set()
        self._triggered: dict[CheckpointId, GenerationId] = {}
        self._pending: dict[CheckpointId, dict[str, None]] = {}
        self._given_up: dict[CheckpointId, None] = {}
        self._held: dict[str, dict[CheckpointId, None]] = {}

    @property
    def newest(self) -> SnapshotMetadata | None:
        """Snapshot that a recovery would start from."""
        return self.complete[self.lineage[-1]] if self.lineage else None

    @property
    def drained(self) -> bool:
        """True once the query is drained and all is committed, so that no driver has anything left to do."""
        newest = self.newest
        return newest is not None and newest.drained and self.view.committed_epoch >= newest.checkpoint

    def copy_to(self, other: LogWatch) -> None:
        """Copy this state to the oracle of a run that continues from here."""
        other.view = self.view
        other.complete = dict(self.complete)
        other.lineage = list(self.lineage)
        other._triggered = dict(self._triggered)
        other._held = {path: dict(holders) for path, holders in self._held.items()}

    # -- what drivers and slots say -------------------------------------------------------------------------------

    def triggered(self, generation: GenerationId, checkpoint: CheckpointId) -> None:
        if checkpoint in self._triggered:
            raise SimulationFailure(
                f"checkpoint {checkpoint} of Generation {generation} was triggered in {self._triggered[checkpoint]}",
                "lineage",
            )
        self._triggered[checkpoint] = generation

    def acknowledged(self, generation: GenerationId, checkpoint: CheckpointId, manifest: SlotManifest) -> None:
        """Check that the files of an acknowledged part are durable."""
        if generation != self.view.owner or checkpoint in self._given_up:
            return
        pending = self._pending.setdefault(checkpoint, {})
        for path in _paths(manifest):
            pending[path] = None
            if path not in self._store.files:
                raise SimulationFailure(f"{path} is acknowledged for checkpoint {checkpoint}, but gone", "references")

    def never_taken(self, label: str) -> None:
        """Check that a refused snapshot of this label is never taken."""
        self._never.add(label)
        if any(one.label == label for one in self.complete.values()):
            raise SimulationFailure(f"{label} was refused, but taken", "requests")

    def given_up(self, checkpoint: CheckpointId) -> None:
        """Note that a checkpoint was aborted."""
        self._pending.pop(checkpoint, None)
        self._given_up[checkpoint] = None

    # -- what happens in the store --------------------------------------------------------------------------------

    def created(self, path: str) -> None:
        if not path.startswith("log/"):
            return
        if path < entry_path(self.view.next_seq):
            self._counters.count("removed log entries created again")
            return  # whoever did it must not act on it, which the other watches see
        entry = convert(open_envelope(self._store.files[path], path)["entry"], Entry)  # type: ignore[index]
        before = self.view
        try:
            self.view = fold(before, entry)
        except ValueError as problem:
            raise SimulationFailure(f"{path}: {problem}", "lineage") from problem
        match entry:
            case GenerationOpened():
                self._opened(before, entry)
            case SnapshotComplete():
                self._completed(entry)
        self._hold()

    def deleted(self, path: str) -> None:
        if path.startswith("log/") and not self.view.is_covered(entry_number(path)):
            raise SimulationFailure(f"{path} is removed, and no summary covers it", "lineage")
        self._counters.count("log entries removed", path.startswith("log/"))
        holders = [c for c in self._held.get(path, ()) if self.view.snapshot(c) is not None]
        holders += [checkpoint for checkpoint, paths in self._pending.items() if path in paths]
        if holders:
            raise SimulationFailure(f"{path} is deleted, but checkpoints {holders} refer to it", "references")

    def _opened(self, before: LogView, entry: GenerationOpened) -> None:
        existing = [record.checkpoint for record in before.lineage]
        if entry.restored != max(existing, default=0):
            if not self.may_pass_over:
                raise SimulationFailure(f"{entry} does not start from the newest of {existing}", "lineage")
            self.passed_over.update(dict.fromkeys(c for c in existing if c > entry.restored))
            self._counters.count("corrupt snapshots passed over")
            self.on_passed_over(entry.restored)
        self.lineage = [checkpoint for checkpoint in self.lineage if checkpoint <= entry.restored]
        self._pending.clear()
        self._counters.count("generations")
        self._counters.count("restarts from a snapshot", entry.restored > 0)

    def _completed(self, entry: SnapshotComplete) -> None:
        if self._triggered.get(entry.checkpoint) != entry.generation:
            raise SimulationFailure(f"{entry} was never triggered in its Generation", "lineage")
        metadata = decode_json(self._store.files[entry.metadata.path], SnapshotMetadata)
        for path in dict.fromkeys(ref.path for ref in sections_of(metadata)):
            if path not in self._store.files:
                raise SimulationFailure(f"{metadata.id} is complete, but {path} is gone", "references")
            self._held.setdefault(path, {})[entry.checkpoint] = None
        self._pending.pop(entry.checkpoint, None)
        if metadata.label in self._never:
            raise SimulationFailure(f"{metadata.label} was refused, but taken", "requests")
        self.complete[entry.checkpoint] = metadata
        self.lineage = sorted([*self.lineage, entry.checkpoint])
        self.on_complete(metadata)

    def _hold(self) -> None:
        """Forget the references of snapshots that do not exist any more."""
        existing = {record.checkpoint for record in self.view.snapshots}
        for path, holders in list(self._held.items()):
            for checkpoint in [c for c in holders if c not in existing]:
                del holders[checkpoint]
            if not holders:
                del self._held[path]


def _paths(manifest: SlotManifest) -> list[str]:
    sections = [state.section for subtask in manifest.subtasks for state in subtask.states]
    sections += [entry.section for subtask in manifest.subtasks for entry in subtask.inflight]
    return list(dict.fromkeys(section.path for section in sections))
