"""The job of ``flip76`` as Spark's own engine runs it under failures: a query that its driver starts again, with a
log of the rows that it has committed.

Nothing in Spark starts a streaming query again; who runs one has such a loop, or a supervisor for the whole driver.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from benchmarks.lib import row_log, stages

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from benchmarks.lib.stages import Stage

SLICE_ROWS = 20
"""Rows of an Arrow batch at a time. Spark passes the rows of a task in one batch, and a failure would wait for all."""
LOOK_EVERY_S = 0.25


def last_stage(folder: str, row_ms: float) -> Stage:
    """Return a failing stage that counts per task: Spark's Python workers run several tasks."""
    stage = stages.failing(folder, row_ms)

    def sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slices = (batch.slice(at, SLICE_ROWS) for batch in batches for at in range(0, len(batch), SLICE_ROWS))
        try:
            yield from stage(slices)
        finally:
            row_log.finish()

    return sink


def batch(progress: Any) -> tuple[float, float, int]:
    """Return the begin, the commit and the rows of a micro-batch."""
    began_s = datetime.fromisoformat(progress["timestamp"]).timestamp()
    return began_s, began_s + progress["durationMs"]["triggerExecution"] / 1000, progress["numInputRows"]


class Loop:
    """Runs on a thread of its own: has the query run, and begins it again after each failure."""

    def __init__(self, start: Callable[[], StreamingQuery], folder: Path, delay_ms: int) -> None:
        self._start = start
        self._notes = folder / "spark.committed"
        self._delay_s = delay_ms / 1000
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-restarts")
        self._newest = -1
        self._rows = 0

    @property
    def micro_batches(self) -> int:
        """That were committed so far."""
        return self._newest + 1

    def __enter__(self) -> Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            query = self._start()
            while not (ended := self._has_failed(query)) and not self._over.is_set():
                self._note(query)
            self._note(query)
            if not ended:
                query.stop()
            self._over.wait(self._delay_s)

    def _has_failed(self, query: StreamingQuery) -> bool:
        """Waits a little for that."""
        try:
            return bool(query.awaitTermination(LOOK_EVERY_S))
        except StreamingQueryException:
            return True

    def _note(self, query: StreamingQuery) -> None:
        """The micro-batches that are new."""
        with self._notes.open("a") as file:
            for progress in query.recentProgress:
                if progress["batchId"] > self._newest:
                    _, committed_s, rows = batch(progress)
                    self._newest = progress["batchId"]
                    self._rows += rows
                    file.write(f"{committed_s * 1000:.0f} {self._rows}\n")


@contextmanager
def running(df: DataFrame, folder: Path, delay_ms: int) -> Iterator[Loop]:
    """Run the query from a fresh checkpoint location to a sink that discards rows."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = df.writeStream.format("noop").option("checkpointLocation", location)
        with Loop(writer.start, folder, delay_ms) as loop:
            yield loop


def kill_worker(folder: Path) -> bool:
    """The Python worker of the last stage's newest task; False: it is gone, or there was none."""
    tasks = sorted(folder.glob("*.processed"))
    if not tasks:
        return False
    try:
        os.kill(int(tasks[-1].stem.partition("-")[2]), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
