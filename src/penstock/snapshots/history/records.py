"""Records of completed and failed checkpoints in the history. All lengths are bounded, because files may be forged."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model.manifest import MAX_LABEL, CaptureMetrics, Count, Ordinal

MAX_REASON = 1000
"""Maximum length of a reason in characters. The driver's log has the full text."""
MAX_SUBTASKS_BYTES = 16 << 20
"""Maximum decompressed size in bytes of the metrics of one checkpoint's subtasks. It is enough for 50,000 subtasks."""


class CheckpointRecord(msgspec.Struct, frozen=True):
    """Summary of one checkpoint for lists.

    Attributes:
        state: ``complete`` or ``failed``.
        alignment: requested alignment: ``auto``, ``aligned`` (strictly) or ``unaligned``.
        requested: True if a user has requested it.
        triggered_ms: wall clock time of the trigger, in milliseconds.
        duration_us: time from the trigger to the end. It is an integer, because envelopes hold no fractions.
        acknowledged: number of slots that have acknowledged it.
        reason: reason why it failed, or the limit that delayed it; otherwise empty.
        snapshot_id: id of the snapshot; empty unless the checkpoint is complete.
        unaligned_subtasks: number of subtasks that captured rows which the barrier overtook.
        inflight_rows: number of captured rows and of recovered rows that were not read yet.
        inflight_bytes: bytes of captured rows.
        state_bytes: bytes of state written.
        state_total_bytes: bytes of all sections that hold state.
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


class CheckpointDetails(CheckpointRecord, frozen=True):
    """Record of one checkpoint with the metrics of every subtask."""

    subtasks: tuple[CaptureMetrics, ...] = ()
