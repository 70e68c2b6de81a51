"""Which epochs await their commit: the ledger of pending epochs and sink messages.

A message belongs for ever to the epoch it was staged in. Subtasks repeat the messages of every epoch that they do not
know to be committed in each capture, so the acknowledgements of *one* complete checkpoint hold everything that may
become visible with it, the epochs of aborted checkpoints before it included. Epochs are committed strictly in order
and alone: one (epoch, sink) is out at a time. Epochs without any message have nothing to make visible and are passed
over.

So a commit's batch number is how many this sink made before. The counts belong to the committed epoch and are kept
with it, as one ``CommitPoint``: whoever knows the epoch knows which numbers the next ones get.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ProtocolViolation
from penstock.ids import CheckpointId
from penstock.snapshot.model import CommitPoint, SlotManifest


@dataclass(frozen=True)
class PendingCommit:
    """One epoch of one sink that has to become visible. ``messages`` by subtask index, ascending."""

    epoch: int
    operator_id: str
    messages: Mapping[int, bytes]

    @property
    def key(self) -> tuple[int, str]:
        return self.epoch, self.operator_id


def pending_commits(
    slots: Iterable[SlotManifest], sinks: Mapping[int, str], committed_epoch: int, checkpoint: CheckpointId
) -> list[PendingCommit]:
    """What a complete snapshot ``checkpoint`` lets become visible and is not yet known to be, in commit order.

    Used for a checkpoint that has just completed and, by recovery, for the snapshot that is restored.

    Args:
        slots: the snapshot's slot manifests.
        sinks: sink operator id by vertex id.
        committed_epoch: the last epoch known to be committed.
        checkpoint: the snapshot's checkpoint; epochs above it are not covered by it.
    """
    found: dict[tuple[int, str], dict[int, bytes]] = {}
    for slot in slots:
        for subtask in slot.subtasks:
            for epoch, message in subtask.pending_messages.items():
                if committed_epoch < epoch <= checkpoint:
                    found.setdefault((epoch, sinks[subtask.vertex]), {})[subtask.index] = message
            for kept in subtask.inherited_messages:
                if committed_epoch < kept.epoch <= checkpoint:
                    found.setdefault((kept.epoch, sinks[subtask.vertex]), {})[kept.index] = kept.message
    return [
        PendingCommit(epoch, operator_id, dict(sorted(messages.items())))
        for (epoch, operator_id), messages in sorted(found.items())
    ]


class CommitLedger:
    """Epochs of complete, logged snapshots that await their commit, in order.

    Args:
        sinks: sink operator id by vertex id.
    """

    def __init__(self, sinks: Mapping[int, str]) -> None:
        self._sinks = dict(sinks)
        self._queue: list[PendingCommit] = []
        self._covered = 0
        self._out: PendingCommit | None = None
        self._done: tuple[int, str] = (0, "")
        self._done_in_epoch: list[str] = []
        self._batches: dict[str, int] = {}

    @property
    def committed_epoch(self) -> int:
        """Every epoch up to this one is committed (or was empty)."""
        return self._queue[0].epoch - 1 if self._queue else self._covered

    @property
    def committed(self) -> CommitPoint:
        """The committed epoch with its batch counts. Commits of an epoch that other sinks still have to make visible
        do not count: a driver that starts from this pair makes them again, under the same number."""
        counts = dict(self._batches)
        if self._queue and self._queue[0].epoch == self._done[0]:
            for operator_id in self._done_in_epoch:
                counts[operator_id] -= 1
        return CommitPoint(self.committed_epoch, counts)

    @property
    def awaiting(self) -> int:
        """How many epochs await their commit."""
        return len({entry.epoch for entry in self._queue})

    @property
    def out(self) -> PendingCommit | None:
        """The commit that is being made now."""
        return self._out

    def recovered(self, committed: CommitPoint, pending: Iterable[PendingCommit], checkpoint: CheckpointId) -> None:
        """Take over what the log and the restored snapshot ``checkpoint`` (0: none) say.

        Epochs above the restored snapshot leave the lineage: their rows are produced again under new epochs.
        """
        if committed.epoch > self.committed_epoch:  # a new driver; one that goes on knows at least what it logged
            self._batches = dict(committed.batches)
        self._queue = [entry for entry in self._queue if entry.epoch <= checkpoint or entry is self._out]
        if not self._queue:
            self._covered = max(self._covered, committed.epoch)
        self._add(pending, max(checkpoint, committed.epoch))

    def completed(self, checkpoint: CheckpointId, slots: Iterable[SlotManifest]) -> None:
        """A snapshot is complete and logged: its epochs may become visible."""
        self._add(pending_commits(slots, self._sinks, self.committed_epoch, checkpoint), checkpoint)

    def take(self) -> PendingCommit | None:
        """The next commit to make, or None while one is out or nothing is left. It is out until ``done``/``failed``."""
        if self._out is not None or not self._queue:
            return None
        self._out = self._queue[0]
        return self._out

    def next_batch(self, operator_id: str) -> int:
        """The number of this sink's next commit, and of the one that is out."""
        return self._batches.get(operator_id, 0)

    def done(self, epoch: int, operator_id: str) -> None:
        """The commit that was out has been made."""
        self._expect(epoch, operator_id, "done")
        if epoch != self._done[0]:
            self._done_in_epoch = []
        self._done_in_epoch.append(operator_id)
        self._batches[operator_id] = self.next_batch(operator_id) + 1
        self._done = self._queue.pop(0).key
        self._out = None

    def failed(self, epoch: int, operator_id: str) -> None:
        """The commit that was out is certainly not visible; ``take`` gives it again."""
        self._expect(epoch, operator_id, "failed")
        self._out = None

    def _add(self, pending: Iterable[PendingCommit], checkpoint: CheckpointId) -> None:
        queued = {entry.key: entry for entry in self._queue}
        floor = self.committed_epoch
        added = []
        for entry in pending:
            known = queued.get(entry.key)
            if known is not None and dict(known.messages) != dict(entry.messages):
                raise ProtocolViolation("commit ledger", f"queued {sorted(queued)}", f"other messages for {entry.key}")
            if known is None and entry.epoch > floor and entry.key > self._done:
                added.append(entry)
        if added and self._queue and min(e.key for e in added) < self._queue[-1].key:
            raise ProtocolViolation("commit ledger", f"queued {sorted(queued)}", f"late epoch {added[0].key}")
        self._queue += added
        self._covered = max(self._covered, checkpoint)

    def _expect(self, epoch: int, operator_id: str, event: str) -> None:
        if self._out is None or self._out.key != (epoch, operator_id):
            out = None if self._out is None else self._out.key
            raise ProtocolViolation("commit ledger", f"out {out}", f"{event} {(epoch, operator_id)}")

    def check_invariants(self) -> None:
        keys = [entry.key for entry in self._queue]
        assert keys == sorted(set(keys)), "epochs are queued once and in order"
        assert self._out is None or self._out is self._queue[0], "only the oldest epoch is out"
        assert all(entry.messages for entry in self._queue), "an empty epoch has nothing to commit"
        assert self._covered >= (keys[-1][0] if keys else 0), "only epochs of complete snapshots are queued"
        assert all(count >= 0 for count in self.committed.batches.values()), "what is taken back was counted"
