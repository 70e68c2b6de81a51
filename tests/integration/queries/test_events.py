"""Spark's own listeners and UI hear of a query."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark


class Recorder(StreamingQueryListener):
    def __init__(self) -> None:
        self.started: list[QueryStartedEvent] = []
        self.progressed: list[QueryProgressEvent] = []
        self.terminated: list[QueryTerminatedEvent] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        self.started.append(event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        self.progressed.append(event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Not asked about."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        self.terminated.append(event)
        self.ended.set()


def test_a_registered_listener_hears_start_progress_and_end(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    recorder = Recorder()
    spark.streams.addListener(recorder)
    try:
        query = start(inbox.stream(spark), format="noop", queryName="heard")
        assert [(str(e.id), str(e.runId), e.name) for e in recorder.started] == [(query.id, query.runId, "heard")]
        inbox.add([(1, 1, 0.0), (2, 2, 0.0)])
        query.processAllAvailable()
        query.stop()
        assert recorder.ended.wait(10)
    finally:
        spark.streams.removeListener(recorder)
    [progress] = [event.progress for event in recorder.progressed if event.progress.numInputRows]
    assert progress.numInputRows == 2
    [own] = [one for one in query.recentProgress if one.numInputRows]
    assert own.checkpoint is not None
    assert own.checkpoint["intervalMs"] == 200
    assert own.checkpoint["id"] == own.batchId == progress.batchId
    assert progress.sink.metrics["checkpoint.id"] == str(progress.batchId)
    assert json.loads(progress.sink.metrics["checkpoint.durationMs"]) == own.checkpoint["durationMs"]
    assert {str(event.progress.runId) for event in recorder.progressed} == {query.runId}
    [end] = recorder.terminated
    assert (str(end.id), end.exception) == (query.id, None)


UI_PROGRAM = """
    import time, urllib.request
    import penstock

    spark = penstock.session("ui", {"spark.ui.port": "0", "spark.sql.session.timeZone": "UTC"})
    df = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = penstock.writeStream(df).format("noop").queryName("seen").option("parallelism", 1)
    query = query.trigger(processingTime="200 milliseconds").start()

    def page(path):
        return urllib.request.urlopen(spark.sparkContext.uiWebUrl + path, timeout=10).read().decode()

    deadline = time.monotonic() + 60
    while not any(p.numInputRows for p in query.recentProgress) and time.monotonic() < deadline:
        time.sleep(0.1)

    def shows(path, *texts):
        while not (there := all(text in page(path) for text in texts)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return there

    print("ACTIVE", shows("/StreamingQuery/", query.id, "seen", "Active Streaming Queries (1)"))
    print("STATISTICS", shows(f"/StreamingQuery/statistics/?id={query.runId}", "Input Rate"))
    query.stop()
    print("COMPLETED", shows("/StreamingQuery/", "Completed Streaming Queries (1)"))
    spark.stop()
"""


def test_the_query_is_in_the_structured_streaming_tab(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(UI_PROGRAM))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.split()[0] in ("ACTIVE", "STATISTICS", "COMPLETED")]
    assert told == ["ACTIVE True", "STATISTICS True", "COMPLETED True"]
