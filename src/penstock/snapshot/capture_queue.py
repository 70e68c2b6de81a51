"""What a slot's subtasks captured and nobody has written yet, and how much of it there may be.

Recording is not bounded by itself; these two limits are. Whoever hands something over is told at once: a checkpoint is
declined while a stuck store still holds the thread that writes. One lock around every call makes it safe for threads.

Lifecycle of a checkpoint here::

    (none) --triggered, offer--> open --finish--> finished --end--> ended
                                 open --end--> ended

What is offered for a finished or ended one is dropped. ``end`` drops what waits, then tells the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.config import CONF_PREFIX
from penstock.ids import CheckpointId, SubtaskId
from penstock.protocol.elements import Captured
from penstock.snapshot.handover import SubtaskCapture

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


Work = Begun | Recorded | SubtaskCapture | Ended


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
        self._inflight_bytes: dict[CheckpointId, int] = {}
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

    def offer(self, work: Recorded | SubtaskCapture) -> str | None:
        """Queue it; or the reason why the checkpoint must be declined (then ``end`` it). Late ones are dropped."""
        checkpoint = work.checkpoint
        if checkpoint in self._over:
            return None
        size = sum(captured.cost for captured in work.inflight)
        inflight_bytes = self._inflight_bytes.get(checkpoint, 0) + size
        reason = self._refusal(inflight_bytes, size)
        if reason is None:
            self._inflight_bytes[checkpoint] = inflight_bytes
            self._queued_bytes += size
            self._works.append((work, size))
        return reason

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
        kept = [(work, size) for work, size in self._works if work.checkpoint != checkpoint]
        self._works = deque(kept)
        self._queued_bytes = sum(size for _, size in kept)
        self._works.appendleft((Ended(checkpoint), 0))
        self._remember(checkpoint, _Over.ENDED)
        return before is None

    def check_invariants(self) -> None:
        """Raise AssertionError if the ledger is wrong or a dead checkpoint holds anything."""
        assert self._queued_bytes == sum(size for _, size in self._works)
        assert self._queued_bytes <= self._limits.memory_bytes
        assert len(self._over) <= MAX_OVER
        for work, _ in self._works:
            assert isinstance(work, Ended) or work.checkpoint not in self._over, f"{work.checkpoint} is over"
        assert not any(checkpoint in self._over for checkpoint in self._inflight_bytes)

    def _refusal(self, inflight_bytes: int, size: int) -> str | None:
        limits = self._limits
        if limits.max_inflight_bytes is not None and inflight_bytes > limits.max_inflight_bytes:
            return (
                f"{inflight_bytes} bytes in flight are more than {CONF_PREFIX}checkpoint.maxInflightBytes="
                f"{limits.max_inflight_bytes} allows"
            )
        if self.held_bytes + size > limits.memory_bytes:
            return (
                f"{self.held_bytes + size} captured bytes would await their write, more than {CONF_PREFIX}"
                f"checkpoint.captureMemory={limits.memory_bytes} allows: the store is too slow for what is in flight"
            )
        return None

    def _remember(self, checkpoint: CheckpointId, over: _Over) -> None:
        self._inflight_bytes.pop(checkpoint, None)
        self._over[checkpoint] = over
        while len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]
