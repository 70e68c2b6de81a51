"""End of a query whose input has ended: the final checkpoint, and its commit.

A finished subtask has staged all of its rows, the last ones in the epoch that is open then. So a checkpoint that is
triggered after the last subtask of the generation finished covers all rows. Once that checkpoint is complete and
committed, nothing is left to do. It is requested at once, and again as long as it fails; a periodic checkpoint serves
as well. If the generation fails before, everything starts again: restored subtasks finish again by themselves.
"""

from __future__ import annotations

from penstock.model.ids import CheckpointId, SubtaskId

FINAL_RETRY_MS = 1000
"""Pause after a failed final checkpoint. It gives a full disk time, and no data waits for it any more."""


class Ending:
    """Pure state machine of one driver, over all its generations.

    Args:
        subtasks: number of subtasks of the job.
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
        """Number of subtasks of this generation that have finished."""
        return len(self._finished)

    def next_wake_ms(self) -> float | None:
        """Return the time at which ``ask`` returns a ticket; None if it will not."""
        return self._ask_at_ms if self._wants_checkpoint else None

    def generation_ended(self) -> None:
        """Forget the finished subtasks, because restored ones finish again."""
        self._finished.clear()
        self._since = self._complete = None
        self._waits_for_answer = False

    def rescaled(self, subtasks: int) -> None:
        """Set the number of subtasks of the next generation. Call it between two generations."""
        self._subtasks = subtasks

    def subtask_finished(self, subtask: SubtaskId, next_checkpoint: CheckpointId, now_ms: float) -> None:
        """Record that a subtask of this generation has finished. ``next_checkpoint``: id of the next trigger."""
        self._finished[subtask] = None
        if len(self._finished) == self._subtasks and self._since is None:
            self._since = next_checkpoint
            self._ask_at_ms = now_ms

    def ask(self, now_ms: float) -> int | None:
        """Return the ticket of a checkpoint to request now, or None.

        Tickets are negative, because those of users are positive.
        """
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
        """Record that the checkpoint of that ticket failed. The next ``ask`` begins the pause before another."""
        if ticket == self._ticket:
            self._waits_for_answer = False
            self._ask_at_ms = None

    def covers(self, checkpoint: CheckpointId) -> bool:
        """Return True if a checkpoint was triggered after the last subtask of this generation finished."""
        return self._since is not None and checkpoint >= self._since

    def completed(self, checkpoint: CheckpointId) -> None:
        """Record that a checkpoint of this generation, of any kind, is complete."""
        if self._complete is None and self.covers(checkpoint):
            self._complete = checkpoint

    def over(self, committed_epoch: int) -> bool:
        """Return True, once, if everything is committed, so that the query may end."""
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
