"""Events for Spark's own streaming listener bus: listeners, the Structured Streaming tab and the event log get them.

The events of a query are created in the JVM (progress from Spark's own JSON) and posted to the session's
``StreamingQueryManager``, which passes them to Python and JVM listeners, the UI and the event log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from penstock.catalyst.jvm import java_class

_LISTENER = "org.apache.spark.sql.streaming.StreamingQueryListener"


class ListenerBus:
    """Posts events of one session. Thread-safe. A post returns after the synchronous listeners have processed it.

    Spark reports progress only for queries whose start was posted, so ``started`` must be first and ``terminated``
    last.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def started(self, query_id: str, run_id: str, name: str | None, timestamp: str) -> None:
        """Post ``QueryStartedEvent``. ``timestamp`` is in Spark's format: ISO 8601 in UTC with milliseconds."""
        self._post(self._event("Started")(self._uuid(query_id), self._uuid(run_id), name, timestamp))

    def progressed(self, progress: Mapping[str, Any]) -> None:
        """Post ``QueryProgressEvent``. ``progress`` is the JSON object of a ``StreamingQueryProgress``."""
        companion = self._event("Progress", "$")
        read = getattr(companion, "MODULE$").fromJson
        self._post(read(json.dumps({"progress": progress})))

    def idle(self, query_id: str, run_id: str, timestamp: str) -> None:
        """Post ``QueryIdleEvent``: the query runs, but there is no new data."""
        self._post(self._event("Idle")(self._uuid(query_id), self._uuid(run_id), timestamp))

    def terminated(self, query_id: str, run_id: str, exception: str | None) -> None:
        """Post ``QueryTerminatedEvent``. ``exception`` is the text that listeners get and the UI shows."""
        option = java_class(self._spark, "scala.Option").apply
        ids = self._uuid(query_id), self._uuid(run_id)
        self._post(self._event("Terminated")(*ids, option(exception), option(None)))

    def _event(self, name: str, companion: str = "") -> Any:
        return java_class(self._spark, f"{_LISTENER}$Query{name}Event{companion}")

    def _uuid(self, text: str) -> Any:
        return java_class(self._spark, "java.util.UUID").fromString(text)

    def _post(self, event: Any) -> None:
        self._spark._jsparkSession.streams().postListenerEvent(event)
