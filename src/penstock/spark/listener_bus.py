"""Spark's own streaming listener bus: registered listeners, the Structured Streaming tab and the event log hear us.

The events of a query's life are built from Spark's JSON (``fromJson`` of the event's companion object) and
posted to the session's ``StreamingQueryManager``. Python and JVM listeners, and the UI, take them from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

_EVENTS = "org.apache.spark.sql.streaming.StreamingQueryListener$"


class ListenerBus:
    """Posts events of one session. Thread-safe; a post returns when the synchronous listeners have heard it.

    Spark reports progress only of queries whose start it has heard, so ``started`` comes first and ``terminated`` last.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def started(self, query_id: str, run_id: str, name: str | None, timestamp: str) -> None:
        """Post ``QueryStartedEvent``; ``timestamp`` as in Spark's progress, ISO 8601 in UTC with milliseconds."""
        event: dict[str, Any] = {"id": query_id, "runId": run_id, "name": name, "timestamp": timestamp, "jobTags": []}
        self._post("QueryStartedEvent", event)

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Post ``QueryProgressEvent``; ``progress`` is the JSON object of a ``StreamingQueryProgress``."""
        self._post("QueryProgressEvent", {"progress": progress})

    def idle(self, query_id: str, run_id: str, timestamp: str) -> None:
        """Post ``QueryIdleEvent``: running, with nothing to do."""
        self._post("QueryIdleEvent", {"id": query_id, "runId": run_id, "timestamp": timestamp})

    def terminated(self, query_id: str, run_id: str, exception: str | None) -> None:
        """Post ``QueryTerminatedEvent``; ``exception`` is the text that listeners and the UI show."""
        event = {"id": query_id, "runId": run_id, "exception": exception, "errorClassOnException": None}
        self._post("QueryTerminatedEvent", event)

    def _post(self, event_class: str, event: Mapping[str, Any]) -> None:
        companion = getattr(self._spark._jvm, f"{_EVENTS}{event_class}$")
        built = getattr(companion, "MODULE$").fromJson(json.dumps(event))
        self._spark._jsparkSession.streams().postListenerEvent(built)
