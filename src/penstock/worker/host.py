"""Interface between a subtask and its slot: events in its inbox, calls of its host.

The slot process implements ``SubtaskHost`` with threads and sockets, the simulator with a seeded scheduler. One owner
thread calls ``step(now_ms)`` of a subtask; every other thread only appends to its inbox.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from penstock.model.elements import Captured, Element
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.manifest import InflightEntry
from penstock.model.messages import (
    AbortCheckpoint,
    NotifyCheckpointComplete,
    PollCompleted,
    ReaderStatus,
    RequestSplit,
    ToReader,
    TriggerCheckpoint,
)
from penstock.model.splits import Split
from penstock.operators.base import OperatorState
from penstock.snapshots.writing.handover import SubtaskCapture as SubtaskCapture
from penstock.snapshots.writing.handover import SubtaskRestore as SubtaskRestore


@dataclass(frozen=True, slots=True)
class Arrived:
    """An element arrived on an input channel, in the channel's FIFO order.

    ``received_s`` is set for barriers if known: the time of receipt on the subtask's clock. The event may wait for a
    long step after that.
    """

    channel: ChannelId
    element: Element
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The consumer of an output channel granted ``credit`` more bytes."""

    channel: ChannelId
    credit: int


@dataclass(frozen=True, slots=True)
class Triggered:
    """A trigger reached a source subtask. ``received_s`` is as in ``Arrived``."""

    message: TriggerCheckpoint
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecoveredLoaded:
    """The batches of one in-flight entry, in order, requested with ``SubtaskHost.load``; see ``ConsumerRows``."""

    entry: InflightEntry
    batches: Sequence[object]
    reached: Sequence[Sequence[int]] = ()


Event = TypeVar("Event")


def _nobody_waits() -> None:
    """Do nothing: the default of ``Inbox.wake``."""


class Inbox(Generic[Event]):
    """A thread-safe, append-only queue of events (``deque.append`` and ``popleft`` are atomic).

    Attributes:
        wake: called after every append, on the appending thread. It must be quick and must not raise. The host sets it
            once, before other threads use the inbox.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self.wake: Callable[[], None] = _nobody_waits

    def append(self, event: Event) -> None:
        """Add an event after all others and wake the owner."""
        self._events.append(event)
        self.wake()

    def pop(self) -> Event | None:
        """Remove and return the oldest event, or return None. Only the owner may call it."""
        return self._events.popleft() if self._events else None

    def __len__(self) -> int:
        return len(self._events)


InboxEvent = Arrived | Granted | Triggered | NotifyCheckpointComplete | AbortCheckpoint | ToReader | RecoveredLoaded


@dataclass(frozen=True)
class EpochEnd:
    """The part of a capture that is taken at the end of the epoch. The rest is taken at the last barrier."""

    operators: dict[str, OperatorState]
    splits: Sequence[Split]
    carried: Sequence[InflightEntry]
    channel_watermarks: dict[ChannelId, int]
    rows_in: int
    sync_ms: float
    recovered_rows_read: int


class SubtaskHost(Protocol):
    """Services of the slot for its subtasks. No call blocks, fails or calls back into the subtask."""

    def send(self, channel: ChannelId, element: Element) -> None:
        """Deliver an element to the consumer, as ``Arrived``, FIFO per channel. A buffer must have credit."""

    def grant(self, channel: ChannelId, credit: int) -> None:
        """Deliver credit to the producer, as ``Granted``."""

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        """Reserve bytes for in-flight data of a checkpoint. Return False if the slot's limit does not allow it.

        Called only with ``checkpoint.maxInflightBytes``.
        """

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        """Begin to write in-flight data of a checkpoint that is still being recorded.

        The data is not passed again. The method may be called any number of times before ``captured``. The restore
        order over all parts follows the rule of ``Captured``.
        """

    def captured(self, capture: SubtaskCapture) -> None:
        """Write the capture durably with the slot's others, then acknowledge the checkpoint."""

    def dropped(self, states: Sequence[OperatorState]) -> None:
        """Release state that was captured for an aborted checkpoint, on the thread that reads captures."""

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        """Decline the checkpoint on behalf of this subtask."""

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        """Send a message of a source's reader to the job coordinator."""

    def finished(self, subtask: SubtaskId) -> None:
        """Report, once, that all input of this subtask has ended and its outputs have been ended.

        It still forwards barriers.
        """

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        """Read an in-flight entry and answer with ``RecoveredLoaded``."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of a step.

    Attributes:
        worked: True if ``step`` must be called again at once. Otherwise wait for the inbox.
        wake_at_ms: end of that wait at the latest, in milliseconds of wall-clock time; None: no limit.
    """

    worked: bool
    wake_at_ms: float | None = None
