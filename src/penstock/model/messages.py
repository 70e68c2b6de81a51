"""Messages between the job coordinator and subtasks. Each is declared once.

To subtasks: a machine of the coordinator returns it, the control link carries it, a subtask finds it in its inbox.
From slots: a subtask or its slot says it, the control link carries it, a machine takes it with its Generation
(``FromSlot``).
They are encoded as MessagePack (``network.control_link``), FIFO per slot and direction.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SlotManifest
from penstock.model.splits import Split


class TriggerCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To every slot, which passes it to its sources: begin this checkpoint now.

    Attributes:
        alignment: ALIGNED or UNALIGNED.
        remaining_ms: how long it may stay aligned; None: for ever.
        base: the newest complete checkpoint of this Generation that every slot was notified of on the same link, or
            else the restored one. Its sections may be referred to instead of written again; it stays pinned until this
            checkpoint ends. 0: none, so each slot writes everything, as after a checkpoint that found files of its base
            damaged.
    """

    checkpoint: CheckpointId
    alignment: Alignment
    remaining_ms: int | None = None
    base: CheckpointId = 0

    @property
    def requested_alignment(self) -> Alignment:
        """AUTO if it starts aligned and has a limited time for that."""
        return self.alignment if self.remaining_ms is None else Alignment.AUTO


class NotifyCheckpointComplete(msgspec.Struct, frozen=True, tag=True):
    """To every subtask: the checkpoint is complete and in the log.

    Epochs up to ``committed_epoch`` are committed, so subtasks no longer have to capture their messages.
    """

    checkpoint: CheckpointId
    committed_epoch: int


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To every subtask: drop the checkpoint's barriers, unblock its channels, forget its captures."""

    checkpoint: CheckpointId


class AssignSplits(msgspec.Struct, frozen=True, tag=True):
    """To one reader, in answer to its ``RequestSplit``."""

    vertex: int
    index: int
    splits: tuple[Split, ...]


class SourceIdle(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: all of them are idle, and no split is left.

    Event time may advance to ``watermark_us``, the largest watermark of these readers (None: there was no row yet).

    ``END_OF_TIME_US``: all input is read, so event time ends at once, also in operators that generate watermarks.
    """

    vertex: int
    watermark_us: int | None


class AdvanceWatermark(msgspec.Struct, frozen=True, tag=True):
    """To one reader: event time may advance to ``watermark_us`` after the reader's frontier.

    Other readers have reached this watermark. The frontier is the end of the input that is available now.
    """

    vertex: int
    index: int
    watermark_us: int


class FreezeReaders(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: endless splits end with the input that is available now.

    Requests and statuses from before this message are void and must be repeated.
    """

    vertex: int


class PauseReaders(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: read nothing, or (``paused`` is False) continue."""

    vertex: int
    paused: bool


class PollAgain(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: ask the external system once more for input, and read it.

    ``PollCompleted`` with this number follows. Numbers rise.
    """

    vertex: int
    number: int


class NoMoreSplits(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source, once per generation: no more splits will be assigned.

    A reader ends when it has read its splits. This message follows ``SourceIdle``.
    """

    vertex: int


ToReader = AssignSplits | SourceIdle | AdvanceWatermark | FreezeReaders | PauseReaders | PollAgain | NoMoreSplits
"""To the source subtasks of a vertex."""
ToSubtask = TriggerCheckpoint | NotifyCheckpointComplete | AbortCheckpoint | ToReader


class SlotRunning(msgspec.Struct, frozen=True, tag=True):
    """All subtasks of a slot run: state is restored.

    Attributes:
        inflight_rows: rows of in-flight data that are left to be replayed.
        kept_tables: state tables that were taken from memory instead of storage.
    """

    slot: int
    inflight_rows: int = 0
    kept_tables: int = 0


class AcknowledgeCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Everything that a slot captured for a checkpoint is durable.

    Attributes:
        limit_wait_ms: from the first capture that ``checkpoint.maxInflightBytes`` did not allow to the last one.
        recovered_rows_read: number of its subtasks' own recovered rows that were read before their captures.
    """

    checkpoint: CheckpointId
    manifest: SlotManifest
    limit_wait_ms: float = 0.0
    recovered_rows_read: int = 0


class DeclineCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """A slot cannot take part in a checkpoint."""

    slot: int
    checkpoint: CheckpointId
    reason: str


class RequestSplit(msgspec.Struct, frozen=True, tag=True):
    """Reader ``index`` requests one more split. The request stays open until ``AssignSplits`` or ``FreezeReaders``.

    Attributes:
        frozen: the request was made after ``FreezeReaders``.
    """

    vertex: int
    index: int
    frozen: bool = False


class ReaderStatus(msgspec.Struct, frozen=True, tag=True):
    """Status of reader ``index``, sent before each ``RequestSplit`` and when the reader becomes idle or busy.

    Attributes:
        unread: number of splits that are unread or whose rows are still held by functions; 0: the reader is idle.
        received: number of splits that the reader has received in this Generation. Splits that were assigned beyond
            them are on their way to it.
        seen_us: the largest watermark that the reader has seen.
        watermark_us: the watermark that the reader has sent.
        frozen: the status is from after ``FreezeReaders``.
    """

    vertex: int
    index: int
    unread: int
    received: int
    seen_us: int | None = None
    watermark_us: int | None = None
    frozen: bool = False


class ReaderProgressed(msgspec.Struct, frozen=True, tag=True):
    """Reader ``index`` has sent this watermark (None: none yet). May be stale, never ahead.

    It is part of the metrics that a slot reports periodically.
    """

    vertex: int
    index: int
    watermark_us: int | None


class PollCompleted(msgspec.Struct, frozen=True, tag=True):
    """A reader has processed all input that existed in the external system when it received ``PollAgain``."""

    vertex: int
    index: int
    number: int


class SubtaskFinished(msgspec.Struct, frozen=True, tag=True):
    """All input of a subtask has ended, and its own end has gone out. It keeps forwarding barriers."""

    vertex: int
    index: int


FromReader = RequestSplit | ReaderStatus | ReaderProgressed
"""To the split assigner of a vertex."""
MessageOfSlot = SlotRunning | AcknowledgeCheckpoint | DeclineCheckpoint | FromReader | SubtaskFinished


@dataclass(frozen=True)
class FromSlot:
    """A message as the coordinator takes it, with the Generation whose link it came by."""

    generation: GenerationId
    message: MessageOfSlot
