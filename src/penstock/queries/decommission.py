"""Moves a query away from an executor that Spark decommissions: takes a snapshot, then starts the next generation.

Otherwise the executor's end would be an ordinary failure, and everything read since the last checkpoint would be read
again.
"""

from __future__ import annotations

from typing import Protocol

from penstock.coordinator.query_execution import QueryExecution
from penstock.errors import CheckpointFailed, QueryFailed
from penstock.logs import daemon_thread, get_logger

log = get_logger(__name__)

POLL_INTERVAL_S = 1.0
SNAPSHOT_TIMEOUT_S = 30.0
"""Limit for the snapshot, because executors are killed soon after the decommission begins. After this time the query
continues from its last periodic checkpoint."""


class Executors(Protocol):
    """Interface of a launcher that the query uses to watch executors."""

    def leaving_executors(self) -> set[str]: ...

    def give_up_job(self, why: str) -> None: ...


def move_when_executors_leave(execution: QueryExecution, executors: Executors) -> None:
    """Watch the executors on a separate thread until the query has ended."""
    daemon_thread(lambda: _watch(execution, executors), "penstock-moving").start()


def _watch(execution: QueryExecution, executors: Executors) -> None:
    moved_from: set[str] = set()
    while not execution.await_termination(POLL_INTERVAL_S):
        try:
            leaving = executors.leaving_executors() - moved_from
        except Exception as problem:  # noqa: BLE001 - Py4J's errors of a session that stops; the query's own end follows
            log.info("Spark does not tell which executors leave: %s", problem)
            continue
        if leaving and not execution.suspended:
            moved_from |= leaving
            _move(execution, executors, ", ".join(sorted(leaving)))


def _move(execution: QueryExecution, executors: Executors, leaving: str) -> None:
    try:
        execution.request_snapshot(timeout_s=SNAPSHOT_TIMEOUT_S, kept=False)
    except (CheckpointFailed, QueryFailed) as problem:
        log.warning("executor %s leaves, and no snapshot was taken before: %s", leaving, problem)
    executors.give_up_job(f"Spark decommissions executor {leaving}; the query moves on from a snapshot")
