"""One checkpoint that has ended, as the history keeps it. What is read may be somebody else's work: all is bounded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model.manifest import MAX_LABEL, CaptureMetrics, Count, Ordinal

MAX_REASON = 1000
"""Characters; the rest is in the driver's log."""
MAX_SUBTASKS_BYTES = 16 << 20
"""Of the figures of one checkpoint's subtasks, unpacked: 50,000 of them have less than that."""


class CheckpointRecord(msgspec.Struct, frozen=True):
    """What a list shows of it.

    Attributes:
        state: ``complete`` or ``failed``.
        alignment: as it was asked for: ``auto``, ``aligned`` (strictly) or ``unaligned``.
        requested: by a user.
        triggered_ms: wall clock. ``duration_us``: from then to its end; envelopes hold no fractions.
        acknowledged: slots that did.
        reason: why it was given up, or which limit it waited for; else empty.
        snapshot_id: empty unless it is complete.
        unaligned_subtasks: how many captured what the barrier overtook.
        inflight_rows: captured, and recovered ones that were not read. inflight_bytes: captured.
        ``state_bytes``: written; ``state_total_bytes``: all that hold state.
    """

    checkpoint: Ordinal
    generation: Ordinal
    state: Annotated[str, msgspec.Meta(pattern="^(complete|failed)$")]
    alignment: Annotated[str, msgspec.Meta(pattern="^(auto|aligned|unaligned)$")]
    requested: bool
    label: Annotated[str, msgspec.Meta(max_length=MAX_LABEL)]
    triggered_ms: Count
    duration_us: Count
    acknowledged: Count
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)]
    snapshot_id: Annotated[str, msgspec.Meta(max_length=40)]
    unaligned_subtasks: Count
    inflight_rows: Count
    inflight_bytes: Count
    state_bytes: Count
    state_total_bytes: Count

    @property
    def duration_ms(self) -> float:
        return self.duration_us / 1000


class RecordedCheckpoint(CheckpointRecord, frozen=True):
    """With the figures of every subtask."""

    subtasks: tuple[CaptureMetrics, ...] = ()
