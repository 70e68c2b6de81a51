"""Events of a query for the session's listeners, posted in order and not on the coordinator's threads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from penstock.logs import get_logger
from penstock.redaction import without_secrets

log = get_logger(__name__)

EVENT_BACKLOG = 1000
"""Events that may wait for slow listeners. Above it progress events are dropped; idle events and the end never are."""


class EventBus(Protocol):
    """Target of events: ``penstock.spark.listener_bus.ListenerBus``, or a list in tests."""

    def started(self, query_id: str, run_id: str, name: str | None, timestamp: str) -> None: ...

    def progressed(self, progress: dict[str, Any]) -> None: ...

    def idle(self, query_id: str, run_id: str, timestamp: str) -> None: ...

    def terminated(self, query_id: str, run_id: str, exception: str | None) -> None: ...


class QueryEvents:
    """Events of one query.

    ``started`` is posted at once, on the caller's thread as in Spark; the others are posted on a separate thread. An
    error of a listener is logged and does not affect the query. At most one idle event is posted per
    ``idle_event_interval_s``.
    """

    def __init__(self, bus: EventBus, run_id: str, idle_event_interval_s: float = 10.0) -> None:
        self._bus = bus
        self._run_id = run_id
        self._query_id = ""
        self._posts: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._idle_event_interval_s = idle_event_interval_s
        self._last_idle_s = float("-inf")
        self._thread = threading.Thread(target=self._post_all, name=f"penstock-events-{run_id}", daemon=True)

    def started(self, query_id: str, name: str | None, timestamp: str) -> None:
        """Post the start. Events that were posted earlier wait until it is delivered."""
        self._query_id = query_id
        self._guarded(lambda: self._bus.started(query_id, self._run_id, name, timestamp))
        self._thread.start()

    def progressed(self, progress: dict[str, Any]) -> None:
        if self._posts.qsize() < EVENT_BACKLOG:
            self._posts.put(lambda: self._bus.progressed(progress))

    def idle(self, timestamp: str) -> None:
        now_s = time.monotonic()
        if now_s - self._last_idle_s >= self._idle_event_interval_s:
            self._last_idle_s = now_s
            self._posts.put(lambda: self._bus.idle(self._query_id, self._run_id, timestamp))

    def call_in_turn(self, call: Callable[[], None]) -> None:
        """Call a function on the events' thread, after all events so far. Drop it if ``EVENT_BACKLOG`` events wait."""
        if self._posts.qsize() < EVENT_BACKLOG:
            self._posts.put(call)

    def terminated(self, exception: str | None) -> None:
        """Post the last event; the thread ends after it. Spark stores the exception's text, so secrets are removed."""
        safe_text = None if exception is None else without_secrets(exception)
        self._posts.put(lambda: self._bus.terminated(self._query_id, self._run_id, safe_text))
        self._posts.put(None)

    def join(self, timeout_s: float) -> None:
        """Wait until all events are delivered, for at most ``timeout_s``. Safe to call from a listener."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _post_all(self) -> None:
        while (post := self._posts.get()) is not None:
            self._guarded(post)

    def _guarded(self, post: Callable[[], None]) -> None:
        try:
            post()
        except Exception:
            log.warning("a listener event of query run %s was not heard", self._run_id, exc_info=True)
