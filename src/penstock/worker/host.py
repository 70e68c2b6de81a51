"""Interface between a subtask and its slot: events in its inbox, calls of its host.

The slot process implements ``SubtaskHost`` with threads and sockets, the simulator with a seeded scheduler. A subtask
is driven by ``step(now_ms)`` on one owner thread; every other thread only appends to its inbox.
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
    """An element reached this subtask on an input channel (in the channel's FIFO order).

    ``received_s``: when a barrier was received, on the subtask's clock, where known: it may wait for a long step.
    """

    channel: ChannelId
    element: Element
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The consumer of an output channel grants ``credit`` more bytes."""

    channel: ChannelId
    credit: int


@dataclass(frozen=True, slots=True)
class Triggered:
    """A trigger reached a source subtask. ``received_s``: as in ``Arrived``."""

    message: TriggerCheckpoint
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecoveredLoaded:
    """The batches of one in-flight entry, asked for with ``SubtaskHost.load``, in order; see ``ConsumerRows``."""

    entry: InflightEntry
    batches: Sequence[object]
    reached: Sequence[Sequence[int]] = ()


Event = TypeVar("Event")


def _nobody_waits() -> None:
    """Do nothing: the default of ``Inbox.wake``."""


class Inbox(Generic[Event]):
    """A thread-safe, append-only queue of events (``deque.append`` and ``popleft`` are atomic).

    Attributes:
        wake: called after every append, on the appending thread; must be quick and must not raise. The host sets it
            once, before other threads know the inbox.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self.wake: Callable[[], None] = _nobody_waits

    def append(self, event: Event) -> None:
        """Add an event behind all others and wake the owner."""
        self._events.append(event)
        self.wake()

    def pop(self) -> Event | None:
        """The oldest event, removed, or None. Owner only."""
        return self._events.popleft() if self._events else None

    def __len__(self) -> int:
        return len(self._events)


InboxEvent = Arrived | Granted | Triggered | NotifyCheckpointComplete | AbortCheckpoint | ToReader | RecoveredLoaded


@dataclass(frozen=True)
class EpochEnd:
    """Part of a capture that is taken at the end of the epoch. The rest is taken at the last barrier."""

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
        """Carry an element that has credit (or needs none) to the consumer: ``Arrived`` there, FIFO per channel."""

    def grant(self, channel: ChannelId, credit: int) -> None:
        """Carry credit to the producer: ``Granted`` there."""

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        """Take so many bytes for in-flight data of a checkpoint, if that much is left of what the slot may have. Asked
        only with ``checkpoint.maxInflightBytes``."""

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        """Begin to write in-flight data of a checkpoint that is still being recorded; never handed over again. Any
        number of times before ``captured``; restore order is by the rule of ``Captured``, over all parts."""

    def captured(self, capture: SubtaskCapture) -> None:
        """Write the capture durably with the slot's others and acknowledge it."""

    def dropped(self, states: Sequence[OperatorState]) -> None:
        """State that was captured for a checkpoint that has died: release it where captures are read."""

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        """This subtask cannot take the checkpoint."""

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        """Send a message of a source's reader to the job coordinator."""

    def finished(self, subtask: SubtaskId) -> None:
        """All input of this subtask has ended and its own end has gone out; it goes on passing barriers. Said once."""

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        """Read an in-flight entry: ``RecoveredLoaded`` follows."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """``worked``: call again at once. Otherwise wait for the inbox, at most until ``wake_at_ms`` (None: for ever)."""

    worked: bool
    wake_at_ms: float | None = None
