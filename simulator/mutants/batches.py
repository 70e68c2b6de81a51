"""Mutants of batch ids: an epoch gets a wrong id or does not keep its id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from penstock.coordinator import command_executor
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import GenerationReady
from penstock.coordinator.machines.commits import CommitLedger, PendingCommit
from penstock.model.ids import CheckpointId
from simulator.mutants.mutation import mutant


def _forgotten(original: Any) -> Any:
    def recovered(
        self: CommitLedger, committed_epoch: int, pending: Any, checkpoint: CheckpointId, next_batch: int, planned: Any
    ) -> None:
        # The cold run at the end of a calm schedule has a driver of its own, which may follow the first batch.
        forgotten = 0 if next_batch > 2 and not pending else next_batch
        original(self, committed_epoch, pending, checkpoint, forgotten, planned)

    return recovered


def _of_the_snapshot(original: Any) -> Any:
    def opened(self: CommandExecutor, entry: Any, metadata: Any, skipped: Any) -> GenerationReady:
        ready: GenerationReady = original(self, entry, metadata, skipped)
        known = 0 if ready.restored is None else ready.restored.next_batch
        return replace(ready, opened=replace(ready.opened, next_batch=known or 0))

    return opened


def _anew_for_pending(original: Any) -> Any:
    def batch_ids(metadata: Any, counted: Any) -> dict[int, int]:
        ids = dict(original(metadata, counted))
        return {epoch: batch + 1 for epoch, batch in ids.items()} if len(ids) > 1 else ids

    return batch_ids


def _failure_counted(original: Any) -> Any:
    def failed(self: CommitLedger, epoch: int, operator_id: str) -> None:
        original(self, epoch, operator_id)
        first = self._queue[0]
        later = [PendingCommit(e.epoch, e.operator_id, e.messages, e.batch + 1) for e in self._queue[1:]]
        self._queue = [PendingCommit(first.epoch, first.operator_id, first.messages, first.batch + 1), *later]
        self._batches = {entry: batch + 1 for entry, batch in self._batches.items()}
        self._next_batch += 1

    return failed


def _in_the_log_late(original: Any) -> Any:
    """Write the ids of a snapshot with several pending epochs to the log only with the next snapshot."""

    def write(self: CommandExecutor, metadata: Any) -> Any:
        late = min(metadata.batches.values()) if len(metadata.batches) > 1 else metadata.next_batch
        event = original(self, metadata)
        if metadata.checkpoint in self._written:
            stored, ref = self._written[metadata.checkpoint]
            self._written[metadata.checkpoint] = msgspec.structs.replace(stored, next_batch=late), ref
        return event

    return write


BATCHES = {
    "batch-ids-begin-anew": mutant(
        "a new driver of a location that has several batches gives ids from 0 on",
        (CommitLedger, "recovered", _forgotten),
    ),
    "batch-ids-of-the-restored-snapshot": mutant(
        "new epochs get ids after those of the restored snapshot, whatever newer ones have handed over",
        (CommandExecutor, "_opened", _of_the_snapshot),
    ),
    "pending-epochs-numbered-anew": mutant(
        "of several pending epochs of a restored snapshot each comes under another id than before",
        (command_executor, "batch_ids", _anew_for_pending),
    ),
    "failed-commit-counted": mutant(
        "a commit that failed uses up its batch id, and the next attempt has another one",
        (CommitLedger, "failed", _failure_counted),
    ),
    "batch-ids-logged-late": mutant(
        "the entry that completes a snapshot with several pending epochs does not tell their ids",
        (CommandExecutor, "_write", _in_the_log_late),
    ),
}
