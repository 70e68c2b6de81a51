"""``penstock.streams``: PySpark's ``StreamingQueryManager`` for Penstock's queries."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.interrupts import interruptible
from penstock.spark.current_session import current_session, session_key
from penstock.spark.errors import WrongSetting, check_seconds

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQueryListener

    from penstock.queries.streaming_query import StreamingQuery


class Terminations:
    """Query that ``awaitAnyTermination`` reports, per session: the last that failed, else the first that ended.

    Thread-safe; one instance per process.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ended: dict[str, StreamingQuery] = {}

    def ended(self, session: str, query: StreamingQuery, failed: bool) -> None:
        with self._changed:
            if failed or session not in self._ended:
                self._ended[session] = query
            self._changed.notify_all()

    def wait(self, session: str, timeout_s: float | None) -> StreamingQuery | None:
        """Block until a query of the session has ended, for at most ``timeout_s``. Return None after a time-out."""
        with self._changed:
            self._changed.wait_for(lambda: session in self._ended, timeout_s)
            return self._ended.get(session)

    def reset(self, session: str) -> None:
        with self._changed:
            self._ended.pop(session, None)


TERMINATIONS = Terminations()


class StreamingQueryManager:
    """Manager of the queries of the current session: the thread's active session, else the application's default one.

    Names and meanings are those of ``pyspark.sql.streaming.StreamingQueryManager``. ``penstock.streams`` is the only
    instance. Every method raises ResourceError if there is no session.
    """

    @property
    def active(self) -> list[StreamingQuery]:
        """The running queries of the session, in the order in which they were started."""
        return ACTIVE_QUERIES.of_session(session_key(current_session()))

    def get(self, id: str) -> StreamingQuery | None:  # noqa: A002 - PySpark's name
        """Return the active query with this ``id``, or None.

        Raises:
            WrongSetting: ``id`` is not a UUID.
        """
        try:
            query_id = str(uuid.UUID(id))
        except (ValueError, AttributeError, TypeError):
            raise WrongSetting(f"{id!r} is not a query's id: that is a UUID, query.id") from None
        return next((query for query in self.active if query.id == query_id), None)

    def awaitAnyTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Block until a query of the session ends, at most ``timeout`` seconds.

        Return at once if one has ended since the session began or since ``resetTerminated``. With a time-out, return
        True if a query has ended. Ctrl-C ends the wait, not the queries.

        Raises:
            StreamingQueryException: the query failed.
        """
        check_seconds(timeout, zero=True)
        with interruptible():
            query = TERMINATIONS.wait(session_key(current_session()), timeout)
        if query is not None:
            query.awaitTermination()
        return None if timeout is None else query is not None

    def resetTerminated(self) -> None:  # noqa: N802
        """Forget the queries that have ended, so that ``awaitAnyTermination`` waits for the next one."""
        TERMINATIONS.reset(session_key(current_session()))

    def addListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        """Add a listener to ``spark.streams``. It also gets the events of Penstock's queries."""
        current_session().streams.addListener(listener)

    def removeListener(self, listener: StreamingQueryListener) -> None:  # noqa: N802
        """Remove a listener from ``spark.streams``."""
        current_session().streams.removeListener(listener)


streams = StreamingQueryManager()
