"""The section of ``docs/benchmarks.md`` on Nexmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from operator import truediv
from typing import Any

from benchmarks.report_cells import machine, row, spread

PEERS = {"spark": "Spark", "flink": "Flink"}
TARGETS = {"spark": 2.0, "flink": 4.0}
"""Of the geometric mean of events by CPU second, to each peer's; none of a query may be under 1."""

Figures = dict[str, Sequence[float]]


def nexmark(result: dict[str, Any]) -> str:
    queries = result["queries"]
    lines = [
        "## Nexmark: Flink, Penstock and Spark",
        "",
        "The queries of `benchmarks/nexmark/queries`, Flink's in `benchmarks/flink/queries`. Over",
        f"{result['checked']:,} events the drained output of Penstock and of Flink equals Spark's batch result, row",
        f"for row. Then all three read {result['events']:,} events to their end and write nowhere, in turns, two slots",
        "each, warm: seconds from the start call (Flink: from the submission to a cluster that is up) to the query's",
        f"end, and CPU seconds of each one's own processes. The events are {result['events_per_second']:,} a second of",
        f"event time, which decides how long rows are kept. Flink {result['flink']}: heap state, mini-batches and",
        "object reuse, as Nexmark's own configuration has them. Spark: micro-batches of",
        f"{result['spark_batch']:,} events.",
        "",
        *_rates(queries),
        "",
        *_ratios(queries),
        "",
        "What is not alike. Penstock and Spark read Parquet; PyPI has no Parquet for Flink, which reads the bare",
        "columns of the same events from files that need no decoding, and so has less to do. Flink ends a query by",
        "closing all its windows; the others leave those open that may still get rows. Flink and Penstock take a",
        "checkpoint every 10 s, Spark one a micro-batch. The start of a query is in all figures: of the shortest it is",
        "much.",
        "",
        f"({machine(result)}, Flink {result['flink']})",
        "",
    ]
    return "\n".join(lines)


def _rates(queries: dict[str, Any]) -> list[str]:
    names = {"penstock": "Penstock", **PEERS}
    lines = [
        row(
            "query", "rows", *(f"{name}, s" for name in names.values()), *(f"{name}, CPU s" for name in names.values())
        ),
        row("---", *["---:"] * (1 + 2 * len(names))),
    ]
    for name, found in queries.items():
        seconds = [spread(found["seconds"][engine], digits=1) for engine in names]
        cpu = [spread(found["cpu_seconds"][engine], digits=1) for engine in names]
        lines.append(row(name, f"{found['rows']:,}", *seconds, *cpu))
    return lines


def _ratios(queries: dict[str, Any]) -> list[str]:
    """Above 1: Penstock's are more."""
    heads = [f"{what} to {name}'s" for what in ("events/s", "events by CPU second") for name in PEERS.values()]
    lines = [row("query", *heads), row("---", *["---:"] * len(heads))]
    for name, found in queries.items():
        cells = [spread(ratios(found[what], peer)) for what in ("seconds", "cpu_seconds") for peer in PEERS]
        lines.append(row(name, *cells))
    means = [f"**{mean(queries, what, peer):.2f}**" for what in ("seconds", "cpu_seconds") for peer in PEERS]
    targets = ["", "", *(f"{target:.0f}, none under 1" for target in TARGETS.values())]
    return [*lines, row("geometric mean", *means), row("target", *targets)]


def ratios(figures: Figures, peer: str) -> list[float]:
    """Of each round."""
    return [*map(truediv, figures[peer], figures["penstock"])]


def mean(queries: dict[str, Any], what: str, peer: str) -> float:
    """Geometric, over the queries' medians."""
    medians = [statistics.median(ratios(one[what], peer)) for one in queries.values()]
    return statistics.geometric_mean(medians)
