"""Outage reporter on the driver: writes the outage tracker's decisions to the status, the metrics and the log.

The log gets one line per outage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from penstock.coordinator.commands import JobEvent, LocationChecked
from penstock.coordinator.machines.checkpoint_events import CommitFailed, EpochCommitted
from penstock.coordinator.machines.outages import LocationLost, OutageChange, OutageFailed, OutageOver, OutageTracker
from penstock.coordinator.machines.restarts import Retries
from penstock.coordinator.metrics import QueryMetrics
from penstock.logs import get_logger

log = get_logger(__name__)


class OutageReporter:
    """Reports outages. Owned by the coordinator thread.

    Args:
        metrics: store the current outages.
        retries: retry schedule for a location that was removed.
    """

    def __init__(self, metrics: QueryMetrics, retries: Retries) -> None:
        self._metrics = metrics
        self._tracker = OutageTracker(retries)

    def executed(self, event: JobEvent | None, now_ms: float) -> None:
        """Record the event of an executed command.

        Raises:
            LocationError: the checkpoint location was removed, and the retries are used up.
        """
        match event:
            case LocationChecked(missing):
                self._report(self._tracker.location_checked(missing, now_ms))
            case CommitFailed(epoch, operator_id, reason):
                self._metrics.commit_failed()
                self._report(self._tracker.commit_failed(operator_id, epoch, reason))
            case EpochCommitted(_, operator_id):
                self._report(self._tracker.committed(operator_id))

    def generation_failed(self, reason: str) -> None:
        """Record a failed generation."""
        self._report(self._tracker.generation_failed(reason))

    def checkpoint_failed(self, checkpoint: int, reason: str) -> None:
        """Record a failed checkpoint."""
        self._report(self._tracker.checkpoint_failed(checkpoint, reason))

    def checkpoint_completed(self, restarts: int) -> None:
        """Record a completed checkpoint. ``restarts``: number of restarts since the last progress."""
        self._report(self._tracker.checkpoint_completed(restarts))

    def location_check_due(self, now_ms: float) -> bool:
        """Return True if a check of the location is due. The caller then performs it."""
        return self._tracker.location_check_due(now_ms)

    def _report(self, changes: Iterable[OutageChange]) -> None:
        for change in changes:
            match change:
                case OutageFailed(name, reason, checkpoint, is_logged):
                    outage = self._metrics.outage(name, reason)
                    if outage.failures == 1 and not is_logged:
                        extra = {} if checkpoint is None else {"checkpoint": checkpoint}
                        log.warning("%s", outage.summary, extra=extra)
                case OutageOver(name):
                    self._metrics.outage_over(name)
                case LocationLost(error):
                    raise error
                case _:
                    assert_never(change)
