"""What passes between a running subtask and its snapshot: a capture on the way out, a restore on the way in."""

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
    """One subtask's part of a checkpoint, complete: all input barriers arrived and all output barriers left.

    Everything is referenced, nothing copied; whoever has it has to ``release`` it. ``carried`` are recovered entries
    not yet (wholly) read, re-referenced with their row ranges narrowed; they come before ``inflight`` of a higher
    layer. ``recovered_rows_read``: number of the subtask's own recovered rows that were read before.
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
        """Its tables are written, or never will be: once, on the thread that reads captures."""
        for state in self.operators.values():
            state.release()


@dataclass(frozen=True)
class SubtaskRestore:
    """What a subtask starts from; all empty for a first start. ``inflight`` is in restore order."""

    operators: Mapping[str, RestoredState]
    splits: Sequence[Split]
    inflight: Sequence[InflightEntry]
    channel_watermarks: Mapping[ChannelId, int]
    pending_messages: Mapping[int, bytes]
    rows_in: int
    inherited_messages: Sequence[InheritedMessage] = ()
