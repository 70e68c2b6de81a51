"""``python -m benchmarks [NAME...]``: run, keep raw results, rewrite docs/benchmarks.md and its charts."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks import quick
from benchmarks.lib import harness
from benchmarks.peers import against_spark
from benchmarks.reports import page as report
from benchmarks.suites import (
    ablations,
    backpressure,
    checkpoint_cost,
    concurrency,
    coordinator,
    exchange,
    file_sink,
    flip76,
    incremental_peers,
    inflight_limit,
    inflight_target,
    isolation,
    keyed,
    large_state,
    latency,
    latency_under_load,
    nexmark,
    parquet_jobs,
    progress,
    queues_and_skew,
    recovery,
    recovery_peers,
    rescale,
    rest_service,
    scaling,
    snapshot_catalog,
    snapshot_formats,
    soak,
    state,
    state_as_data,
    state_rocksdb,
    stateful_python,
    throughput,
    timers,
)

BENCHMARKS = {
    "exchange": exchange.run,
    "throughput": throughput.run,
    "backpressure": backpressure.run,
    "concurrency": concurrency.run,
    "inflight_target": inflight_target.run,
    "inflight_limit": inflight_limit.run,
    "recovery": recovery.run,
    "parquet_jobs": parquet_jobs.run,
    "isolation": isolation.run,
    "file_sink": file_sink.run,
    "state": state.run,
    "state_rocksdb": state_rocksdb.run,
    "keyed": keyed.run,
    "large_state": large_state.run,
    "rescale": rescale.run,
    "snapshot_catalog": snapshot_catalog.run,
    "snapshot_formats": snapshot_formats.run,
    "state_as_data": state_as_data.run,
    "nexmark": nexmark.run,
    "stateful_python": stateful_python.run,
    "timers": timers.run,
    "latency": latency.run,
    "rest_service": rest_service.run,
    "flip76": flip76.run,
    "queues_and_skew": queues_and_skew.run,
    "progress": progress.run,
    "latency_under_load": latency_under_load.run,
    "ablations": ablations.run,
    "checkpoint_cost": checkpoint_cost.run,
    "recovery_peers": recovery_peers.run,
    "incremental_peers": incremental_peers.run,
    "scaling": scaling.run,
    "coordinator": coordinator.run,
    "soak": soak.run,
}
MASTERS = dict.fromkeys(
    ("parquet_jobs", "nexmark", "stateful_python", "latency", "latency_under_load"), against_spark.MASTER
)
MASTERS["scaling"] = scaling.MASTER
CONFS = {"soak": soak.CONF}
"""What a benchmark's session is told besides."""


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which ones: {', '.join(BENCHMARKS)} (default: all)")
    ] = None,
    short: Annotated[
        bool,
        typer.Option("--quick", help="Fewer rounds; prints, keeps nothing. Without a name: the ratios of all days."),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only say which ones there are.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the page and its charts from what is kept.")] = False,
) -> None:
    """Run the benchmarks, keep what they found in benchmarks/results/, and write docs/benchmarks.md and its charts."""
    if listed:
        print("\n".join(BENCHMARKS))
    elif page:
        report.write()
    elif short and not names:
        quick.run()
    else:
        measure(names, short)


def measure(names: list[str] | None, short: bool) -> None:
    chosen = names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    for name in chosen:
        print(f"{name} ...", flush=True)
        with harness.session(MASTERS.get(name, harness.MASTER), CONFS.get(name)) as spark:
            result = BENCHMARKS[name](spark, short)
        print(f"{name}: {result}", flush=True)
        if not short:
            harness.save(name, result)
    if not short:
        report.write()


if __name__ == "__main__":
    typer.run(main)
