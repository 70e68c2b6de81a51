"""Queue of captures of a slot's subtasks that are not written yet, with limits on their size.

Two limits apply. Subtasks ask for ``max_inflight_bytes`` before they capture. ``memory_bytes`` limits captured bytes
that are not written yet: above it, ``offer`` declines the checkpoint at once, even while a stuck store blocks the
writing thread. The owner must hold one lock around every call.

States of a checkpoint in the queue::

    (none) --triggered, offer--> open --finish--> finished --end--> ended
                                 open --end--> ended

Offers for a finished or ended checkpoint are dropped. ``end`` drops queued tasks and then notifies the writer. Dropped
state becomes a ``ReleaseState`` task, because it must be released on the thread that reads captures.

Captures wait until their checkpoint is triggered, because the trigger names the base, and state of the base need not be
written again. Every slot gets every trigger. Recorded rows do not wait, because they take most of the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.config import CONF_PREFIX
from penstock.model.elements import Captured
from penstock.model.ids import CheckpointId, SubtaskId
from penstock.operators.base import OperatorState
from penstock.snapshots.writing.handover import SubtaskCapture

MAX_REMEMBERED = 64
"""Number of finished and ended checkpoints remembered to drop late offers. At most this many are in flight."""


@dataclass(frozen=True)
class CaptureLimits:
    """Limits on bytes of in-flight rows in memory. State does not count: a capture shares it with the operators.

    Attributes:
        max_inflight_bytes: limit per checkpoint (``checkpoint.maxInflightBytes``); None for no limit.
        memory_bytes: limit on the captured and unwritten bytes of all checkpoints (``checkpoint.captureMemory``).
    """

    max_inflight_bytes: int | None
    memory_bytes: int


@dataclass(frozen=True)
class BeginCheckpoint:
    """Task: begin a checkpoint. ``base`` is a complete checkpoint to whose sections it may refer; 0 for none."""

    checkpoint: CheckpointId
    base: CheckpointId


@dataclass(frozen=True)
class RecordedRows:
    """Task: write a part of the in-flight rows that was recorded before the capture of the subtask."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    inflight: Sequence[Captured]


@dataclass(frozen=True)
class EndCheckpoint:
    """Task: remove all files of an aborted checkpoint."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class ReleaseState:
    """Task: release captured state that will not be written."""

    states: Sequence[OperatorState]


WriterTask = BeginCheckpoint | RecordedRows | SubtaskCapture | EndCheckpoint | ReleaseState


class _Outcome(Enum):
    FINISHED = "finished"
    ENDED = "ended"


class CaptureQueue:
    """Queue of writer tasks, in order of arrival. Only ``EndCheckpoint`` tasks are put first.

    Args:
        limits: limits above which ``allow`` and ``offer`` refuse.
    """

    def __init__(self, limits: CaptureLimits) -> None:
        self._limits = limits
        self._tasks: deque[tuple[WriterTask, int]] = deque()
        self._writing_bytes = 0
        self._queued_bytes = 0
        self._allowed_bytes: dict[CheckpointId, int] = {}
        self._triggered: dict[CheckpointId, None] = {}
        self._early: dict[CheckpointId, list[tuple[SubtaskCapture, int]]] = {}
        self._outcomes: dict[CheckpointId, _Outcome] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes of in-flight rows in memory that are not written yet."""
        return self._queued_bytes + self._writing_bytes

    def __len__(self) -> int:
        return len(self._tasks)

    def triggered(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """Begin a checkpoint. Its barrier, and therefore its captures, may arrive before the trigger."""
        if checkpoint not in self._outcomes:
            self._tasks.append((BeginCheckpoint(checkpoint, base), 0))
            self._tasks.extend(self._early.pop(checkpoint, ()))
            self._triggered[checkpoint] = None

    def allow(self, checkpoint: CheckpointId, size: int) -> bool:
        """Reserve in-flight bytes for a checkpoint. Return False if the limit does not allow them.

        After True, the caller may offer at most ``size`` bytes.
        """
        limit = self._limits.max_inflight_bytes
        if limit is None or checkpoint in self._outcomes:
            return True
        allowed_bytes = self._allowed_bytes.get(checkpoint, 0) + size
        if allowed_bytes > limit:
            return False
        self._allowed_bytes[checkpoint] = allowed_bytes
        return True

    def offer(self, task: RecordedRows | SubtaskCapture) -> str | None:
        """Queue a task. Return None, or the reason why the checkpoint must be declined; the caller then calls ``end``.

        Tasks of finished and ended checkpoints are dropped.
        """
        checkpoint = task.checkpoint
        if checkpoint in self._outcomes:
            self._drop(task)
            return None
        size = sum(captured.cost for captured in task.inflight)
        reason = self._refusal(size)
        if reason is not None:
            self._drop(task)
            return reason
        self._queued_bytes += size
        if isinstance(task, SubtaskCapture) and checkpoint not in self._triggered:
            self._early.setdefault(checkpoint, []).append((task, size))
        else:
            self._tasks.append((task, size))
        return None

    def drop(self, states: Sequence[OperatorState]) -> None:
        """Queue the release of captured state that will not be offered."""
        if any(state.tables for state in states):
            self._tasks.append((ReleaseState(states), 0))

    def take(self) -> WriterTask | None:
        """Return the next task, or None. The rows of the task count as held until ``written`` is called."""
        if not self._tasks:
            return None
        task, size = self._tasks.popleft()
        self._queued_bytes -= size
        self._writing_bytes += size
        return task

    def written(self) -> None:
        """Release the bytes of the task taken last, whether it succeeded or failed."""
        self._writing_bytes = 0

    def finish(self, checkpoint: CheckpointId) -> bool:
        """Mark a durable checkpoint as finished. Return False if it has ended and must not be acknowledged."""
        if checkpoint in self._outcomes:
            return False
        self._remember(checkpoint, _Outcome.FINISHED)
        return True

    def end(self, checkpoint: CheckpointId) -> bool:
        """End a checkpoint that was aborted or is declined.

        Return True if this slot has neither acknowledged nor declined the checkpoint yet.
        """
        before = self._outcomes.get(checkpoint)
        if before is _Outcome.ENDED:
            return False
        queued = [*self._tasks, *self._early.pop(checkpoint, ())]
        self._tasks.clear()
        for task, size in queued:
            if isinstance(task, ReleaseState) or task.checkpoint != checkpoint:
                self._tasks.append((task, size))
            else:
                self._queued_bytes -= size
                self._drop(task)
        self._tasks.appendleft((EndCheckpoint(checkpoint), 0))
        self._remember(checkpoint, _Outcome.ENDED)
        return before is None

    def remaining_states(self) -> Iterator[Sequence[OperatorState]]:
        """Empty the queue at the end of the slot. Yield the states to release."""
        for task in [*(task for task, _ in self._tasks), *(one for held in self._early.values() for one, _ in held)]:
            if isinstance(task, ReleaseState):
                yield task.states
            elif isinstance(task, SubtaskCapture):
                yield list(task.operators.values())
        self._tasks.clear()
        self._early.clear()
        self._queued_bytes = 0

    def check_invariants(self) -> None:
        """Raise AssertionError if the byte counts are wrong or the queue holds a task of an ended checkpoint."""
        early = [held for captures in self._early.values() for held in captures]
        assert self._queued_bytes == sum(size for _, size in [*self._tasks, *early])
        assert self._queued_bytes <= self._limits.memory_bytes
        assert len(self._outcomes) <= MAX_REMEMBERED
        for task, _ in self._tasks:
            assert isinstance(task, EndCheckpoint | ReleaseState) or task.checkpoint not in self._outcomes, (
                f"{task.checkpoint} is over"
            )
        for open_ones in (self._allowed_bytes, self._triggered, self._early):
            assert not any(checkpoint in self._outcomes for checkpoint in open_ones)
        assert not any(checkpoint in self._triggered for checkpoint in self._early), "nothing to wait for"

    def _refusal(self, size: int) -> str | None:
        limits = self._limits
        if self.held_bytes + size > limits.memory_bytes:
            return (
                f"{self.held_bytes + size} captured bytes would await their write, more than {CONF_PREFIX}"
                f"checkpoint.captureMemory={limits.memory_bytes} allows: the store is too slow for what is in flight"
            )
        return None

    def _drop(self, task: WriterTask) -> None:
        if isinstance(task, SubtaskCapture):
            self.drop(list(task.operators.values()))

    def _remember(self, checkpoint: CheckpointId, over: _Outcome) -> None:
        self._allowed_bytes.pop(checkpoint, None)
        self._triggered.pop(checkpoint, None)
        self._outcomes[checkpoint] = over
        while len(self._outcomes) > MAX_REMEMBERED:
            del self._outcomes[next(iter(self._outcomes))]
