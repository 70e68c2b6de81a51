"""Parser of the checkpoint statistics of Flink's REST API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.flink.installation import FlinkError


@dataclass(frozen=True)
class Checkpoint:
    """A completed one.

    Attributes:
        triggered_ms: wall clock.
        duration_ms: from the trigger to the last acknowledgement.
        inflight_bytes: what was written of rows that it overtook.
        written_bytes: in all, state included.
        unaligned: whether it was when it ended; with an alignment time-out it begins aligned.
    """

    number: int
    triggered_ms: int
    duration_ms: float
    inflight_bytes: int
    written_bytes: int
    unaligned: bool


@dataclass(frozen=True)
class Waiting:
    """Parts of a checkpoint's duration, for the subtask with the longest.

    Aligned barriers wait in the queues. The start delay lasts from the trigger to the first barrier, the alignment from
    there to the last one.
    """

    start_delay_ms: float
    alignment_ms: float


def completed(answer: dict[str, Any], since_ms: int = 0) -> list[Checkpoint]:
    """Those of ``/jobs/<id>/checkpoints`` that were triggered then or later, oldest first. Savepoints are none."""
    found = (
        Checkpoint(
            number=entry["id"],
            triggered_ms=entry["trigger_timestamp"],
            duration_ms=float(entry["end_to_end_duration"]),
            inflight_bytes=entry["persisted_data"],
            written_bytes=entry["checkpointed_size"],
            unaligned=entry["checkpoint_type"] == "UNALIGNED_CHECKPOINT",
        )
        for entry in answer["history"]
        if entry["status"] == "COMPLETED" and not entry["is_savepoint"] and entry["trigger_timestamp"] >= since_ms
    )
    return sorted(found, key=lambda checkpoint: checkpoint.number)


def waiting(summaries: Iterable[dict[str, Any]]) -> Waiting:
    """Parse the vertex summaries of ``/jobs/<id>/checkpoints/details/<n>/subtasks/<vertex>``."""
    known = list(summaries)
    return Waiting(
        start_delay_ms=max(float(summary["start_delay"]["max"]) for summary in known),
        alignment_ms=max(float(summary["alignment"]["duration"]["max"]) for summary in known),
    )


def requested(answer: dict[str, Any]) -> int:
    """The number of the checkpoint that was asked for, of ``/jobs/<id>/checkpoints/<request>`` once it has ended.

    Raises:
        FlinkError: it failed.
    """
    operation = answer["operation"]
    if (cause := operation.get("failureCause")) is not None:
        raise FlinkError(f"Flink's checkpoint failed: {cause.get('stack-trace', cause)[:2000]}")
    return int(operation["checkpointId"])


def external_path(answer: dict[str, Any], number: int) -> str:
    """Return the path of a completed checkpoint from ``/jobs/<id>/checkpoints``, to restore another job from."""
    return next(str(entry["external_path"]) for entry in answer["history"] if entry["id"] == number)


def savepoint(answer: dict[str, Any]) -> str:
    """Return the path of a requested savepoint, from ``/jobs/<id>/savepoints/<request>`` once it has ended.

    Raises:
        FlinkError: it failed.
    """
    operation = answer["operation"]
    if (cause := operation.get("failure-cause")) is not None:
        raise FlinkError(f"Flink's savepoint failed: {cause.get('stack-trace', cause)[:2000]}")
    return str(operation["location"])
