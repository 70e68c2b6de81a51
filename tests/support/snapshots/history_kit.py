"""Checkpoints that have ended, made up."""

from __future__ import annotations

import msgspec

from penstock.model.manifest import CaptureMetrics
from penstock.snapshots.history.records import CheckpointRecord
from penstock.snapshots.history.segments import StoredCheckpoint, stored_checkpoint


def record(checkpoint: int, generation: int = 1, reason: str = "", label: str = "") -> CheckpointRecord:
    return CheckpointRecord(
        checkpoint=checkpoint,
        generation=generation,
        state="failed" if reason else "complete",
        alignment="auto",
        requested=bool(label),
        label=label,
        triggered_ms=1_700_000_000_000 + checkpoint % 1000,
        duration_us=12_500,
        acknowledged=2,
        reason=reason,
        snapshot_id="" if reason else f"chk-{checkpoint}",
        unaligned_subtasks=0,
        inflight_rows=checkpoint,
        inflight_bytes=checkpoint // 2,
        state_bytes=3,
        state_total_bytes=4,
    )


def captures(checkpoint: int) -> list[CaptureMetrics]:
    figures = {"sync_ms": checkpoint / 8, "state_rows": {"a": 1}, "inflight_processed_bytes": checkpoint}
    return [msgspec.convert({"vertex": 0, "index": index, **figures}, CaptureMetrics) for index in range(2)]


def entry(checkpoint: int, generation: int = 1) -> StoredCheckpoint:
    return stored_checkpoint(record(checkpoint, generation), captures(checkpoint))
