"""Cost of the REST service, its metrics and the web UI for a running query, and their speed.

Four parts, each with a reference in the same run. A query's throughput with the service, Prometheus and an open page,
and without. Its checkpoints with 200 requests a second, without, and with as many to another process. A page of a long
history compared with one of a short one. The first paint of a large query compared with that of an empty page
(``web_ui_first_paint``).
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock
from benchmarks.lib import harness
from benchmarks.suites import exchange, web_ui_first_paint
from benchmarks.suites.rest_service_clients import Clients
from benchmarks.suites.rest_service_control import ControlService
from penstock.coordinator.history_writer import history_entry
from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.history.segment_writer import MERGED_CHECKPOINTS, SegmentWriter
from penstock.snapshots.store.stores import store_at
from tests.support.rest.made_up_query import MadeUpQuery

SETTLE_S = 1.5
"""A server has started, and figures of subtasks, half a second old at most, are all from behind that."""
RATE = 200.0
"""Requests a second, of all ``MIXED`` in turn."""
PACED_ROWS = 200_000
"""A second: what leaves the machine room."""
FORMS = ("without", "elsewhere", "with")
"""Of checkpoints: nobody asks; the same requests go to a service that has nothing to do with the query; they go to its
driver."""
ALONE = FORMS[0]
JOBS = ("paced", "saturated")
NEWEST = 100
HISTORIES = tuple(NEWEST + merged * MERGED_CHECKPOINTS for merged in (0, 8, 78))
"""The newest of each are merged alike: a driver that has just merged has fewer files to read than one about to."""
RESAMPLES = 10_000


@dataclass(frozen=True)
class Length:
    """Length of a run. Pairs and rounds are of windows of one query, one of each form; ``visits`` are of each page."""

    warm_up_s: float
    queries: int
    pairs: int
    window_s: float
    checkpoint_queries: int
    checkpoint_rounds: int
    checkpoint_window_s: float
    visits: int
    paintings: int


FULL = Length(5.0, 2, 24, 5.0, 1, 6, 10.0, 200, 20)
QUICK = Length(1.0, 1, 1, 2.0, 1, 1, 2.0, 10, 3)


@contextmanager
def _steady(df: DataFrame, warm_up_s: float) -> Iterator[StreamingQuery]:
    """A query with a checkpoint a second, past its beginning: so the driver has checkpoints to show."""
    with harness.running(df, mode="update", **{"checkpoint.interval": "1s"}) as query:
        harness.wait_for("the first checkpoint", lambda: bool(_complete(query)))
        time.sleep(warm_up_s)
        yield query


def page_paths(query_id: str) -> dict[str, str]:
    """Return the paths that an open page of the dataflow requests: main.js, page-graph.js."""
    base = f"/api/v1/queries/{query_id}"
    return {"query": base, "newest": f"{base}/checkpoints?limit=5", "graph": f"{base}/graph"}


def mixed_paths(query_id: str, checkpoint: int) -> dict[str, str]:
    base = f"/api/v1/queries/{query_id}"
    return {
        **page_paths(query_id),
        "queries": "/api/v1/queries",
        "checkpoints": f"{base}/checkpoints",
        "checkpoint": f"{base}/checkpoints/{checkpoint}",
        "exceptions": f"{base}/exceptions",
        "logs": f"{base}/logs",
        "snapshots": f"{base}/snapshots",
        "metrics": "/metrics",
    }


# Throughput


def source_rate(query: StreamingQuery, seconds: float) -> float:
    """Source rows per second: each subtask's between two of its reports, by its own clock."""
    first = _source_figures(query)
    time.sleep(seconds)
    harness.wait_for(
        "every subtask of the source to report", lambda: all(_source_figures(query)[i][1] > first[i][1] for i in first)
    )
    last = _source_figures(query)
    return sum((rows - first[i][0]) / (lived_s - first[i][1]) for i, (rows, lived_s) in last.items())


def _source_figures(query: StreamingQuery) -> dict[int, tuple[int, float]]:
    """Return, by subtask, its rows and its age."""
    found = (subtask.metrics for subtask in query.view().subtasks if subtask.metrics.vertex == 0)
    return {m.index: (m.rows_out, (m.busy_ms + m.backpressured_ms + m.idle_ms) / 1000) for m in found}


def _cpu(query: StreamingQuery) -> dict[str, float]:
    """CPU seconds so far: of this process, the driver; of the query's slots; of all that we have not started."""
    ours = dict(_cpu_of(process) for process in (psutil.Process(), *psutil.Process().children(recursive=True)))
    machine = psutil.cpu_times()
    busy_s = machine.user + machine.nice + machine.system + machine.irq + machine.softirq + machine.steal
    slots_s = sum(ours[slot.pid] for slot in query.view().slots)
    return {"driver": time.process_time(), "slots": slots_s, "others": busy_s - sum(ours.values())}


def _cpu_of(process: psutil.Process) -> tuple[int, float]:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:  # it has just ended
        return process.pid, 0.0
    return process.pid, times.user + times.system


def _figures(query: StreamingQuery, seconds: float) -> dict[str, Any]:
    before = _cpu(query)
    rate = source_rate(query, seconds)
    return {"rate": rate, "cpu": {who: used_s - before[who] for who, used_s in _cpu(query).items()}}


def _window(query: StreamingQuery, clients: Clients, served: bool, seconds: float) -> dict[str, Any]:
    """One window: throughput, and who used the processors meanwhile."""
    if not served:
        time.sleep(SETTLE_S)
        return _figures(query, seconds)
    with penstock.serve(token="") as server:
        clients.begin(server.url, SETTLE_S + seconds, page_paths(query.id))
        time.sleep(SETTLE_S)
        figures = _figures(query, seconds)
        found = clients.result()
        return {**figures, "latency_ms": found["latency_ms"], "clients_s": found["cpu_s"]}


def throughput_rounds(spark: SparkSession, length: Length) -> list[dict[str, Any]]:
    """Pairs of windows of one query, with the service and without; which comes first alternates."""
    rounds = []
    with Clients() as clients, _steady(exchange.exchanged(spark), length.warm_up_s) as query:
        _window(query, clients, True, SETTLE_S)  # the first server of a process pays for imports
        for number in range(length.pairs):
            forms = (True, False) if number % 2 else (False, True)
            found = {served: _window(query, clients, served, length.window_s) for served in forms}
            rounds.append({"with": found[True], "without": found[False], "window_s": length.window_s})
    return rounds


def throughput_summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Ratios are medians of the pairs'; shares are means, of the whole machine."""
    machine_s = rounds[0]["window_s"] * (os.cpu_count() or 1)
    ratios = [one["with"]["rate"] / one["without"]["rate"] for one in rounds]
    per_cpu = [_per_cpu(one["with"]) / _per_cpu(one["without"]) for one in rounds]
    driver_s = [one["with"]["cpu"]["driver"] - one["without"]["cpu"]["driver"] for one in rounds]
    clients_s = [one["with"]["clients_s"] for one in rounds]
    latencies = _by_name(one["with"]["latency_ms"] for one in rounds)
    return {
        "rows_per_second": {form: [one[form]["rate"] for one in rounds] for form in ("without", "with")},
        "ratio": bootstrap(statistics.median, ratios),
        "deviation": statistics.pstdev(ratios),
        "per_cpu": bootstrap(statistics.median, per_cpu),
        "per_cpu_deviation": statistics.pstdev(per_cpu),
        "driver_share": bootstrap(lambda chosen: statistics.fmean(chosen) / machine_s, driver_s),
        "clients_share": statistics.fmean(clients_s) / machine_s,
        "share": {form: _shares([one[form] for one in rounds], machine_s) for form in ("without", "with")},
        "latency_ms": {name: harness.quantiles(found) for name, found in latencies.items()},
    }


def _per_cpu(window: dict[str, Any]) -> float:
    """Rows for a CPU second of the slots: whoever else was on the machine is not in it."""
    return float(window["rate"] / window["cpu"]["slots"])


def _shares(windows: Sequence[dict[str, Any]], machine_s: float) -> dict[str, float]:
    return {who: statistics.fmean(one["cpu"][who] for one in windows) / machine_s for who in windows[0]["cpu"]}


def bootstrap(
    figure: Callable[[Any], float], values: Sequence[Any], resamples: int = RESAMPLES, level: float = 0.95
) -> dict[str, float]:
    """A figure of rounds, and its one-sided bounds, each at ``level``: the rounds are drawn anew, with replacement."""
    generator = random.Random(1)
    drawn = sorted(figure(generator.choices(values, k=len(values))) for _ in range(resamples))
    rank = round((1 - level) * resamples)
    return {"n": len(values), "value": figure(values), "lower": drawn[rank], "upper": drawn[-1 - rank]}


def _by_name(latencies: Iterable[dict[str, list[float]]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in latencies:
        for name, values in one.items():
            found.setdefault(name, []).extend(values)
    return found


# Checkpoints


def paced(spark: SparkSession) -> DataFrame:
    """Rows by the clock, a keyed count and sum: the machine has room beside it."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", PACED_ROWS).load()
    keyed = rows.select((F.col("value") % 10_000).alias("key"), "value").repartition("key")
    return keyed.groupBy("key").agg(F.count("*").alias("rows"), F.sum("value").alias("total"))


@dataclass(frozen=True)
class Beside:
    """Target of requests next to a query: its own driver, or a service that has nothing to do with it."""

    clients: Clients
    driver_url: str
    elsewhere: ControlService

    def ask(self, form: str, query: StreamingQuery, seconds: float) -> None:
        newest = max(one.checkpoint for one in _complete(query))
        url, paths = self.driver_url, mixed_paths(query.id, newest)
        if form == "elsewhere":
            url, paths = self.elsewhere.url, mixed_paths(self.elsewhere.query_id, self.elsewhere.newest)
        self.clients.begin(url, seconds, paths, RATE)


def checkpoint_rounds(spark: SparkSession, job: str, length: Length) -> list[dict[str, Any]]:
    """One window of each form of one query, in rotating order: the durations of the checkpoints triggered in each."""
    df = paced(spark) if job == "paced" else exchange.exchanged(spark)
    rounds = []
    with penstock.serve(token="") as server, Clients() as clients, _steady(df, length.warm_up_s) as query:
        facts = query.facts()
        with ControlService(facts.location, len(facts.shape.vertices), harness.SLOTS) as elsewhere:
            beside = Beside(clients, server.url, elsewhere)
            for number in range(length.checkpoint_rounds):
                order = FORMS[number % len(FORMS) :] + FORMS[: number % len(FORMS)]
                rounds.append({form: _checkpoint_window(query, beside, form, length) for form in order})
    return rounds


def _checkpoint_window(query: StreamingQuery, beside: Beside, form: str, length: Length) -> dict[str, Any]:
    if form != ALONE:
        beside.ask(form, query, SETTLE_S + length.checkpoint_window_s)
    time.sleep(SETTLE_S)
    from_ms, driver_s, elsewhere_s = time.time() * 1000, time.process_time(), beside.elsewhere.cpu_s()
    time.sleep(length.checkpoint_window_s)
    until_ms, seconds = time.time() * 1000, length.checkpoint_window_s
    driver_s, elsewhere_s = time.process_time() - driver_s, beside.elsewhere.cpu_s() - elsewhere_s
    harness.wait_for("the last checkpoint to end", lambda: not _pending(query, until_ms))
    durations = [one.duration_ms for one in _complete(query) if from_ms <= one.triggered_ms < until_ms]
    cores = {"driver": driver_s / seconds, "elsewhere": elsewhere_s / seconds, "clients": 0.0}
    figures: dict[str, Any] = {"duration_ms": durations, "cores": cores}
    if form != ALONE:
        asked = beside.clients.result()
        cores["clients"] = asked["cpu_s"] / (SETTLE_S + seconds)
        figures["latency_ms"] = asked["latency_ms"]
    return figures


def _pending(query: StreamingQuery, until_ms: float) -> list[CheckpointView]:
    known = query.view().checkpoints
    return [one for one in known if one.state is CheckpointState.PENDING and one.triggered_ms < until_ms]


def _complete(query: StreamingQuery) -> list[CheckpointView]:
    return [one for one in query.view().checkpoints if one.state is CheckpointState.COMPLETE]


def checkpoint_summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the summary by form. The bounds resample whole rounds: checkpoints of one window are not independent."""

    def ratio_to(base: str, form: str) -> dict[str, dict[str, float]]:
        def of(quantile: str) -> Callable[[Any], float]:
            return lambda chosen: _pooled(chosen, form)[quantile] / _pooled(chosen, base)[quantile]

        return {quantile: bootstrap(of(quantile), rounds) for quantile in ("median", "p99")}

    found: dict[str, Any] = {}
    for form in FORMS:
        windows = [one[form] for one in rounds]
        cores = {who: statistics.mean(one["cores"][who] for one in windows) for who in windows[0]["cores"]}
        found[form] = {"duration_ms": _pooled(rounds, form), "cores": cores}
        if form != ALONE:
            latencies = _by_name(one["latency_ms"] for one in windows)
            found[form] |= {
                "ratio": ratio_to(ALONE, form),
                "ratio_to_elsewhere": ratio_to("elsewhere", form),
                "latency_ms": {name: harness.quantiles(values) for name, values in latencies.items()},
                "all_latency_ms": harness.quantiles([value for values in latencies.values() for value in values]),
            }
    return found


def _pooled(rounds: Sequence[dict[str, Any]], form: str) -> dict[str, float]:
    return harness.quantiles([duration for one in rounds for duration in one[form]["duration_ms"]])


# History


def long_ago(checkpoints: int, location: Path) -> QueryFacts:
    """A query whose driver was started anew: all of its checkpoints are in the history. It is filled as drivers leave
    it at the default interval: old ones merged, each of the newest in a file of its own until that is due."""
    query = MadeUpQuery(f"6f1c8a52-0000-4000-8000-{checkpoints:012d}", vertices=10, parallelism=2, checkpoints=0)
    location.mkdir()
    keeper = SegmentWriter(store_at(str(location)))
    merged = (checkpoints - NEWEST) // MERGED_CHECKPOINTS * MERGED_CHECKPOINTS
    for first in range(1, merged + 1, MERGED_CHECKPOINTS):
        keeper.append([history_entry(query.checkpoint_at(first + number)) for number in range(MERGED_CHECKPOINTS)])
    for number in range(max(0, merged) + 1, checkpoints + 1):
        keeper.append([history_entry(query.checkpoint_at(number))])
        keeper.compact()
    facts = query.facts()
    view = replace(facts.view, checkpoints=())
    return replace(facts, location=str(location), view=view)


def history(visits: int) -> dict[str, Any]:
    """Each page in turn, 50 checkpoints each, 50 pages a second: milliseconds of an answer."""
    with (
        TemporaryDirectory(prefix="penstock-bench-") as folder,
        Clients() as clients,
        penstock.serve(token="") as server,
    ):
        known = {count: long_ago(count, Path(folder) / str(count)) for count in HISTORIES}
        paths = {f"{count} {place}": path for count in HISTORIES for place, path in _pages(known[count], count)}
        with mock.patch.object(ACTIVE_QUERIES, "known", return_value=list(known.values())):
            clients.begin(server.url, visits * len(paths) / 50, paths, 50.0)
            latency_ms = clients.result()["latency_ms"]
    return {name: _beside_shortest(name, latency_ms) for name in paths}


def _beside_shortest(name: str, latency_ms: dict[str, list[float]]) -> dict[str, Any]:
    """Return the results with the ratio of the median to that of the same page of the shortest history."""
    shortest = latency_ms[f"{HISTORIES[0]} {name.split()[1]}"]
    turns = list(zip(latency_ms[name], shortest, strict=False))
    return {**harness.quantiles(latency_ms[name]), "ratio": bootstrap(_ratio_of_medians, turns)}


def _ratio_of_medians(turns: Sequence[tuple[float, float]]) -> float:
    long, short = zip(*turns, strict=True)
    return statistics.median(long) / statistics.median(short)


def _pages(facts: QueryFacts, count: int) -> list[tuple[str, str]]:
    base = f"/api/v1/queries/{facts.id}/checkpoints"
    befores = {"beginning": count + 1, "middle": count // 2 + 1, "end": 51}
    return [(place, f"{base}?before={before}") for place, before in befores.items()]


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    length = QUICK if quick else FULL
    rounds = [one for _ in range(length.queries) for one in throughput_rounds(spark, length)]
    result: dict[str, object] = {"throughput": throughput_summary(rounds)}
    print(f"  throughput: {result['throughput']}", flush=True)
    checkpoints: dict[str, Any] = {}
    for job in JOBS[:1] if quick else JOBS:
        rounds = [one for _ in range(length.checkpoint_queries) for one in checkpoint_rounds(spark, job, length)]
        checkpoints[job] = checkpoint_summary(rounds)
        print(f"  checkpoints, {job}: {checkpoints[job]}", flush=True)
    result["checkpoints"] = checkpoints
    result["history"] = history(length.visits)
    print(f"  history: {result['history']}", flush=True)
    result["paint"] = web_ui_first_paint.run(length.paintings)
    return result
