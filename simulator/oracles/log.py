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
from simulator.engine.store import SimulatedStore
from simulator.metrics import QueryMetrics


class LogWatch:
    """Sees every file at the moment in which it appears or disappears.

    Attributes:
        view: the log as it is, whatever any driver knows of it.
        complete: every snapshot that was ever complete, deleted ones included.
        lineage: ids of those that the present Generation descends from, ascending, deleted ones included.
        passed_over: ids of those that a recovery found corrupt and left behind.
        may_pass_over: a file was changed on purpose, and an older snapshot may be restored instead.
        on_complete: told of every snapshot when it begins to exist.
        on_passed_over: told what is restored instead of a corrupt one.
    """

    def __init__(self, store: SimulatedStore, figures: QueryMetrics) -> None:
        self.view = LogView()
        self.complete: dict[CheckpointId, SnapshotMetadata] = {}
        self.lineage: list[CheckpointId] = []
        self.passed_over: dict[CheckpointId, None] = {}
        self.may_pass_over = False
        self.on_complete: Callable[[SnapshotMetadata], None] = lambda metadata: None
        self.on_passed_over: Callable[[CheckpointId], None] = lambda checkpoint: None
        self._store = store
        self._figures = figures
        self._never: set[str] = set()
        self._triggered: dict[CheckpointId, GenerationId] = {}
        self._pending: dict[CheckpointId, dict[str, None]] = {}
        self._given_up: dict[CheckpointId, None] = {}
        self._held: dict[str, dict[CheckpointId, None]] = {}

    @property
    def newest(self) -> SnapshotMetadata | None:
        """What a recovery would start from."""
        return self.complete[self.lineage[-1]] if self.lineage else None

    @property
    def drained(self) -> bool:
        """Nothing is left to be done here, by nobody."""
        newest = self.newest
        return newest is not None and newest.drained and self.view.committed_epoch >= newest.checkpoint

    def copy_to(self, other: LogWatch) -> None:
        """The other one goes on from here."""
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
        """A slot says that its part is durable."""
        if generation != self.view.owner or checkpoint in self._given_up:
            return
        pending = self._pending.setdefault(checkpoint, {})
        for path in _paths(manifest):
            pending[path] = None
            if path not in self._store.files:
                raise SimulationFailure(f"{path} is acknowledged for checkpoint {checkpoint}, but gone", "references")

    def never_taken(self, label: str) -> None:
        """Who asked for a snapshot of this label was told that nobody takes it."""
        self._never.add(label)
        if any(one.label == label for one in self.complete.values()):
            raise SimulationFailure(f"{label} was refused, but taken", "requests")

    def given_up(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was aborted."""
        self._pending.pop(checkpoint, None)
        self._given_up[checkpoint] = None

    # -- what happens in the store --------------------------------------------------------------------------------

    def created(self, path: str) -> None:
        if not path.startswith("log/"):
            return
        if path < entry_path(self.view.next_seq):
            self._figures.count("removed log entries created again")
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
        self._figures.count("log entries removed", path.startswith("log/"))
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
            self._figures.count("corrupt snapshots passed over")
            self.on_passed_over(entry.restored)
        self.lineage = [checkpoint for checkpoint in self.lineage if checkpoint <= entry.restored]
        self._pending.clear()
        self._figures.count("generations")
        self._figures.count("restarts from a snapshot", entry.restored > 0)

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
