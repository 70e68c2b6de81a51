"""The seam between a subtask and the world: what is put into its inbox, and what it asks of its host.

The slot process implements ``SubtaskHost`` with threads and sockets, the simulator with a seeded scheduler. A subtask
is driven by ``step(now_ms)`` on one owner thread; every other thread only appends to its inbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.model.elements import Alignment, Captured, Element
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.manifest import InflightEntry
from penstock.model.splits import Requested, Split
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
    """To source vertices only: begin checkpoint now.

    ``alignment`` is ALIGNED or UNALIGNED; ``remaining_ms``: how long it may stay aligned (None: for ever).
    ``elapsed_ms``: spent since the trigger, where known. ``received_s``: as in ``Arrived``.
    """

    checkpoint: CheckpointId
    alignment: Alignment
    elapsed_ms: float = 0.0
    remaining_ms: int | None = None
    received_s: float | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """The checkpoint is complete and logged: its epoch, and all older, need not be reported any more once committed."""

    checkpoint: CheckpointId
    committed_epoch: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """The checkpoint is dead: drop its barriers, unblock its channels, forget its captures."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class SplitsAssigned:
    """To a source subtask, in answer to its split request."""

    splits: Sequence[Split]


@dataclass(frozen=True, slots=True)
class WatermarkMayRise:
    """To a source subtask: event time may rise to this watermark after its frontier, which is the input that is there
    now. Either every reader of its source is idle and it is the largest watermark, or other readers have reached it.
    ``END_OF_TIME_US``: everything is read, so event time ends at once, also in operators that generate watermarks."""

    watermark_us: int | None


@dataclass(frozen=True, slots=True)
class SourceFrozen:
    """To a source subtask: what is there now is all that endless splits give in this run; whatever it asked for is void
    and has to be asked anew."""


@dataclass(frozen=True, slots=True)
class SourcePaused:
    """To a source subtask: read nothing, or (``paused`` is False) go on."""

    paused: bool


@dataclass(frozen=True, slots=True)
class LookedFor:
    """To a source subtask: say ``SubtaskHost.looked`` once the reader is idle and has looked at the outside anew."""

    number: int


@dataclass(frozen=True, slots=True)
class SourceEnded:
    """To a source subtask: it has been given its last split. It ends when it has read what it holds."""


@dataclass(frozen=True, slots=True)
class RecoveredLoaded:
    """The batches of one in-flight entry, asked for with ``SubtaskHost.load``, in order; see ``OwnRows``."""

    entry: InflightEntry
    batches: Sequence[object]
    reached: Sequence[Sequence[int]] = ()


InboxEvent = (
    Arrived
    | Granted
    | Triggered
    | Completed
    | Aborted
    | SplitsAssigned
    | SourceFrozen
    | SourcePaused
    | WatermarkMayRise
    | LookedFor
    | SourceEnded
    | RecoveredLoaded
)


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
    """What a subtask asks of its host. No call blocks, fails or calls back into the subtask."""

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

    def request_split(self, vertex: int, request: Requested) -> None:
        """Ask for one more split of the source of this vertex."""

    def looked(self, subtask: SubtaskId, number: int) -> None:
        """In answer to ``LookedFor``: idle after a look that began behind it."""

    def finished(self, subtask: SubtaskId) -> None:
        """All input of this subtask has ended and its own end has gone out; it goes on passing barriers. Said once."""

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        """Read an in-flight entry: ``RecoveredLoaded`` follows."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """``worked``: call again at once. Otherwise wait for the inbox, at most until ``wake_at_ms`` (None: for ever)."""

    worked: bool
    wake_at_ms: float | None = None


@dataclass(frozen=True)
class SubtaskStatus:
    """Read by any thread, replaced as a whole by the owner: shares of time in [0, 1] since start, queues in bytes."""

    rows_in: int
    rows_out: int
    busy_ms: float
    backpressured_ms: float
    idle_ms: float
    input_queued_bytes: int
    output_queued_bytes: int
    recovered_rows_left: int
    watermark_us: int | None
    counters: Mapping[str, int]
