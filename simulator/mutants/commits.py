"""Broken epochs: what is committed, when, under which id, and what is remembered of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.coordinator import pending_epochs
from penstock.coordinator.commands import AbandonStagedData, GenerationReady, Output
from penstock.coordinator.machines import commits
from penstock.coordinator.machines.checkpoint_events import (
    CheckpointCommand,
    CollectGarbage,
    LogSnapshot,
    MetadataWritten,
    WriteMetadata,
)
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger, PendingCommit
from penstock.coordinator.machines.endings import Ending
from penstock.coordinator.machines.job import JobCoordinator
from penstock.model.ids import CheckpointId, SubtaskId
from penstock.model.messages import AbortCheckpoint, AcknowledgeCheckpoint, NotifyCheckpointComplete
from penstock.worker.host import InboxEvent
from penstock.worker.subtask import Subtask
from simulator.mutants.mutation import mutant


def _commit_on_last_ack(original: Any) -> Any:
    def on_ack(self: CheckpointCoordinator, event: AcknowledgeCheckpoint, now_ms: float) -> list[CheckpointCommand]:
        commands: list[CheckpointCommand] = original(self, event, now_ms)
        for command in commands:
            if isinstance(command, WriteMetadata) and len(self._pending) > 2:
                self._ledger.completed(command.checkpoint, command.slots)
        return commands

    return on_ack


def _covered_stays(original: Any) -> Any:
    def completed(self: CommitLedger, checkpoint: CheckpointId, slots: Any) -> None:
        if checkpoint > self._covered:
            original(self, checkpoint, slots)

    return completed


def _under_the_newest_id(original: Any) -> Any:
    def pending_commits(
        slots: Any, sinks: Any, committed_epoch: int, checkpoint: CheckpointId, batches: Any
    ) -> list[PendingCommit]:
        found = original(slots, sinks, committed_epoch, checkpoint, batches)
        newest = max((entry.epoch for entry in found), default=0)
        moved: dict[str, dict[int, bytes]] = {}
        for entry in found:
            moved.setdefault(entry.operator_id, {}).update(entry.messages)
        return [
            PendingCommit(newest, operator_id, messages, batches[newest])
            for operator_id, messages in sorted(moved.items())
        ]

    return pending_commits


def _only_own_message(original: Any) -> Any:
    def end_epoch(self: Subtask, *arguments: Any, **options: Any) -> Any:
        self._sink_task._pending.clear()
        return original(self, *arguments, **options)

    return end_epoch


def _discard_on_abort(original: Any) -> Any:
    def handle(self: Subtask, event: InboxEvent) -> None:
        if isinstance(event, AbortCheckpoint):
            self._sink_task._pending.pop(event.checkpoint, None)
        original(self, event)

    return handle


def _newest_recommitted(original: Any) -> Any:
    def recovered(self: CommitLedger, committed_epoch: int, pending: Any, *rest: Any) -> None:
        newest = max((entry.epoch for entry in pending), default=0)
        original(self, committed_epoch, [entry for entry in pending if entry.epoch == newest], *rest)

    return recovered


def _logged_as_committed(original: Any) -> Any:
    def on_metadata_written(
        self: CheckpointCoordinator, event: MetadataWritten, now_ms: float
    ) -> list[CheckpointCommand]:
        commands: list[CheckpointCommand] = original(self, event, now_ms)
        if len(self._pending) < 3:
            return commands
        return [
            dataclasses.replace(c, committed_epoch=c.checkpoint) if isinstance(c, LogSnapshot) else c for c in commands
        ]

    return on_metadata_written


def _abandon_at_once(original: Any) -> Any:
    def on_ready(self: JobCoordinator, event: GenerationReady, now_ms: float) -> list[Output]:
        outputs = original(self, event, now_ms)
        if self._abandon is not None and len({commit.epoch for commit in event.opened.pending}) > 1:
            outputs.insert(0, AbandonStagedData(self._abandon[0]))
            self._abandon = None
        return outputs  # type: ignore[no-any-return]

    return on_ready


def _newest_first(original: Any) -> Any:
    def take(self: CommitLedger) -> PendingCommit | None:
        if self._out is None:
            self._queue.sort(key=lambda entry: -entry.epoch)
        return original(self)  # type: ignore[no-any-return]

    return take


def _told_before_the_commit(original: Any) -> Any:
    def notify(self: CheckpointCoordinator) -> list[CheckpointCommand]:
        ready, self._to_notify = self._to_notify, []
        if not ready:
            return []
        self._newest_notified = max(self._newest_notified, *ready)
        notices = [NotifyCheckpointComplete(checkpoint, checkpoint) for checkpoint in ready]
        return [*notices, CollectGarbage(pinned=self._pinned(), in_flight=self.in_flight)]

    return notify


def _without_a_final_checkpoint(original: Any) -> Any:
    """The newest complete checkpoint will do, whatever was staged since."""

    def finished(self: Ending, subtask: SubtaskId, next_checkpoint: CheckpointId, now_ms: float) -> None:
        original(self, subtask, next_checkpoint, now_ms)
        if self._since is not None and self._complete is None and self.__dict__.get("mutant_newest"):
            self._since = self._complete = self.__dict__["mutant_newest"]

    return finished


def _remember_newest(original: Any) -> Any:
    def completed(self: Ending, checkpoint: CheckpointId) -> None:
        original(self, checkpoint)
        self.__dict__["mutant_newest"] = checkpoint

    return completed


def _one_subtask_short(original: Any) -> Any:
    """The final checkpoint may be triggered before the last subtask is finished."""

    def finished(self: Ending, subtask: SubtaskId, next_checkpoint: CheckpointId, now_ms: float) -> None:
        original(self, subtask, next_checkpoint, now_ms)
        if len(self._finished) == self._subtasks and self._since is not None:
            self._since = max(1, next_checkpoint - 1)

    return finished


COMMITS = {
    "commit-before-completeness": mutant(
        "of more than two checkpoints in flight, one's epochs are committed before its snapshot is logged",
        (CheckpointCoordinator, "_on_ack", _commit_on_last_ack),
        (CommitLedger, "completed", _covered_stays),
    ),
    "epoch-under-a-newer-id": mutant(
        "messages of older epochs are committed under the id of the newest one",
        (commits, "pending_commits", _under_the_newest_id),
        (pending_epochs, "pending_commits", _under_the_newest_id),
    ),
    "messages-of-older-epochs-lost": mutant(
        "a capture reports the commit message of its own epoch only",
        (Subtask, "_end_epoch", _only_own_message),
    ),
    "abort-discards-staged-rows": mutant(
        "an abort forgets the commit message of its epoch",
        (Subtask, "_handle", _discard_on_abort),
    ),
    "pending-commits-not-recovered": mutant(
        "of a restored snapshot's uncommitted epochs only the newest is committed",
        (CommitLedger, "recovered", _newest_recommitted),
    ),
    "logged-as-committed-too-early": mutant(
        "of more than two checkpoints in flight, one's log entry says that its epochs are committed",
        (CheckpointCoordinator, "_on_metadata_written", _logged_as_committed),
    ),
    "abandoned-before-the-commit": mutant(
        "of several restored epochs, what is staged is dropped before they are committed",
        (JobCoordinator, "_on_ready", _abandon_at_once),
    ),
    "newest-epoch-first": mutant(
        "of several pending epochs the newest is committed first",
        (CommitLedger, "take", _newest_first),
    ),
    "final-checkpoint-skipped": mutant(
        "when all input has ended, the newest complete checkpoint counts as the final one",
        (Ending, "subtask_finished", _without_a_final_checkpoint),
        (Ending, "completed", _remember_newest),
    ),
    "older-checkpoint-taken-for-the-final-one": mutant(
        "a checkpoint that was triggered before the last subtask finished counts as the final one",
        (Ending, "subtask_finished", _one_subtask_short),
    ),
    "told-before-the-commit": mutant(
        "slots forget an epoch's message when its snapshot is complete, before it is committed",
        (CheckpointCoordinator, "_notify", _told_before_the_commit),
    ),
}
