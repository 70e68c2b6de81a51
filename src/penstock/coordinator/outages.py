"""Outages while a query runs: failing commits of sinks, checkpoints, and the checkpoint location itself.

Each failed operation is retried. Status, metrics and one line of the log report current failures.
"""

from __future__ import annotations

from penstock.coordinator.commands import CheckLocation, Command, JobEvent, LocationChecked
from penstock.coordinator.machines.checkpoint_events import CommitFailed, EpochCommitted
from penstock.coordinator.machines.restarts import Retries
from penstock.coordinator.metrics import QueryMetrics
from penstock.errors import LocationError
from penstock.logs import get_logger

log = get_logger(__name__)

GENERATIONS = "generations"
CHECKPOINTS = "checkpoints"
LOCATION = "the checkpoint location"


class Outages:
    """Owned by the coordinator thread.

    Args:
        metrics: store the current outages.
        retries: retry schedule for a location that was removed.
    """

    def __init__(self, metrics: QueryMetrics, retries: Retries) -> None:
        self._metrics = metrics
        self._retries = retries
        self._location_in_doubt = False

    def executed(self, work: Command, answer: JobEvent | None, now_ms: float) -> None:
        """Record the result of a work item.

        Raises:
            LocationError: the checkpoint location was removed, and the retries are used up.
        """
        if isinstance(work, CheckLocation) and isinstance(answer, LocationChecked):
            self._looked(answer.gone, now_ms)
        elif isinstance(answer, CommitFailed):
            self._metrics.commit_failed()
            self._begun(sink(answer.operator_id), f"epoch {answer.epoch}: {answer.reason}")
        elif isinstance(answer, EpochCommitted):
            self._metrics.outage_over(sink(answer.operator_id))

    def generation_failed(self, reason: str) -> None:
        """Record a failed Generation. It is in the log already."""
        self._metrics.outage(GENERATIONS, reason)

    def checkpoint_failed(self, checkpoint: int, reason: str) -> None:
        """Record a failed checkpoint: nothing is committed until one completes."""
        self._begun(CHECKPOINTS, f"checkpoint {checkpoint} failed: {reason}; the query goes on", checkpoint)
        self._location_in_doubt = True

    def checkpoint_completed(self, restarts: int) -> None:
        """Record a completed checkpoint. Its entry is in the log, so the location exists.

        ``restarts``: since the last progress. A Generation that always fails may complete a checkpoint before.
        """
        self._location_found()
        self._metrics.outage_over(CHECKPOINTS)
        if not restarts:
            self._metrics.outage_over(GENERATIONS)

    def location_due(self, now_ms: float) -> bool:
        """Return True if a check of the location is due; the caller then makes it."""
        if not (self._location_in_doubt and self._retries.due(now_ms)):
            return False
        self._location_in_doubt = False
        return True

    def _looked(self, gone: str, now_ms: float) -> None:
        if not gone:
            self._location_found()
            return
        self._begun(LOCATION, gone)
        self._location_in_doubt = True
        if gave_up := self._retries.failed(now_ms):
            raise LocationError(
                f"{gone} ({gave_up}). What was committed stays; give an empty checkpointLocation, and take care that "
                "nothing removes files there while a query runs"
            )

    def _location_found(self) -> None:
        self._location_in_doubt = False
        self._retries.succeeded()
        self._metrics.outage_over(LOCATION)

    def _begun(self, what: str, reason: str, checkpoint: int | None = None) -> None:
        outage = self._metrics.outage(what, reason)
        if outage.failures == 1:
            log.warning("%s", outage.summary, extra={} if checkpoint is None else {"checkpoint": checkpoint})


def sink(operator_id: str) -> str:
    """Return the name of a sink's outage."""
    return f"sink {operator_id}"
