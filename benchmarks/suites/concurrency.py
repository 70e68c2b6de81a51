"""Overlapping unaligned checkpoints under backpressure: up to four periodic ones at a time and user snapshots on top.

The job is that of ``backpressure``, (a) with the sleeping stage, (b) with a last stage that takes no input at all. The
reference, in the same run: snapshots of the same job one at a time, with no periodic checkpoint beside them.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.lib.stages import Stage, blocked_while
from benchmarks.suites import backpressure
from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.errors import CheckpointFailed
from penstock.queries.streaming_query import StreamingQuery

COUNT = 220
"""Completed checkpoints wanted, of the periodic ones and of the snapshots each."""
ALONE = 30
MAX_CONCURRENT = 4
INTERVAL_MS = 5
PAUSE_S = 0.1
"""Between a user's snapshots."""
LIMIT_S = 180.0
LAST_VERTEX = 2
SETTINGS = {"exchange.memoryPerGate": str(2 << 20), "checkpoint.alignment": "unaligned"}
OVERLAPPING = {
    **SETTINGS,
    "checkpoint.interval": f"{INTERVAL_MS}ms",
    "checkpoint.maxConcurrent": str(MAX_CONCURRENT),
}


class History:
    """Every checkpoint that ended, though the view forgets old ones. Used with ``with``."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._over = threading.Event()
        self._ended: dict[int, CheckpointView] = {}
        self._thread = threading.Thread(target=self._watch)
        self._first = max((c.checkpoint for c in query.view().checkpoints), default=0) + 1

    def __enter__(self) -> History:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for seen in self._query.view().checkpoints:
                if seen.state is not CheckpointState.PENDING and seen.checkpoint >= self._first:
                    self._ended.setdefault(seen.checkpoint, seen)

    @property
    def ended(self) -> list[CheckpointView]:
        return [self._ended[checkpoint] for checkpoint in sorted(self._ended)]

    def complete(self, requested: bool) -> list[CheckpointView]:
        return [c for c in self.ended if c.state is CheckpointState.COMPLETE and c.requested == requested]


def in_flight(checkpoints: Sequence[CheckpointView]) -> dict[str, float]:
    """Return the number of checkpoints in flight: at most (triggers are rounded to 1 ms), and on average."""
    changes = sorted(
        change
        for c in checkpoints
        for change in ((c.triggered_ms + 1.0, 1), (c.triggered_ms + max(1.0, c.duration_ms), -1))
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    span_ms = changes[-1][0] - changes[0][0]
    return {"most": most, "mean": sum(c.duration_ms for c in checkpoints) / span_ms}


def alone(query: StreamingQuery, count: int) -> dict[str, object]:
    """Snapshots one at a time: the reference."""
    query.snapshot(alignment="unaligned")  # the first one pays for imports and is not counted
    with History(query) as history:
        for _ in range(count):
            query.snapshot(alignment="unaligned")
            time.sleep(PAUSE_S)
        harness.wait_for("the last one to be seen", lambda: len(history.complete(True)) >= count)
    return {
        "duration_ms": harness.quantiles([c.duration_ms for c in history.complete(True)]),
        "inflight_bytes": harness.quantiles([float(c.inflight_bytes) for c in history.complete(True)]),
        "written_bytes": _written(query, history),
    }


def overlapping(query: StreamingQuery, count: int) -> dict[str, object]:
    """A user's snapshots one after the other amid periodic checkpoints, until there are enough of both."""
    query.snapshot(alignment="unaligned")
    waited_ms, refused = [], Counter[str]()
    began = time.perf_counter()
    with History(query) as history:
        while min(len(history.complete(True)), len(history.complete(False))) < count:
            if time.perf_counter() - began > LIMIT_S:
                break  # the counts in the result tell
            asked = time.perf_counter()
            try:
                query.snapshot(alignment="unaligned")
                waited_ms.append((time.perf_counter() - asked) * 1000)
            except CheckpointFailed as failure:
                refused[_kind(str(failure))] += 1
            time.sleep(PAUSE_S)
    periodic, requested = history.complete(False), history.complete(True)
    failed = [c for c in history.ended if c.state is CheckpointState.FAILED]
    return {
        "periodic_ms": harness.quantiles([c.duration_ms for c in periodic]),
        "snapshot_ms": harness.quantiles([c.duration_ms for c in requested]),
        "snapshot_call_ms": harness.quantiles(waited_ms),
        "all_ms": harness.quantiles([c.duration_ms for c in (*periodic, *requested)]),
        "inflight_bytes": harness.quantiles([float(c.inflight_bytes) for c in (*periodic, *requested)]),
        "snapshot_written_bytes": _written(query, history),
        "in_flight": in_flight(history.ended),
        "not_complete": dict(Counter(_kind(c.reason) for c in failed)),
        "not_complete_ms": harness.quantiles([c.duration_ms for c in failed]) if failed else None,
        "snapshots_failed": dict(refused),
    }


def _written(query: StreamingQuery, history: History) -> dict[str, float]:
    """Return quantiles of the bytes written by snapshots that users requested; files of periodic ones are collected."""
    return harness.quantiles([float(harness.written_bytes(query, c)) for c in history.complete(True)])


def _kind(reason: str) -> str:
    return re.sub(r"\d+", "n", reason)


def measure(spark: SparkSession, stage: Stage, quick: bool) -> dict[str, object]:
    """The reference and the overlapping checkpoints of one stage, each on a query of its own."""
    df = backpressure.job_with(spark, stage)
    with harness.running(df, **SETTINGS) as query:
        queued = backpressure.fill(query)
        reference = alone(query, 5 if quick else ALONE)
    with harness.running(df, **OVERLAPPING) as query:
        backpressure.fill(query)
        before = harness.rows_in(query, LAST_VERTEX)
        together = overlapping(query, 20 if quick else COUNT)
        passed = harness.rows_in(query, LAST_VERTEX) - before
    return {"queued_bytes": queued, "alone": reference, "overlapping": together, "rows_passed": passed}


@contextmanager
def _flag() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / "blocked"
        path.touch()
        yield path


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    table: dict[str, object] = {
        "max_concurrent": MAX_CONCURRENT,
        "interval_ms": INTERVAL_MS,
        "sleeping": measure(spark, backpressure.sleeping, quick),
    }
    print(f"  sleeping: {table['sleeping']}", flush=True)
    with _flag() as flag:
        blocked = measure(spark, blocked_while(str(flag)), quick)
    if blocked["rows_passed"] != 0:
        raise AssertionError(f"{blocked['rows_passed']} rows passed the blocked stage: nothing was measured")
    table["blocked"] = blocked
    return table
