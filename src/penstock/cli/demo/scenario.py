"""``penstock demo``: the steps, in order. They store results in ``DemoResults`` and print them with ``Screen``."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.markup import escape

from penstock.api.writer import writeStream
from penstock.cli.demo.data import load_flights, write_files
from penstock.cli.demo.feeder import Feeder
from penstock.cli.demo.job_file import Job, load_job
from penstock.cli.demo.judge import judge
from penstock.cli.demo.quiet_session import quiet_session
from penstock.cli.demo.report import write_report
from penstock.cli.demo.results import DemoResults
from penstock.cli.demo.sampling import OutputWatch, Sample, vertex_samples
from penstock.cli.demo.screen import Screen, megabytes
from penstock.coordinator.view import ExecutionView
from penstock.errors import CheckpointFailed, PenstockError, QueryFailed
from penstock.model.elements import Alignment
from penstock.queries.streaming_query import StreamingQuery

SLOTS = 2
ALIGNED_PATIENCE_S = 5.0
SAMPLE_INTERVAL_S = 0.25


@dataclass(frozen=True)
class Pace:
    """Pace of the demo: speed of arriving files, and amounts to wait for.

    ``slow_us``, the delay per row in microseconds, is written to the control file. Gates are small, so that the
    backpressure reaches the source before the input ends.
    """

    seconds_per_file: float
    slow_us: int
    backlog_bytes: int
    memory_per_gate: str
    exclusive_window: str
    first_share: float = 0.4
    backlog_share: float = 0.85


WHOLE_YEAR = Pace(0.15, slow_us=1000, backlog_bytes=3_000_000, memory_per_gate="2m", exclusive_window="256k")
TWO_MONTHS = Pace(0.3, slow_us=3000, backlog_bytes=300_000, memory_per_gate="256k", exclusive_window="32k")


class Demo:
    """One run of the demo: a session, a query, a feeder and the results. ``run`` executes the steps."""

    def __init__(
        self, spark: SparkSession, job: Job, screen: Screen, results: DemoResults, feeder: Feeder, pace: Pace
    ) -> None:
        self._spark = spark
        self._job = job
        self._screen = screen
        self._results = results
        self._feeder = feeder
        self._pace = pace
        self._control = results.run / "control"
        self._output = OutputWatch(results.output, job.window_end)
        self._dropped_late: dict[int, int] = {}
        self._before: tuple[float, ExecutionView] | None = None
        self._began_s = time.monotonic()
        self._query = self._start()

    def _start(self) -> StreamingQuery:
        inbox = self._results.run / "input"
        flights = self._spark.readStream.schema(self._job.schema).parquet(str(inbox))
        return (
            writeStream(self._job.build(flights, str(self._control)))
            .format("parquet")
            .queryName("demo")
            .trigger(processingTime="1 second")
            .option("path", str(self._results.output))
            .option("checkpointLocation", str(self._results.run / "checkpoint"))
            .option("parallelism", SLOTS)
            .option("exchange.memoryPerGate", self._pace.memory_per_gate)
            .option("exchange.exclusiveWindow", self._pace.exclusive_window)
            .start()
        )

    def run(self) -> None:
        try:
            self._arrive()
            self._slow_down()
            self._take_snapshots()
            self._kill()
            self._release()
        finally:
            self._control.unlink(missing_ok=True)
            self._feeder.stop()
            self._query.stop()

    def _arrive(self) -> None:
        self._screen.step("Files arrive, windows commit", "results become visible with every checkpoint, exactly once")
        self._feeder.feed_until(self._pace.first_share)
        last = self._watch("full speed", lambda sample: self._feeder.arrived and sample.windows > 0, 60)
        self._note(f"{last.windows} windows committed from {last.files} files, {last.committed_rows:,} rows of output")

    def _slow_down(self) -> None:
        shows = "a control file outside the job: its queues fill and the pressure runs up to the source"
        self._screen.step("One stage is slowed", shows)
        self._control.write_text(str(self._pace.slow_us))
        self._feeder.feed_until(self._pace.backlog_share)
        enough = self._pace.backlog_bytes
        last = self._watch(
            f"[red]slowed to {self._pace.slow_us / 1000:g} ms per row[/]",
            lambda sample: sample.view.inflight_bytes >= enough and sample.backpressured >= 0.5,
            60,
        )
        self._results.backpressured = last.backpressured
        self._note(f"{megabytes(last.view.inflight_bytes)} in flight, a vertex backpressured {last.backpressured:.0%}")

    def _take_snapshots(self) -> None:
        self._screen.step(
            "An aligned snapshot, then an unaligned one", "one queues behind the data, the other overtakes it"
        )
        self._take_aligned()
        metadata = self._query.snapshot(label="demo", alignment=Alignment.UNALIGNED.value, timeout=30)
        taken = [c for c in self._query.view().checkpoints if c.checkpoint == metadata.checkpoint]
        metrics = [subtask for slot in metadata.slots for subtask in slot.metrics]
        self._results.unaligned_ms = taken[-1].duration_ms if taken else 0.0
        self._results.unaligned_bytes = sum(subtask.inflight_bytes for subtask in metrics)
        self._results.unaligned_rows = sum(subtask.inflight_rows for subtask in metrics)
        self._note(
            f"[green]unaligned: {self._results.unaligned_ms:.0f} ms[/], "
            f"{megabytes(self._results.unaligned_bytes)} in flight ({self._results.unaligned_rows:,} rows) are in it"
        )

    def _take_aligned(self) -> None:
        ended = threading.Event()
        outcome: list[str] = []

        def take() -> None:
            try:
                self._query.snapshot("aligned", Alignment.ALIGNED.value, ALIGNED_PATIENCE_S)
                outcome.append("complete")
            except PenstockError as error:
                outcome.append("given up" if isinstance(error, CheckpointFailed) else str(error))
            finally:
                ended.set()

        began_s = time.monotonic()
        threading.Thread(target=take, name="penstock-demo-aligned", daemon=True).start()
        self._watch(
            lambda: f"[yellow]aligned: {time.monotonic() - began_s:.1f} s and counting[/]",
            lambda sample: ended.is_set(),
            ALIGNED_PATIENCE_S + 10,
        )
        self._results.aligned_ms = (time.monotonic() - began_s) * 1000
        self._results.aligned_outcome = outcome[0] if outcome else "no answer"
        self._note(f"[yellow]aligned: {self._results.aligned_outcome} after {self._results.aligned_ms:,.0f} ms[/]")

    def _kill(self) -> None:
        self._screen.step("kill -9 of a worker", "while data is in flight; the newest snapshot brings it back")
        last = self._watch("waiting for data in flight", lambda sample: sample.view.inflight_bytes > 0, 30)
        victim = last.view.slots[-1]
        os.kill(victim.pid, signal.SIGKILL)
        self._results.kills += 1
        self._results.inflight_bytes_at_kill = last.view.inflight_bytes
        before = last.view.generation
        self._watch(f"[red]killed pid {victim.pid}[/]", lambda sample: _recovered(sample.view, before), 60)
        restart = self._query.view().restarts[-1]
        self._results.generations = (restart.failed_generation, restart.generation)
        self._results.recovery_ms = restart.duration_ms or 0.0
        self._results.restored_from = restart.restored_from
        self._results.restored_rows = restart.restored_inflight_rows
        self._note(
            f"killed pid {victim.pid} with {megabytes(last.view.inflight_bytes)} in flight: Generation "
            f"{restart.failed_generation} -> {restart.generation} in [green]{self._results.recovery_ms:,.0f} ms[/], "
            f"{restart.restored_inflight_rows:,} in-flight rows restored from {restart.restored_from}"
        )

    def _release(self) -> None:
        self._screen.step("Full speed again", "the queues drain, the last files arrive, windows keep committing")
        self._control.unlink()
        little = self._pace.backlog_bytes // 20
        epoch = self._query.view().committed_epoch
        drained = self._watch(
            "[green]draining[/]",
            # After a newer epoch was committed, the metrics come from the restarted slots.
            lambda sample: (
                sample.inflight_rows_left == 0
                and sample.view.inflight_bytes < little
                and sample.view.committed_epoch > epoch
            ),
            60,
        )
        self._note(f"drained: {drained.windows} windows committed from {drained.files} files")
        self._feeder.feed_until(1.0)
        last = self._watch("the last files", lambda sample: self._feeder.arrived, 60)
        self._results.windows_before_end = last.windows
        self._query.processAllAvailable()
        self._output.look()
        self._look()
        self._results.dropped_late = sum(self._dropped_late.values())
        self._note(
            f"end of input: {last.windows} windows were committed before the last file, {self._output.windows} after it"
        )

    def _watch(self, headline: str | Callable[[], str], until: Callable[[Sample], bool], timeout_s: float) -> Sample:
        """Show the query until a condition holds, and return the sample for which it holds.

        Raises:
            QueryFailed: the query ended, or the condition did not hold in time.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._screen.live():
            while True:
                sample = self._look()
                self._screen.show(sample, headline if isinstance(headline, str) else headline())
                if until(sample):
                    return sample
                self._raise_if_ended()
                if time.monotonic() > deadline_s:
                    raise QueryFailed(f"the demo waited {timeout_s:.0f} s for: {headline}; status {self._query.status}")
                time.sleep(SAMPLE_INTERVAL_S)

    def _raise_if_ended(self) -> None:
        if not self._query.isActive:
            raise QueryFailed(f"the demo's query ended: {self._query.exception()}")

    def _look(self) -> Sample:
        view = self._query.view()
        now_s = time.monotonic()
        vertices = vertex_samples(self._before[1] if self._before else None, view)
        # Slots report twice a second. Over a shorter interval many rates would be zero.
        if self._before is None or now_s - self._before[0] >= 1.0 or self._before[1].generation != view.generation:
            self._before = (now_s, view)
        self._output.look()
        for progress in self._query.recentProgress:
            self._dropped_late[progress.batchId] = sum(s.numRowsDroppedByWatermark for s in progress.stateOperators)
        self._results.max_inflight_bytes = max(self._results.max_inflight_bytes, view.inflight_bytes)
        self._results.inflight.append((now_s - self._began_s, view.inflight_bytes))
        return Sample(now_s, view, vertices, self._feeder.fed, self._output.rows, self._output.windows)

    def _note(self, text: str) -> None:
        self._results.timeline.append((time.monotonic() - self._began_s, text))
        self._screen.say(text)


def _recovered(view: ExecutionView, generation_before: int) -> bool:
    newest = view.restarts[-1] if view.restarts else None
    return newest is not None and newest.generation > generation_before and newest.duration_ms is not None


def run_demo(console: Console, out: Path, small: bool, keep: bool, job_path: Path | None) -> bool:
    """Run the demo. Return True if it passed."""
    began_s = time.monotonic()
    job = load_job(job_path)
    run = (out / datetime.now().strftime("%Y%m%d-%H%M%S")).resolve()
    screen = Screen(console)
    console.print("[bold]Penstock[/]: the flights of 2013 out of New York, as a stream", highlight=False)
    flights = write_files(load_flights(small), run / "staging")
    results = DemoResults(rows=flights.rows, run=run, job=job.path, source=job.source)
    shutil.copy(job.path, run / "job.py")
    spark = quiet_session("penstock demo", run)
    results.ui = spark.sparkContext.uiWebUrl or ""
    screen.step("The job", f"an ordinary streaming DataFrame; Spark UI: {results.ui}/StreamingQuery/")
    screen.code(job.source)
    screen.say(f"input: {flights.rows:,} flights in {len(flights.files)} files")
    pace = TWO_MONTHS if small else WHOLE_YEAR
    feeder = Feeder(flights.files, run / "input", pace.seconds_per_file)
    Demo(spark, job, screen, results, feeder, pace).run()
    judge(spark, job, results, screen, flights.max_event_time_us)
    results.total_s = time.monotonic() - began_s
    write_report(results)
    if not keep and not results.shortcomings():
        for directory in ("staging", "input", "checkpoint"):
            shutil.rmtree(run / directory, ignore_errors=True)
    return _conclude(screen, results)


def _conclude(screen: Screen, results: DemoResults) -> bool:
    shortcomings = results.shortcomings()
    for shortcoming in shortcomings:
        screen.say(f"[bold red]FAILED[/] {escape(shortcoming)}")
    screen.say(
        f"windows committed before the end of input: {results.windows_before_end_share:.0%} of {results.windows}"
    )
    screen.say(f"output  {results.output}")
    screen.say(f"job     {results.run / 'job.py'}  (edit {results.job})")
    screen.say(f"report  {results.report}")
    screen.say(f"took    {results.total_s:.0f} s")
    return not shortcomings
