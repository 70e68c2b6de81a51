"""Messages from the job coordinator to subtasks. Each is declared once: a machine returns it, the control link carries
it, and a subtask finds it in its inbox.

They are encoded as MessagePack (``network.control_link``), FIFO per slot.
"""

from __future__ import annotations

import msgspec

from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId
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
    """To every subtask: the checkpoint is complete and logged, and epochs up to ``committed_epoch`` are committed, so
    their messages need not be captured any more."""

    checkpoint: CheckpointId
    committed_epoch: int


class AbortCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """To every subtask: drop the checkpoint's barriers, unblock its channels, forget its captures."""

    checkpoint: CheckpointId


class AssignSplits(msgspec.Struct, frozen=True, tag=True):
    """To one reader, in answer to its split request."""

    vertex: int
    index: int
    splits: tuple[Split, ...]


class SourceIdle(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: all of them are idle and nothing is left. Event time may rise to ``watermark_us``,
    the largest that one of them has seen (None: no row was ever seen).

    ``END_OF_TIME_US``: everything is read, so event time ends at once, also in operators that generate watermarks.
    """

    vertex: int
    watermark_us: int | None


class AdvanceWatermark(msgspec.Struct, frozen=True, tag=True):
    """To one reader: event time may rise to ``watermark_us``, which other readers have reached, after its frontier.
    That is the input that is there now."""

    vertex: int
    index: int
    watermark_us: int


class FreezeReaders(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: endless splits end with the input that is there now. A split request that was made
    before this message is void and must be repeated."""

    vertex: int


class PauseReaders(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: read nothing, or (``paused`` is False) continue."""

    vertex: int
    paused: bool


class LookAgain(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source: look at the outside once more; ``Looked`` with this number follows. Numbers rise."""

    vertex: int
    number: int


class NoMoreSplits(msgspec.Struct, frozen=True, tag=True):
    """To every reader of a source, once per Generation: no split will be assigned any more. A reader ends when it has
    read what it holds. It follows ``SourceIdle``."""

    vertex: int


ToReader = AssignSplits | SourceIdle | AdvanceWatermark | FreezeReaders | PauseReaders | LookAgain | NoMoreSplits
"""To the source subtasks of a vertex."""
ToSubtask = TriggerCheckpoint | NotifyCheckpointComplete | AbortCheckpoint | ToReader
