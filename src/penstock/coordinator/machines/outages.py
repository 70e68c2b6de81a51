"""Outages while a query runs: failing commits of sinks, failing checkpoints, and a missing checkpoint location.

Each failed operation is retried. The state machine reports when an outage begins, continues and ends, and when the
retries for a missing location are used up.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.coordinator.machines.restarts import Retries
from penstock.errors import LocationError
from penstock.model.ids import CheckpointId

GENERATIONS = "generations"
CHECKPOINTS = "checkpoints"
LOCATION = "the checkpoint location"


@dataclass(frozen=True)
class OutageFailed:
    """An operation has failed. ``is_logged``: the failure is already in the log."""

    name: str
    reason: str
    checkpoint: CheckpointId | None = None
    is_logged: bool = False


@dataclass(frozen=True)
class OutageOver:
    """The operation has succeeded."""

    name: str


@dataclass(frozen=True)
class LocationLost:
    """The checkpoint location is missing, and the retries are used up: the query ends with this error."""

    error: LocationError


OutageChange = OutageFailed | OutageOver | LocationLost


class OutageTracker:
    """State machine of one query.

    Args:
        retries: retry schedule for a location that was removed.
    """

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._must_check_location = False

    def generation_failed(self, reason: str) -> list[OutageChange]:
        """Handle a failed generation."""
        return [OutageFailed(GENERATIONS, reason, is_logged=True)]

    def checkpoint_failed(self, checkpoint: CheckpointId, reason: str) -> list[OutageChange]:
        """Handle a failed checkpoint. Nothing is committed until one completes."""
        self._must_check_location = True
        return [OutageFailed(CHECKPOINTS, f"checkpoint {checkpoint} failed: {reason}; the query goes on", checkpoint)]

    def checkpoint_completed(self, restarts: int) -> list[OutageChange]:
        """Handle a completed checkpoint. Its entry is in the log, so the location exists.

        ``restarts``: number of restarts since the last progress. A generation that always fails may complete a
        checkpoint before it fails.
        """
        generations: list[OutageChange] = [] if restarts else [OutageOver(GENERATIONS)]
        return [self._location_exists(), OutageOver(CHECKPOINTS), *generations]

    def commit_failed(self, operator_id: str, epoch: int, reason: str) -> list[OutageChange]:
        """Handle a failed commit of a sink."""
        return [OutageFailed(sink(operator_id), f"epoch {epoch}: {reason}")]

    def committed(self, operator_id: str) -> list[OutageChange]:
        """Handle a commit of a sink."""
        return [OutageOver(sink(operator_id))]

    def location_check_due(self, now_ms: float) -> bool:
        """Return True if a check of the location is due. The caller then performs it."""
        if not (self._must_check_location and self._retries.due(now_ms)):
            return False
        self._must_check_location = False
        return True

    def location_checked(self, missing: str, now_ms: float) -> list[OutageChange]:
        """Handle the result of a check. ``missing``: part that a removed location lacks; empty if it exists."""
        if not missing:
            return [self._location_exists()]
        self._must_check_location = True
        failed: list[OutageChange] = [OutageFailed(LOCATION, missing)]
        if gave_up := self._retries.failed(now_ms):
            text = (
                f"{missing} ({gave_up}). What was committed stays; give an empty checkpointLocation, and take care "
                "that nothing removes files there while a query runs"
            )
            failed.append(LocationLost(LocationError(text)))
        return failed

    def _location_exists(self) -> OutageOver:
        self._must_check_location = False
        self._retries.succeeded()
        return OutageOver(LOCATION)


def sink(operator_id: str) -> str:
    """Return the name of a sink's outage."""
    return f"sink {operator_id}"
