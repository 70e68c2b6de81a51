"""Data exchanged between a running subtask and its snapshots: captures and restores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.model.elements import Captured
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.manifest import CaptureMetrics, InflightEntry, InheritedMessage
from penstock.model.splits import Split
from penstock.operators.base import OperatorState, RestoredState


@dataclass(frozen=True)
class SubtaskCapture:
    """Complete part of one subtask in a checkpoint. All input barriers have arrived, and all output barriers were sent.

    Data is referenced, not copied, so the owner must call ``release``.

    Attributes:
        carried: recovered entries that were not read completely, narrowed to their unread rows. They precede
            ``inflight`` of a higher layer.
        recovered_rows_read: number of the subtask's recovered rows that it had already read.
    """

    subtask: SubtaskId
    checkpoint: CheckpointId
    operators: Mapping[str, OperatorState]
    splits: Sequence[Split]
    inflight: Sequence[Captured]
    carried: Sequence[InflightEntry]
    channel_watermarks: Mapping[ChannelId, int]
    pending_messages: Mapping[int, bytes]
    rows_in: int
    metrics: CaptureMetrics
    inherited_messages: Sequence[InheritedMessage] = ()
    recovered_rows_read: int = 0

    def release(self) -> None:
        """Release the tables after they were written or given up.

        Must be called once, on the thread that reads captures.
        """
        for state in self.operators.values():
            state.release()


@dataclass(frozen=True)
class SubtaskRestore:
    """State from which a subtask starts; empty for a first start.

    Attributes:
        inflight: entries in restore order.
    """

    operators: Mapping[str, RestoredState]
    splits: Sequence[Split]
    inflight: Sequence[InflightEntry]
    channel_watermarks: Mapping[ChannelId, int]
    pending_messages: Mapping[int, bytes]
    rows_in: int
    inherited_messages: Sequence[InheritedMessage] = ()
