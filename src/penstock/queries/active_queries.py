"""Registry of the queries of this process that run or start. Names, checkpoint locations and query ids are unique.

As in Spark, a name is unique within a session, and a query id has one run across all sessions. A copy of a checkpoint
location has the same query id. Runs in other processes are not registered here; at the same location the snapshot log
fences the older run.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ConfigError, LocationError
from penstock.logs import get_logger
from penstock.snapshots.store.stores import canonical_location

if TYPE_CHECKING:
    from penstock.queries.facts import QueryFacts
    from penstock.queries.streaming_query import StreamingQuery

log = get_logger(__name__)

ENDED_REMEMBERED = 20
"""Number of ended queries whose last state is kept."""
STOP_ACTIVE_RUN_CONF = "spark.sql.streaming.stopActiveRunOnRestart"
"""Spark's own setting, true by default: a start at a location that is in use stops the older run."""


@dataclass(eq=False)
class Reservation:
    """Reservation of a name and a location, from the start of a query to its end.

    Attributes:
        query_id: the id that was stored at the location when the start began; empty if the location was new.
        query: None while the query is created.
    """

    session: str
    name: str | None
    location: str
    query_id: str = ""
    query: StreamingQuery | None = None

    def is_run_of(self, other: Reservation) -> bool:
        """Return True if both belong to one query: they have the same location or the same query id."""
        known_id = self.query_id or (self.query.id if self.query is not None else "")
        return self.location == other.location or (known_id != "" and known_id == other.query_id)


class ActiveQueries:
    """Registry of active queries. Thread-safe; one instance per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reservations: list[Reservation] = []
        self._ended: dict[str, QueryFacts] = {}

    def reserve(
        self, session: str, name: str | None, location: str, *, query_id: str = "", stop_older: bool
    ) -> Reservation:
        """Reserve name, location and query for a start. Block while older runs of this query stop.

        Args:
            query_id: the id that is stored at the location; empty if none is stored.
            stop_older: stop older runs of this query instead of raising LocationError.

        Raises:
            ConfigError: another active query of the session has the name.
            LocationError: the query is active and ``stop_older`` is False, or another start of it was faster.
        """
        reservation = Reservation(session, name, canonical_location(location), query_id)
        with self._lock:
            older = self._runs_of(reservation)
            self._refuse_name(reservation, older)
            if not older:
                self._reservations.append(reservation)
                return reservation
        for run in older:
            self._stop(run, stop_older)
        with self._lock:
            if self._runs_of(reservation):
                raise LocationError(
                    f"another run of the query at {location} is being started, or the older one does not stop; "
                    "try again, or choose another checkpointLocation"
                )
            self._refuse_name(reservation, [])
            self._reservations.append(reservation)
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Release name and location, and remember the last state of the query if it has ended. Idempotent."""
        facts = None if reservation.query is None else reservation.query.facts()
        with self._lock:
            if reservation in self._reservations and facts is not None and facts.id and not facts.active:
                self._ended.pop(facts.id, None)
                self._ended[facts.id] = facts
                for oldest in list(self._ended)[:-ENDED_REMEMBERED]:
                    del self._ended[oldest]
            self._reservations = [known for known in self._reservations if known is not reservation]

    def known(self) -> list[QueryFacts]:
        """Return the queries of all sessions: running ones in the order of their start, then the last that ended.

        An ended query is left out if a query with its id runs again.
        """
        running = [query.facts() for query in self._running()]
        ids = {facts.id for facts in running}
        with self._lock:
            return running + [facts for facts in self._ended.values() if facts.id not in ids]

    def running(self, query_id: str) -> StreamingQuery | None:
        """Return the running query with this id, in any session; None if it does not run."""
        return next((query for query in self._running() if query.id == query_id), None)

    def location_of(self, query_id: str) -> str:
        """Return the location at which the query runs; empty if it does not run."""
        query = self.running(query_id)
        with self._lock:
            return next(
                (reservation.location for reservation in self._reservations if query and reservation.query is query), ""
            )

    def _running(self) -> list[StreamingQuery]:
        with self._lock:
            queries = [reservation.query for reservation in self._reservations]
        return [query for query in queries if query is not None and query.id]

    def of_session(self, session: str) -> list[StreamingQuery]:
        """Return the running queries of a session, in the order in which they were started."""
        with self._lock:
            reservations = list(self._reservations)
        return [p.query for p in reservations if p.session == session and p.query is not None and p.query.isActive]

    def _runs_of(self, new: Reservation) -> list[Reservation]:
        return [reservation for reservation in self._reservations if reservation.is_run_of(new)]

    def _refuse_name(self, new: Reservation, older: Collection[Reservation]) -> None:
        for known in self._reservations:
            if new.name is not None and known not in older and (known.session, known.name) == (new.session, new.name):
                raise ConfigError(
                    f"a query named {new.name!r} is active in this session; stop it or choose another name"
                )

    @staticmethod
    def _stop(older: Reservation, stop_older: bool) -> None:
        query = older.query
        if query is None:
            return
        if not stop_older:
            raise LocationError(
                f"query {query.id} (run {query.runId}) is active at checkpointLocation {older.location}: stop it, or "
                f'let a restart stop it with spark.conf.set("{STOP_ACTIVE_RUN_CONF}", "true")'
            )
        log.warning("query %s: run %s is stopped, because a new run is being started", query.id, query.runId)
        query.stop()


ACTIVE_QUERIES = ActiveQueries()
