"""Mutants of in-flight drains: snapshots of an old query with nothing in flight."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from typing import Any

from penstock.coordinator.commands import GenerationReady, LaunchSlots, Output
from penstock.coordinator.machines.checkpoint_events import GenerationEnded, SnapshotRequest, SnapshotRequested
from penstock.coordinator.machines.checkpoint_lifecycle import Pending
from penstock.coordinator.machines.checkpoints import MAX_CANCELLATIONS, CheckpointCoordinator
from penstock.coordinator.machines.job import JobCoordinator
from penstock.coordinator.snapshot_tickets import SnapshotTickets
from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.worker.source_task import SourceTask
from simulator.mutants.mutation import mutant


def _overtakes(original: Any) -> Any:
    def issue(self: SnapshotTickets, future: Future[SnapshotMetadata], request: SnapshotRequest) -> SnapshotRequested:
        requested: SnapshotRequested = original(self, future, request)
        return dataclasses.replace(requested, alignment=Alignment.UNALIGNED) if request.drain else requested

    return issue


def _reads_on(original: Any) -> Any:
    def pause(self: SourceTask, paused: bool) -> None:
        original(self, False)

    return pause


def _begins_to_read(original: Any) -> Any:
    def on_ready(self: JobCoordinator, event: GenerationReady, now_ms: float) -> list[Output]:
        outputs = original(self, event, now_ms)
        self._paused = False
        for assigner in self.assigners:
            assigner.paused = False
        return [LaunchSlots(one.ready) if isinstance(one, LaunchSlots) else one for one in outputs]

    return on_ready


def _trigger_first(original: Any) -> Any:
    def pause(self: JobCoordinator, now_ms: float) -> list[Output]:
        drained = any(self._coordinator._pending[c].drain for c in self._coordinator.in_flight)
        return [] if drained and not self._paused else original(self, now_ms)

    return pause


def _never_reads_on(original: Any) -> Any:
    def pause(self: JobCoordinator, now_ms: float) -> list[Output]:
        return [] if self._paused else original(self, now_ms)

    return pause


def _forgets(pending: Pending) -> None:
    if pending.drain:
        assert pending.request is not None
        pending.request = dataclasses.replace(pending.request, drain=False)


def _given_up(original: Any) -> Any:
    def cancel(self: CheckpointCoordinator, pending: Pending, now_ms: float) -> Any:
        if pending.cancellations >= MAX_CANCELLATIONS:
            _forgets(pending)
        return original(self, pending, now_ms)

    return cancel


def _ends_with_generation(original: Any) -> Any:
    def on_ended(self: CheckpointCoordinator, event: GenerationEnded, now_ms: float) -> Any:
        for pending in self._pending.values():
            _forgets(pending)
        return original(self, event, now_ms)

    return on_ended


DRAINS = {
    "drained-unaligned": mutant(
        "the barriers of a drained snapshot overtake what is in flight",
        (SnapshotTickets, "issue", _overtakes),
    ),
    "drained-source-reads-on": mutant(
        "a reader that is paused for a drain reads on",
        (SourceTask, "pause", _reads_on),
    ),
    "drained-generation-reads": mutant(
        "a Generation that begins during a drain reads until all its slots run",
        (JobCoordinator, "_on_ready", _begins_to_read),
    ),
    "drained-before-the-pause": mutant(
        "a drained snapshot is triggered while sources are read",
        (JobCoordinator, "_pause", _trigger_first),
    ),
    "drain-failed-and-paused": mutant(
        "sources stay paused when a drain has failed",
        (JobCoordinator, "_pause", _never_reads_on),
    ),
    "drain-given-up": mutant(
        "a drain that has given way to others several times is given up, although less is in flight each time",
        (CheckpointCoordinator, "_cancel", _given_up),
    ),
    "drain-ends-with-its-generation": mutant(
        "a drain is forgotten when its Generation fails",
        (CheckpointCoordinator, "_on_ended", _ends_with_generation),
    ),
}
