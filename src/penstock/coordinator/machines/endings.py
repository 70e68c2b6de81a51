"""End of a query whose input has ended: the final checkpoint, and its commit.

A subtask that says it is finished has staged every row it will ever stage, in the epoch that is open then. So a
checkpoint that is triggered after the last subtask of the Generation said so holds them all, and once it is complete
and committed nothing is left to do. One is asked for at once, and again for as long as it fails; a periodic one serves
as well. A Generation that is lost on the way begins all over: restored subtasks end again by themselves.
"""

from __future__ import annotations

from penstock.model.ids import CheckpointId, SubtaskId

FINAL_RETRY_MS = 1000
"""Pause after a final checkpoint that failed: a full disk is given time, and waiting costs nothing any more."""


class Ending:
    """The pure machine of one driver, over all its Generations.

    Args:
        subtasks: how many the job has.
    """

    def __init__(self, subtasks: int) -> None:
        self._subtasks = subtasks
        self._finished: dict[SubtaskId, None] = {}
        self._since: CheckpointId | None = None
        self._complete: CheckpointId | None = None
        self._ticket = 0
        self._waits_for_answer = False
        self._ask_at_ms: float | None = None
        self._over = False

    @property
    def finished(self) -> int:
        """Subtasks of this Generation that have finished."""
        return len(self._finished)

    def next_wake_ms(self) -> float | None:
        """Time at which ``ask`` returns a ticket; None if it will not."""
        return self._ask_at_ms if self._wants_checkpoint else None

    def generation_ended(self) -> None:
        """Forget the finished subtasks: restored ones finish again."""
        self._finished.clear()
        self._since = self._complete = None
        self._waits_for_answer = False

    def rescaled(self, subtasks: int) -> None:
        """Set the parallelism of the next Generation, between two Generations."""
        self._subtasks = subtasks

    def subtask_finished(self, subtask: SubtaskId, next_checkpoint: CheckpointId, now_ms: float) -> None:
        """Note that a subtask of this Generation has finished. ``next_checkpoint``: id of the next trigger."""
        self._finished[subtask] = None
        if len(self._finished) == self._subtasks and self._since is None:
            self._since = next_checkpoint
            self._ask_at_ms = now_ms

    def ask(self, now_ms: float) -> int | None:
        """The ticket of a checkpoint to ask for now, or None. Tickets are negative: users' are positive."""
        if not self._wants_checkpoint:
            return None
        if self._ask_at_ms is None:
            self._ask_at_ms = now_ms + FINAL_RETRY_MS
        if now_ms < self._ask_at_ms:
            return None
        self._waits_for_answer = True
        self._ticket -= 1
        return self._ticket

    def refused(self, ticket: int) -> None:
        """Note that the checkpoint of that ticket failed: the next ``ask`` begins the pause before another."""
        if ticket == self._ticket:
            self._waits_for_answer = False
            self._ask_at_ms = None

    def covers(self, checkpoint: CheckpointId) -> bool:
        """A checkpoint in flight was triggered after the last subtask of this Generation finished."""
        return self._since is not None and checkpoint >= self._since

    def completed(self, checkpoint: CheckpointId) -> None:
        """A checkpoint of this Generation, of whatever kind, is complete."""
        if self._complete is None and self.covers(checkpoint):
            self._complete = checkpoint

    def over(self, committed_epoch: int) -> bool:
        """Everything is committed: the query may end. True once."""
        if self._over or self._complete is None or committed_epoch < self._complete:
            return False
        self._over = True
        return True

    @property
    def _wants_checkpoint(self) -> bool:
        return self._since is not None and self._complete is None and not self._waits_for_answer

    def check_invariants(self) -> None:
        assert len(self._finished) <= self._subtasks, "only subtasks of the job finish"
        assert self._since is None or len(self._finished) == self._subtasks, "the final checkpoint follows all ends"
        assert self._complete is None or (self._since is not None and self._complete >= self._since), "and covers them"
