"""``python -m benchmarks [NAME...] [--quick]``: run, keep raw results, rewrite docs/benchmarks.md."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks import backpressure, concurrency, exchange, harness, inflight_target, recovery, report, throughput

BENCHMARKS = {
    "exchange": exchange.run,
    "throughput": throughput.run,
    "backpressure": backpressure.run,
    "concurrency": concurrency.run,
    "inflight_target": inflight_target.run,
    "recovery": recovery.run,
}


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which ones: {', '.join(BENCHMARKS)} (default: all)")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Fewer rounds; prints, keeps nothing")] = False,
) -> None:
    chosen = names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    with harness.session() as spark:
        for name in chosen:
            print(f"{name} ...", flush=True)
            result = BENCHMARKS[name](spark, quick)
            print(f"{name}: {result}", flush=True)
            if not quick:
                harness.save(name, result)
    if not quick:
        report.write()


if __name__ == "__main__":
    typer.run(main)
