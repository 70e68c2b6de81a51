"""Latency at 10, 50 and 90 % of the most that an engine can do: Penstock, Flink and Spark in one run, in turns.

Rows by the clock -> hash exchange -> a running count of each key, which hands every row on -> a sink that counts how
late rows are. Each engine first runs as fast as it can, and then at shares of that, with a checkpoint every second.
A row's latency is from when it was due to the sink's write call. The clock does not wait for an engine that is behind,
and all rows that were due count, so none is omitted because the engine was late for it.

Spark has no function by key that takes rows in batches and hands them on: its form of the job leaves out the count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram
from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.lib import harness, latency_sink
from benchmarks.lib.variable_rate_source import SCHEMA, SECOND_US, Schedule, Step, VariableRateSource
from benchmarks.peers.flink import cluster, job
from benchmarks.peers.flink.load_job import LoadSettings
from benchmarks.suites.flip76_job import KEYS, CountPerKey

LOADS = (10, 50, 90)
"""Percent of the most."""
START_LOAD = 10
START_S = 6
"""Rows are due while a job still starts: few, so that it catches up with them soon."""
WARM_LOAD = 50
DRAIN_LOAD = 10
"""Behind the last measured rows, so that an engine that fell behind gets to them."""
DRAIN_S = 120
SETTLE_S = 2
"""At a new pace, until rows count."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
INTERVAL_MS = 1_000
SPARK_RANGE_ROWS = 2_000_000
"""Of a micro-batch where rows come as fast as they are taken."""
LIMIT_S = 60.0
"""Rows that are not there by then are missing."""

PENSTOCK = {"Penstock": {}, "Penstock, unaligned": {"checkpoint.alignment": "unaligned"}}
FLINK: dict[str, dict[str, Any]] = {
    "Flink": {},
    "Flink, unaligned": {"unaligned": True},
    "Flink, buffers of 10 ms": {"buffer_timeout_ms": 10},
}
SPARK = "Spark"
REFERENCES = ("Flink", "Flink, buffers of 10 ms", SPARK)


@dataclass(frozen=True)
class Pace:
    """``steps``: of a schedule; empty: rows come as fast as they are taken."""

    started_us: int = 0
    steps: str = ""


@dataclass(frozen=True)
class Running:
    """A job that runs. ``completed``: checkpoints so far. ``rate``: rows a second within these seconds since 1970."""

    completed: Callable[[], int]
    rate: Callable[[range], float]


Start = Callable[[Pace, Path], AbstractContextManager[Running]]


@dataclass(frozen=True)
class Lengths:
    """Lengths of the parts of a round in seconds."""

    warm_up: int
    most: int
    load: int


FULL = Lengths(warm_up=5, most=5, load=5)
QUICK = Lengths(warm_up=4, most=3, load=2)
UNCOUNTED = Lengths(warm_up=5, most=1, load=0)
"""Of an engine's very first run, which pays for all others: JVMs compile what they run often."""
ROUNDS = 2


# -- the engines ------------------------------------------------------------------------------------------------------


def source(spark: SparkSession, pace: Pace, **options: object) -> DataFrame:
    given = {"startedUs": pace.started_us, "steps": pace.steps, "keys": KEYS, "partitions": harness.SLOTS, **options}
    return spark.readStream.format("variable-rate").options(**given).load()


@contextmanager
def by_penstock(spark: SparkSession, options: dict[str, str], pace: Pace, folder: Path) -> Iterator[Running]:
    grouped = source(spark, pace, waits="true").groupBy("key")
    counted = penstock.transformWithStateInArrow(grouped, CountPerKey(), SCHEMA, "Append", "None")
    settings = {"checkpoint.interval": f"{INTERVAL_MS}ms", **options}
    with harness.running(counted, sink=latency_sink.FORMAT, path=str(folder), **settings) as query:
        yield Running(lambda: query.view().checkpoints_completed, lambda seconds: noted_rate(folder, seconds))


@contextmanager
def by_flink(peer: cluster.Cluster, options: dict[str, Any], pace: Pace, folder: Path) -> Iterator[Running]:
    settings = LoadSettings(pace.started_us, pace.steps, folder, INTERVAL_MS, keys=KEYS, **options)
    with job.running(peer, settings) as running:
        yield Running(lambda: len(running.checkpoints()), lambda seconds: noted_rate(folder, seconds))


@contextmanager
def by_spark(spark: SparkSession, pace: Pace, folder: Path) -> Iterator[Running]:
    """A micro-batch stands for a checkpoint: it is what Spark commits."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        exchanged = source(spark, pace, rangeRows=SPARK_RANGE_ROWS).repartition(harness.SLOTS, "key")
        writer = exchanged.writeStream.format(latency_sink.FORMAT).option("checkpointLocation", location)
        query = writer.start(str(folder))

        def rate(seconds: range) -> float:
            beyond = lambda: any(began_s(one) >= seconds.stop for one in query.recentProgress)  # noqa: E731
            harness.wait_for("a micro-batch behind the window", beyond, LIMIT_S)
            return batch_rate(query.recentProgress, seconds)

        try:
            yield Running(lambda: len(query.recentProgress), rate)
        finally:
            query.stop()


def noted_rate(folder: Path, seconds: range) -> float:
    """Return the rate of arrived rows; a writer notes them with its next checkpoint."""

    def noted() -> bool:
        last_s = latency_sink.read(folder).last_s.values()
        return len(last_s) == harness.SLOTS and min(last_s) >= seconds.stop

    harness.wait_for("every sink's notes", noted, LIMIT_S)
    return latency_sink.read(folder).arrived(seconds) / len(seconds)


def began_s(progress: Any) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()


def batch_rate(progress: list[Any], seconds: range) -> float:
    """Return the rate over whole micro-batches that overlap the period: they are few, and rows arrive late in each."""
    rows, took_s = 0, 0.0
    for one in progress:
        one_s = one["durationMs"]["triggerExecution"] / 1_000
        if began_s(one) < seconds.stop and began_s(one) + one_s > seconds.start:
            rows, took_s = rows + one["numInputRows"], took_s + one_s
    return rows / took_s


# -- what is measured -------------------------------------------------------------------------------------------------


def most(start: Start, lengths: Lengths) -> float:
    """Rows a second of a run that gets them as fast as it takes them."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, start(Pace(), Path(name)) as running:
        harness.wait_for("the first rows", lambda: len(latency_sink.read(Path(name)).rows) > 0, LIMIT_S)
        first = int(time.time()) + 1 + lengths.warm_up
        window = range(first, first + lengths.most)
        sleep_until(window.stop)
        return running.rate(window)


def plan(most_rows: float, started_s: int, lengths: Lengths) -> tuple[Schedule, dict[int, range]]:
    """The paces of a run, and in which seconds each of ``LOADS`` is measured."""

    def step(load: int, seconds: int) -> Step:
        return Step(max(1, round(most_rows * load / 100)), seconds)

    loads = [step(load, SETTLE_S + lengths.load) for load in LOADS]
    first = [step(START_LOAD, START_S), step(WARM_LOAD, lengths.warm_up)]
    windows = {}
    stop = started_s + START_S + lengths.warm_up
    for load in LOADS:
        stop += SETTLE_S + lengths.load
        windows[load] = range(stop - lengths.load, stop)
    return Schedule(started_s * SECOND_US, [*first, *loads, step(DRAIN_LOAD, DRAIN_S)]), windows


def under_load(start: Start, most_rows: float, lengths: Lengths) -> dict[str, dict[str, Any]]:
    """Return, by load, the target rate, the achieved rate and the lateness of rows."""
    schedule, windows = plan(most_rows, int(time.time()) + 1, lengths)
    targets = {load: step.rows_per_second for load, step in zip(LOADS, schedule.steps[2:-1], strict=True)}
    expected = {load: targets[load] * len(window) for load, window in windows.items()}
    pace = Pace(schedule.started_us, str(schedule))
    completed = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name, start(pace, Path(name)) as running:
        for load, window in windows.items():
            sleep_until(window.start)
            before = running.completed()
            sleep_until(window.stop)
            completed[load] = running.completed() - before
        notes = arrived(Path(name), windows, expected)
    missing = {load: expected[load] - notes.due(window) for load, window in windows.items()}
    return {
        str(load): {
            "target_rows_per_second": targets[load],
            "achieved_rows_per_second": notes.arrived(window) / len(window),
            "missing_rows": missing[load],
            "checkpoints": completed[load],
            **told(histogram(notes, window, missing[load])),
        }
        for load, window in windows.items()
    }


def arrived(folder: Path, windows: dict[int, range], expected: dict[int, int]) -> latency_sink.Latencies:
    """Wait until all rows of the windows have arrived, or for the time limit."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        notes = latency_sink.read(folder)
        found = {load: notes.due(window) for load, window in windows.items()}
        if found == expected or time.monotonic() > deadline:
            return notes
        if any(found[load] > expected[load] for load in windows):
            raise AssertionError(f"{found} rows arrived, of {expected}")
        time.sleep(0.5)


def sleep_until(second: int) -> None:
    time.sleep(max(0.0, second - time.time()))


# -- histograms -------------------------------------------------------------------------------------------------------


def histogram(notes: latency_sink.Latencies, seconds: range, missing: int = 0) -> HdrHistogram:
    """Latencies in microseconds of the rows that were due then. Those that never came count as so late as was waited
    for them: they were later."""
    chosen = latency_sink.within(notes.due_s, seconds)
    found = HdrHistogram(1, latency_sink.MOST_US, latency_sink.DIGITS)
    for latency_us, rows in zip(notes.least_us[chosen].tolist(), notes.rows[chosen].tolist(), strict=True):
        found.record_value(latency_us, rows)
    if missing:
        found.record_value(round(LIMIT_S * SECOND_US), missing)
    return found


def told(found: HdrHistogram) -> dict[str, Any]:
    """Its percentiles, and all of it in the format of HDR histograms (V2, compressed, base64)."""
    return {"ms": percentiles(found), "histogram_us": found.encode().decode()}


def percentiles(found: HdrHistogram) -> dict[str, float]:
    """Return percentiles in milliseconds; 100 is the largest value."""
    values = found.get_percentile_to_value_dict(PERCENTILES)
    return {f"{percentile:g}": values[percentile] / 1_000 for percentile in PERCENTILES}


def of_all(rounds: list[dict[str, Any]], load: str) -> dict[str, float]:
    """Percentiles over the rows of all rounds."""
    total = HdrHistogram(1, latency_sink.MOST_US, latency_sink.DIGITS)
    for one in rounds:
        total.add(HdrHistogram.decode(one["loads"][load]["histogram_us"]))
    return percentiles(total)


def ratios(table: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Return, for each form of Penstock at each load, its latency divided by that of the compared engine."""
    return {
        form: {
            load: {
                other: {name: ms[name] / table[other][load][name] for name in ms}
                for other in REFERENCES
                if other in table
            }
            for load, ms in table[form].items()
        }
        for form in PENSTOCK
    }


# -- all of it, in turns ----------------------------------------------------------------------------------------------


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    with cluster.Cluster(harness.SLOTS) as peer:
        return {"flink": peer.version, **measured(starts(spark, peer), quick)}


def starts(spark: SparkSession, peer: cluster.Cluster | None) -> dict[str, Start]:
    """Return the starters by form; without a cluster those of Flink are left out."""
    spark.dataSource.register(VariableRateSource)
    spark.dataSource.register(latency_sink.LatencySink)
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    found: dict[str, Start] = {
        form: lambda pace, folder, options=options: by_penstock(spark, options, pace, folder)
        for form, options in PENSTOCK.items()
    }
    if peer is not None:
        found |= {
            form: lambda pace, folder, options=options: by_flink(peer, options, pace, folder)
            for form, options in FLINK.items()
        }
    return {**found, SPARK: lambda pace, folder: by_spark(spark, pace, folder)}


def measured(starts: dict[str, Start], quick: bool) -> dict[str, object]:
    """Return the rounds by form; every other round runs the forms in reverse order."""
    lengths = QUICK if quick else FULL
    rounds: dict[str, list[dict[str, Any]]] = {form: [] for form in starts}
    for engine in dict.fromkeys(form.split(",")[0] for form in starts):
        most(starts[engine], UNCOUNTED)
    for number in range(1 if quick else ROUNDS):
        for form in reversed(starts) if number % 2 else starts:
            rows_per_second = most(starts[form], lengths)
            loads = under_load(starts[form], rows_per_second, lengths)
            rounds[form].append({"most_rows_per_second": rows_per_second, "loads": loads})
            shown = {load: (round(one["achieved_rows_per_second"]), one["ms"]) for load, one in loads.items()}
            print(f"  {form}: {rows_per_second:.0f} rows/s at most; {shown}", flush=True)
    table = {form: {str(load): of_all(found, str(load)) for load in LOADS} for form, found in rounds.items()}
    return {"keys": KEYS, "rounds": rounds, "ms": table, "ratios": ratios(table)}
