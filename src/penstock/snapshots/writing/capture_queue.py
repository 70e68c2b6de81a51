"""What a slot's subtasks captured and nobody has written yet, and how much of it there may be.

Two limits bound it. With ``max_inflight_bytes``, subtasks ask before they capture. ``memory_bytes`` counts what was
handed over: beyond it, ``offer`` declines the checkpoint at once, even while a stuck store holds the writing thread.
The owner puts one lock around every call.

Lifecycle of a checkpoint here::

    (none) --triggered, offer--> open --finish--> finished --end--> ended
                                 open --end--> ended

What is offered for a finished or ended one is dropped. ``end`` drops what waits, then tells the writer. State that is
dropped comes as ``Dropped``, because it has to be released where captures are read.

Captures wait until their checkpoint is triggered, because the trigger says what of the state need not be written; every
slot is told of every trigger. Rows do not: they are what memory is short of.
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

MAX_OVER = 64
"""Checkpoints whose end is remembered, so that what comes late of one is dropped; more are never in flight."""


@dataclass(frozen=True)
class CaptureLimits:
    """Bytes are those of in-flight rows in memory. State is not counted: a capture shares it with the operators.

    Attributes:
        max_inflight_bytes: of one checkpoint (``checkpoint.maxInflightBytes``); None: any number.
        memory_bytes: of all checkpoints, handed over and not written yet (``checkpoint.captureMemory``).
    """

    max_inflight_bytes: int | None
    memory_bytes: int


@dataclass(frozen=True)
class Begun:
    """``base``: the complete checkpoint whose sections may be referred to (0: none)."""

    checkpoint: CheckpointId
    base: CheckpointId


@dataclass(frozen=True)
class Recorded:
    """A part of what is in flight, before its subtask's capture."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    inflight: Sequence[Captured]


@dataclass(frozen=True)
class Ended:
    """The checkpoint is dead: nothing of it is to stay."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class Dropped:
    """State that was captured in vain, to be released."""

    states: Sequence[OperatorState]


Work = Begun | Recorded | SubtaskCapture | Ended | Dropped


class _Over(Enum):
    FINISHED = "finished"
    ENDED = "ended"


class CaptureQueue:
    """Works in the order in which they came, ``Ended`` first.

    Args:
        limits: beyond which ``offer`` refuses.
    """

    def __init__(self, limits: CaptureLimits) -> None:
        self._limits = limits
        self._works: deque[tuple[Work, int]] = deque()
        self._writing_bytes = 0
        self._queued_bytes = 0
        self._allowed_bytes: dict[CheckpointId, int] = {}
        self._triggered: dict[CheckpointId, None] = {}
        self._early: dict[CheckpointId, list[tuple[SubtaskCapture, int]]] = {}
        self._over: dict[CheckpointId, _Over] = {}

    @property
    def held_bytes(self) -> int:
        """Of in-flight rows that are kept in memory to be written."""
        return self._queued_bytes + self._writing_bytes

    def __len__(self) -> int:
        return len(self._works)

    def triggered(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """Best before anything else of the checkpoint, but a barrier may be faster."""
        if checkpoint not in self._over:
            self._works.append((Begun(checkpoint, base), 0))
            self._works.extend(self._early.pop(checkpoint, ()))
            self._triggered[checkpoint] = None

    def allow(self, checkpoint: CheckpointId, size: int) -> bool:
        """Reserve in-flight bytes for a checkpoint; return False if the limit does not allow them.

        The caller then offers at most this many.
        """
        limit = self._limits.max_inflight_bytes
        if limit is None or checkpoint in self._over:
            return True
        allowed_bytes = self._allowed_bytes.get(checkpoint, 0) + size
        if allowed_bytes > limit:
            return False
        self._allowed_bytes[checkpoint] = allowed_bytes
        return True

    def offer(self, work: Recorded | SubtaskCapture) -> str | None:
        """Queue it; or the reason why the checkpoint must be declined (then ``end`` it). Late ones are dropped."""
        checkpoint = work.checkpoint
        if checkpoint in self._over:
            self._drop(work)
            return None
        size = sum(captured.cost for captured in work.inflight)
        reason = self._refusal(size)
        if reason is not None:
            self._drop(work)
            return reason
        self._queued_bytes += size
        if isinstance(work, SubtaskCapture) and checkpoint not in self._triggered:
            self._early.setdefault(checkpoint, []).append((work, size))
        else:
            self._works.append((work, size))
        return None

    def drop(self, states: Sequence[OperatorState]) -> None:
        """State that was captured and will not be offered."""
        if any(state.tables for state in states):
            self._works.append((Dropped(states), 0))

    def take(self) -> Work | None:
        """The next work. Its rows count until ``written``."""
        if not self._works:
            return None
        work, size = self._works.popleft()
        self._queued_bytes -= size
        self._writing_bytes += size
        return work

    def written(self) -> None:
        """The work taken last is done, one way or another."""
        self._writing_bytes = 0

    def finish(self, checkpoint: CheckpointId) -> bool:
        """All of it is durable: whether it may be acknowledged. If not, it ended meanwhile."""
        if checkpoint in self._over:
            return False
        self._remember(checkpoint, _Over.FINISHED)
        return True

    def end(self, checkpoint: CheckpointId) -> bool:
        """It was aborted or is to be declined: whether that is news, so that nobody was answered yet."""
        before = self._over.get(checkpoint)
        if before is _Over.ENDED:
            return False
        queued = [*self._works, *self._early.pop(checkpoint, ())]
        self._works.clear()
        for work, size in queued:
            if isinstance(work, Dropped) or work.checkpoint != checkpoint:
                self._works.append((work, size))
            else:
                self._queued_bytes -= size
                self._drop(work)
        self._works.appendleft((Ended(checkpoint), 0))
        self._remember(checkpoint, _Over.ENDED)
        return before is None

    def left(self) -> Iterator[Sequence[OperatorState]]:
        """At the end, instead of ``take``: the state that nobody will write, to be released."""
        for work in [*(work for work, _ in self._works), *(one for held in self._early.values() for one, _ in held)]:
            if isinstance(work, Dropped):
                yield work.states
            elif isinstance(work, SubtaskCapture):
                yield list(work.operators.values())
        self._works.clear()
        self._early.clear()
        self._queued_bytes = 0

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger is wrong or a dead checkpoint holds anything."""
        early = [held for captures in self._early.values() for held in captures]
        assert self._queued_bytes == sum(size for _, size in [*self._works, *early])
        assert self._queued_bytes <= self._limits.memory_bytes
        assert len(self._over) <= MAX_OVER
        for work, _ in self._works:
            assert isinstance(work, Ended | Dropped) or work.checkpoint not in self._over, f"{work.checkpoint} is over"
        for open_ones in (self._allowed_bytes, self._triggered, self._early):
            assert not any(checkpoint in self._over for checkpoint in open_ones)
        assert not any(checkpoint in self._triggered for checkpoint in self._early), "nothing to wait for"

    def _refusal(self, size: int) -> str | None:
        limits = self._limits
        if self.held_bytes + size > limits.memory_bytes:
            return (
                f"{self.held_bytes + size} captured bytes would await their write, more than {CONF_PREFIX}"
                f"checkpoint.captureMemory={limits.memory_bytes} allows: the store is too slow for what is in flight"
            )
        return None

    def _drop(self, work: Work) -> None:
        if isinstance(work, SubtaskCapture):
            self.drop(list(work.operators.values()))

    def _remember(self, checkpoint: CheckpointId, over: _Over) -> None:
        self._allowed_bytes.pop(checkpoint, None)
        self._triggered.pop(checkpoint, None)
        self._over[checkpoint] = over
        while len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]
