"""Cost of a checkpoint every second in Flink and Penstock, with backpressure and without: rows b and c of ``flip76``.

*With*: the job of ``flip76``, whose sink takes a millisecond for a row, with full queues. *Without*: source -> hash
exchange, count per key of 10,000 keys -> nowhere, at full speed. Each round runs every engine with checkpoints and
without, one after the other, and begins with another one each time; a ratio is that of two runs of one round.

Every micro-batch of Spark is a commit. So there is no Spark run without checkpoints, and its results are only listed.

*In windows*: one query of Penstock without backpressure, whose checkpoints are switched on and off. Its ratios are free
of differences between two starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.streaming import StreamingQuery as SparkQuery

from benchmarks.lib import harness, row_log
from benchmarks.lib.cpu_time import CpuTime
from benchmarks.peers import spark_restarts
from benchmarks.peers.flink import cluster, job
from benchmarks.suites import flip76, throughput
from benchmarks.suites.flip76_job import KEYS, PAYLOAD_BYTES, STAGES, counted, penstock_job, slow
from penstock.coordinator.view import CheckpointState
from penstock.queries.streaming_query import StreamingQuery

WITH, WITHOUT = "with backpressure", "without backpressure"
ROUNDS = {WITH: 4, WITHOUT: 8}
ALONE = {WITH: 0, WITHOUT: 16}
"""Rounds more, of Penstock only: the target is for the bound of its mean, which eight rounds leave wide."""
WINDOWS = 80
"""Pairs of them."""
WINDOW_S = 3.0
SWITCHED_S = 1.0
"""Before a window, for what the one before has left; a checkpoint that was due may still end in it, and is counted."""
SWITCHED = "default"
MEASURED_S = {WITH: 10.0, WITHOUT: 6.0}
INTERVAL_MS = 1_000
ROW_MS = 1.0
QUEUES = "Penstock, queues as Flink's"
BASE = "none"
FORMS: dict[str, dict[str, dict[str, Any]]] = {
    "Flink": {
        BASE: {"interval_ms": 0},
        "aligned": {"interval_ms": INTERVAL_MS},
        "unaligned": {"interval_ms": INTERVAL_MS, "unaligned": True},
    },
    "Penstock": {
        BASE: {"checkpoint.interval": "1h"},
        **{
            mode: {"checkpoint.interval": f"{INTERVAL_MS}ms", "checkpoint.alignment": alignment}
            for mode, alignment in flip76.ALIGNMENTS.items()
        },
    },
    "Spark": {"micro-batch": {}},
}
WARM_UP_S = {"Flink": 5.0, "Penstock": 2.0}
"""Without backpressure. Flink compiles each job's code anew."""
SPARK_BATCH_ROWS = {WITH: round(harness.SLOTS * 1000 / ROW_MS), WITHOUT: 2_000_000}
"""With backpressure what the sink takes in a second; without, of the order of a second's work."""
SPARK_WARM_UP_BATCHES = 3
SPARK_LEAST_BATCHES = 2
"""That are measured, however long they take."""
SPARK_LIMIT_S = 120.0
ROWS = "key bigint, value bigint"


@dataclass(frozen=True)
class Cost:
    """One run.

    Attributes:
        cpu_s_per_million: CPU seconds of all processes for a million rows, those of peers that stand idle included.
        checkpoints: that were complete while it was measured; of Spark, micro-batches.
    """

    rows_per_second: float
    cpu_s_per_million: float
    checkpoints: int


def cost(rows_per_second: float, cpu_seconds: float, seconds: float, checkpoints: int) -> Cost:
    return Cost(rows_per_second, cpu_seconds / seconds / rows_per_second * 1e6, checkpoints)


# -- one run of each engine -------------------------------------------------------------------------------------------


def by_flink(peer: cluster.Cluster, load: str, form: str) -> Cost:
    settings = job.Settings(ROW_MS, stages=STAGES, keys=KEYS, payload_bytes=PAYLOAD_BYTES)
    if load == WITHOUT:
        settings = replace(settings, row_ms=0.0, stages=1, payload_bytes=0)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        job.running(peer, replace(settings, row_log=Path(folder), **FORMS["Flink"][form])) as running,
    ):
        if load == WITH:
            flip76.settle(lambda: running.rows_generated() - running.rows_processed())
        else:
            time.sleep(WARM_UP_S["Flink"])
        began_s = time.time()
        with CpuTime() as used:
            time.sleep(MEASURED_S[load])
        ended_s = time.time()
        time.sleep(2 * row_log.ENTRY_EVERY_MS / 1000)
        ends_ms = [one.triggered_ms + one.duration_ms for one in running.checkpoints()]
        rate = noted_rate(row_log.read(Path(folder)).processed, began_s, ended_s)
    return cost(rate, used.seconds, ended_s - began_s, within(ends_ms, began_s, ended_s))


def noted_rate(subtasks: Iterable[Sequence[row_log.Entry]], began_s: float, ended_s: float) -> float:
    """Rows a second of all subtasks: of each between its first note in that time and its last."""
    rate = 0.0
    for notes in subtasks:
        inside = [note for note in notes if began_s <= note[0] <= ended_s]
        (first_s, before), (last_s, after) = inside[0], inside[-1]
        rate += (after - before) / (last_s - first_s)
    return rate


def within(ends_ms: Iterable[float], began_s: float, ended_s: float) -> int:
    return sum(began_s <= end_ms / 1000 <= ended_s for end_ms in ends_ms)


def penstock_form(spark: SparkSession, load: str) -> DataFrame:
    if load == WITH:
        return penstock_job(spark, slow(ROW_MS))
    return counted(spark.readStream.format("max-rate").option("keys", str(KEYS)).load(), ROWS)


def by_penstock(spark: SparkSession, load: str, form: str) -> Cost:
    options = FORMS["Penstock"][form] | (flip76.GATES[QUEUES] if load == WITH else {})
    with harness.running(penstock_form(spark, load), **options) as query:
        if load == WITH:
            flip76.settle(lambda: query.view().inflight_bytes)
        else:
            harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
            time.sleep(WARM_UP_S["Penstock"])
        return window(query, STAGES if load == WITH else 0, MEASURED_S[load])


def window(query: StreamingQuery, vertex: int, seconds: float) -> Cost:
    """Measure a window from now on by the rows of a vertex."""
    began_s = time.time()
    with CpuTime() as used:
        rate = harness.rate(query, vertex, seconds)
    ended_s = time.time()
    complete = [one for one in query.view().checkpoints if one.state is CheckpointState.COMPLETE]
    ends_ms = [one.triggered_ms + one.duration_ms for one in complete]
    return cost(rate, used.seconds, ended_s - began_s, within(ends_ms, began_s, ended_s))


def in_windows(spark: SparkSession, pairs: int) -> Iterator[dict[str, dict[str, Any]]]:
    """Pairs of windows of one query, with checkpoints and without in turns; who is first alternates."""
    with harness.running(penstock_form(spark, WITHOUT), **FORMS["Penstock"][SWITCHED]) as query:
        harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S["Penstock"])
        for number in range(pairs):
            pair = {}
            for form in harness.rotated((BASE, SWITCHED), number):
                query.setCheckpoints(interval=FORMS["Penstock"][form]["checkpoint.interval"])
                time.sleep(SWITCHED_S)
                pair[form] = asdict(window(query, 0, WINDOW_S))
            yield pair


def spark_form(spark: SparkSession, load: str) -> DataFrame:
    """Without backpressure its own aggregation, which hands on changed counts, and not every row."""
    if load == WITH:
        return flip76.spark_job(spark, slow(ROW_MS), SPARK_BATCH_ROWS[load])
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(SPARK_BATCH_ROWS[load]))
    numbers = source.option("numPartitions", str(harness.SLOTS)).load()
    rows = numbers.selectExpr(f"value * 7919 % {KEYS} AS key", "value").repartition(harness.SLOTS, "key")
    return rows.groupBy("key").agg(F.count("*"), F.sum("value"))


def by_spark(spark: SparkSession, load: str) -> Cost:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = spark_form(spark, load).writeStream.format("noop").outputMode("append" if load == WITH else "update")
        query = writer.option("checkpointLocation", location).start()
        try:
            done = wait_for_micro_batches(query, SPARK_WARM_UP_BATCHES)
            began_s = time.time()
            with CpuTime() as used:
                time.sleep(MEASURED_S[load])
                wait_for_micro_batches(query, done + 1 + SPARK_LEAST_BATCHES)  # but the one that was running
            ended_s = time.time()
            batches = [spark_restarts.batch(progress) for progress in query.recentProgress]
        finally:
            query.stop()
    inside = [one for one in batches if one[0] >= began_s]
    rate = sum(rows for _, _, rows in inside) / (inside[-1][1] - inside[0][0])
    return cost(rate, used.seconds, ended_s - began_s, len(inside))


def wait_for_micro_batches(query: SparkQuery, count: int) -> int:
    """Returns how many there are then. Looks seldom: a look costs the driver something."""
    until = time.monotonic() + SPARK_LIMIT_S
    while (progress := query.lastProgress) is None or progress["batchId"] + 1 < count:
        if time.monotonic() > until:
            raise TimeoutError(f"Spark had not done {count} micro-batches within {SPARK_LIMIT_S:.0f} s")
        time.sleep(0.2)
    return int(progress["batchId"]) + 1


# -- all of them, in turns --------------------------------------------------------------------------------------------

Runs = dict[str, dict[str, list[dict[str, Any]]]]
"""By engine and form, the costs of its rounds."""
Engines = dict[str, Callable[[str], Cost]]
"""A run of a form, by engine."""


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    loads: dict[str, Any] = {}
    with cluster.Cluster(harness.SLOTS) as peer:
        for load, rounds in ROUNDS.items():
            engines = engines_of(spark, peer, load)
            for engine in ("Flink", "Penstock"):
                engines[engine](BASE)  # the first job of a process pays for it
            runs = measured(engines, *((2, 0) if quick else (rounds, ALONE[load])), load)
            loads[load] = {"runs": runs, "summary": summaries(runs)}
    windows: dict[str, list[dict[str, Any]]] = {BASE: [], SWITCHED: []}
    for number, pair in enumerate(in_windows(spark, 3 if quick else WINDOWS), 1):
        print(f"  in windows, pair {number}: {pair}", flush=True)
        for form, one in pair.items():
            windows[form].append(one)
    found = {"windows": windows, "summary": summary(windows[SWITCHED], windows[BASE])}
    return {"flink": peer.version, "loads": loads, "in_windows": found}


def engines_of(spark: SparkSession, peer: cluster.Cluster, load: str) -> Engines:
    return {
        "Flink": lambda form: by_flink(peer, load, form),
        "Penstock": lambda form: by_penstock(spark, load, form),
        "Spark": lambda _: by_spark(spark, load),
    }


def measured(engines: Engines, rounds: int, alone: int, load: str) -> Runs:
    """``alone``: rounds without peers, behind the others."""
    runs: Runs = {engine: {form: [] for form in forms} for engine, forms in FORMS.items()}
    for number in range(rounds + alone):
        for engine, form in turns(number):
            if number >= rounds and engine != "Penstock":
                continue
            found = engines[engine](form)
            runs[engine][form].append(asdict(found))
            print(f"  {load}, round {number + 1}, {engine}, {form}: {found}", flush=True)
    return runs


def turns(number: int) -> list[tuple[str, str]]:
    """A round's runs. Those of an engine stay together, so that what slows the machine down slows them alike; engines
    and forms begin with another one each round."""
    engines = harness.rotated(FORMS, number)
    return [(engine, form) for engine in engines for form in harness.rotated(FORMS[engine], number)]


def summaries(runs: Runs) -> dict[str, dict[str, Any]]:
    """Return, for each engine that can run without checkpoints, the ratios to that by form."""
    return {
        engine: {form: summary(forms[form], forms[BASE]) for form in forms if form != BASE}
        for engine, forms in runs.items()
        if BASE in forms
    }


def summary(those: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """``rows``: ratios of rows a second, with ``throughput.bound``'s figures. ``cpu``: ratios of CPU seconds for as
    many rows, with theirs, but the bound is the upper one."""
    rates = [one["rows_per_second"] / other["rows_per_second"] for one, other in zip(those, base, strict=True)]
    cpu = [one["cpu_s_per_million"] / other["cpu_s_per_million"] for one, other in zip(those, base, strict=True)]
    cost = throughput.bound(cpu)
    upper = 2 * cost["mean"] - cost.pop("lower_bound")
    return {
        "rows": {"ratios": rates, **throughput.bound(rates)},
        "cpu": {"ratios": cpu, **cost, "upper_bound": upper},
    }
