"""Ledger of pending epochs and sink messages that await their commit.

A message belongs permanently to the epoch in which it was staged. In each capture, subtasks repeat the messages of
every epoch that they do not know to be committed. So the acknowledgments of *one* complete checkpoint contain
everything that may become visible with it, including the epochs of earlier aborted checkpoints. Epochs are committed
strictly in order and one at a time: only one commit of an (epoch, sink) runs at once. Epochs without messages need no
commit and are skipped.

Every epoch that has messages has a *batch id*, the same for all sinks. The id is assigned when the metadata of the
first snapshot that covers the epoch is written, and never changes. The log records which ids complete snapshots have
used, so that no epoch gets the id of another one. That holds even if the other epoch has left the lineage, because a
sink may have seen it. See docs/batch-ids.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.errors import CorruptSnapshot, ProtocolViolation
from penstock.model.ids import CheckpointId
from penstock.model.manifest import SlotManifest


@dataclass(frozen=True)
class PendingCommit:
    """One epoch of one sink that awaits its commit.

    Attributes:
        messages: commit messages by subtask index, ascending.
        batch: batch id of the epoch.
    """

    epoch: int
    operator_id: str
    messages: Mapping[int, bytes]
    batch: int

    @property
    def key(self) -> tuple[int, str]:
        return self.epoch, self.operator_id


def pending_commits(
    slots: Iterable[SlotManifest],
    sinks: Mapping[int, str],
    committed_epoch: int,
    checkpoint: CheckpointId,
    batches: Mapping[int, int],
) -> list[PendingCommit]:
    """Return the commits that a complete snapshot makes possible and that are not known to be made, in commit order.

    Used for a checkpoint that has just completed and, by recovery, for the restored snapshot.

    Args:
        slots: the snapshot's slot manifests.
        sinks: sink operator id by vertex id.
        committed_epoch: the last epoch known to be committed.
        checkpoint: the snapshot's checkpoint; it does not cover later epochs.
        batches: batch ids by epoch.

    Raises:
        CorruptSnapshot: an epoch has no batch id.
    """
    found: dict[tuple[int, str], dict[int, bytes]] = {}
    for vertex, index, epoch, message in _messages(slots):
        if committed_epoch < epoch <= checkpoint:
            found.setdefault((epoch, sinks[vertex]), {})[index] = message
    missing = sorted({epoch for epoch, _ in found} - batches.keys())
    if missing:
        raise CorruptSnapshot(f"the snapshot of checkpoint {checkpoint} has no batch id of epoch {missing[0]}")
    return [
        PendingCommit(epoch, operator_id, dict(sorted(messages.items())), batches[epoch])
        for (epoch, operator_id), messages in sorted(found.items())
    ]


def epochs_with_output(slots: Iterable[SlotManifest]) -> list[int]:
    """Return the epochs for which a snapshot has messages, ascending."""
    return sorted({epoch for _, _, epoch, _ in _messages(slots)})


def _messages(slots: Iterable[SlotManifest]) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield vertex, index of the subtask that staged the message, epoch and message."""
    for slot in slots:
        for subtask in slot.subtasks:
            for epoch, message in subtask.pending_messages.items():
                yield subtask.vertex, subtask.index, epoch, message
            for kept in subtask.inherited_messages:
                yield subtask.vertex, kept.index, kept.epoch, kept.message


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
        self._batches: dict[int, int] = {}
        self._next_batch = 0
        self._planned: int | None = None

    @property
    def committed_epoch(self) -> int:
        """Newest epoch up to which every epoch is committed or was empty."""
        return self._queue[0].epoch - 1 if self._queue else self._covered

    @property
    def awaiting(self) -> int:
        """Number of epochs that await their commit."""
        return len({entry.epoch for entry in self._queue})

    @property
    def out(self) -> PendingCommit | None:
        """The commit that is running now."""
        return self._out

    def recovered(
        self,
        committed_epoch: int,
        pending: Iterable[PendingCommit],
        checkpoint: CheckpointId,
        next_batch: int,
        planned: int | None = None,
    ) -> None:
        """Take over the state of the log and of the restored snapshot ``checkpoint`` (0: none).

        Epochs after the restored snapshot leave the lineage: their rows are produced again in new epochs, with new
        batch ids. ``planned`` is the batch id of the next epoch; None: the next unused one.
        """
        self._queue = [entry for entry in self._queue if entry.epoch <= checkpoint or entry is self._out]
        if not self._queue:
            self._covered = max(self._covered, committed_epoch)
        self._add(pending, max(checkpoint, committed_epoch))
        self._batches = {entry.epoch: entry.batch for entry in self._queue}
        self._next_batch = max(self._next_batch, next_batch)
        self._planned = planned

    def numbered(self, checkpoint: CheckpointId, slots: Sequence[SlotManifest]) -> tuple[dict[int, int], int]:
        """Assign batch ids to the epochs with output in the snapshot ``checkpoint``.

        Returns:
            The ids by epoch, and the id after those of all epochs up to the snapshot.
        """
        epochs = [epoch for epoch in epochs_with_output(slots) if self.committed_epoch < epoch <= checkpoint]
        for epoch in epochs:
            if epoch not in self._batches:
                next_batch = max([self._next_batch, *(1 + batch for batch in self._batches.values())])
                self._batches[epoch] = next_batch if self._planned is None else self._planned
        batches = {epoch: self._batches[epoch] for epoch in epochs}
        return batches, max([self._next_batch, *(1 + batch for batch in batches.values())])

    def completed(self, checkpoint: CheckpointId, slots: Sequence[SlotManifest]) -> None:
        """Record that a snapshot is complete and logged, so that its epochs may become visible."""
        batches, self._next_batch = self.numbered(checkpoint, slots)
        self._planned = None
        self._add(pending_commits(slots, self._sinks, self.committed_epoch, checkpoint, batches), checkpoint)

    def take(self) -> PendingCommit | None:
        """Return the next commit to make, or None while one runs or nothing is left.

        The commit runs until ``done`` or ``failed``.
        """
        if self._out is not None or not self._queue:
            return None
        self._out = self._queue[0]
        return self._out

    def done(self, epoch: int, operator_id: str) -> None:
        """Record that the running commit has been made."""
        self._expect(epoch, operator_id, "done")
        self._done = self._queue.pop(0).key
        if epoch <= self.committed_epoch:
            self._batches.pop(epoch)
        self._out = None

    def failed(self, epoch: int, operator_id: str) -> None:
        """Record that the running commit is certainly not visible. ``take`` returns it again."""
        self._expect(epoch, operator_id, "failed")
        self._out = None

    def _add(self, pending: Iterable[PendingCommit], checkpoint: CheckpointId) -> None:
        queued = {entry.key: entry for entry in self._queue}
        floor = self.committed_epoch
        added = []
        for entry in pending:
            known = queued.get(entry.key)
            if known is not None and (dict(known.messages), known.batch) != (dict(entry.messages), entry.batch):
                raise ProtocolViolation(
                    "commit ledger", f"queued {sorted(queued)}", f"other messages or another id for {entry.key}"
                )
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
        ids = [batch for _, batch in sorted(self._batches.items())]
        assert ids == sorted(set(ids)), "every epoch has a batch id of its own, and they rise"
        kept = all(self._batches[entry.epoch] == entry.batch < self._next_batch for entry in self._queue)
        assert kept, "an epoch that may be committed keeps its batch id, which the log knows"
