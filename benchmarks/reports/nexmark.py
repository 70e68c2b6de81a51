"""The section of ``docs/benchmarks.md`` on Nexmark."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from operator import truediv
from typing import Any

from benchmarks.lib.nexmark.generator import EVENTS_PER_SECOND
from benchmarks.reports.cells import machine, row, spread

PEERS = {"spark": "Spark", "flink": "Flink"}
TARGETS = {"spark": 2.0, "flink": 4.0}
"""Of the geometric mean of events by CPU second, to each peer's; none of a query may be under 1."""

Figures = dict[str, Sequence[float]]


def nexmark(result: dict[str, Any]) -> str:
    queries = result["queries"]
    peers = [peer for peer in PEERS if peer in next(iter(queries.values()))["seconds"]]
    engines = {"penstock": "Penstock", **{peer: PEERS[peer] for peer in peers}}
    flinks = [f"Flink {result['flink']}"] if "flink" in peers else []
    lines = [
        f"## Nexmark: {', '.join(sorted(engines.values()))}",
        "",
        "The queries of `benchmarks/lib/nexmark/queries`, for Flink of `benchmarks/peers/flink/queries`. Over",
        f"{result.get('checked', result['events']):,} events every engine's drained output equals Spark's batch",
        f"result, row for row. Then all read {result['events']:,} events to their end and write nowhere, in turns, two",
        f"slots each, warm (each engine has run {result.get('starts', 0)} queries before the first is measured, and",
        f"each query {result.get('warm_ups', 1)} times over the part just before): seconds from the start call",
        "(Flink: from the submission to a cluster that is up) to the query's end, and CPU seconds of each one's own",
        f"processes. The events are {EVENTS_PER_SECOND:,} a second of event time, which decides how long rows are",
        f"kept. Spark's micro-batches have {result.get('spark_batch', result['events']):,} events.",
        "",
        *_figures(queries, engines),
        "",
        *_ratios(queries, peers),
        "",
        *_options(result),
        *(_UNLIKE_FLINK if flinks else ["Not measured here: Flink.", ""]),
        f"({', '.join([machine(result), *flinks])})",
        "",
    ]
    return "\n".join(lines)


_UNLIKE_FLINK = [
    "What is not alike. PyPI has no Parquet for Flink: it reads the bare columns of the same events from files that",
    "need no decoding. Penstock and Spark read Parquet that is neither compressed nor has dictionaries, which comes",
    "next to that and is still more to do: of Penstock's q0 it is more than half. Flink has its state in the heap",
    "(4 GB for each TaskManager: its default is too little for q7), mini-batches and object reuse, as Nexmark's own",
    "configuration has them. It ends a query by closing all its windows; the others leave those open that may still",
    "get rows. Flink and Penstock take a checkpoint every 10 s, Spark one a micro-batch. The start of a query is in",
    "all figures: of the shortest it is much.",
    "",
    "Where Penstock's CPU goes in the queries with less than 4 x Flink's events, by profiles of slots and of their",
    "operators in one process. q0, q1: slots take 130 to 180 ns an event, and Arrow's Parquet reader alone 103 to",
    "151 for the same rows (over 2,000,000 events, beside each other; the machine differs by as much from minute to",
    "minute). Of every query: to start it takes 0.1 to 0.3 s of the driver and 0.2 to 0.7 s of its JVM, of which 40",
    "to 65 % were the JVM's compiler threads in a session's first 30 starts. q14, q21, q22: Arrow's kernels; an",
    "address that a pattern with groups matches costs RE2 340 ns, one that it does not match 150. q3, q8, q20: each",
    "side of the join reads the events for itself, as Spark's plan has it; over 4,000,000 events, told nothing,",
    "sources took 0.58 of 0.86 s of the threads of q3's slots, 0.32 of 0.76 of q8's and 1.8 of 4.8 of q20's. The",
    "rest is the join: a batch of 600 rows costs it 1.7 ms in q3, one of 3,400 rows 3.2 ms in q8, in a flat profile",
    "of some hundred calls of numpy and Arrow, and in q20, with 12,000 at a time, a row 0.5 µs to add and 0.2 to",
    "forget. q5: counts by auction and window, edited, taken when due and collected in lists. What would change it:",
    "one reader for both sides of a join, with a watermark for each; the index and the tables' columns in a",
    "compiled language, where Penstock is Python; and larger batches yet, for which barriers would wait.",
    "",
]


def _options(result: dict[str, Any]) -> list[str]:
    """Return the options of Penstock besides its parallelism."""
    told = ", ".join(f"`{key}` = {value}" for key, value in result.get("options", {}).get("penstock", {}).items())
    if not told:
        return []
    return [
        f"Penstock was told {told}: operators get more rows at once, as with",
        "Flink's mini-batches, which wait for 2 s.",
        "",
    ]


def _figures(queries: dict[str, Any], engines: dict[str, str]) -> list[str]:
    heads = [f"{name}, {unit}" for unit in ("s", "CPU s") for name in engines.values()]
    lines = [row("query", "rows", *heads), row("---", *["---:"] * (1 + len(heads)))]
    for name, found in queries.items():
        cells = [spread(found[what][engine]) for what in ("seconds", "cpu_seconds") for engine in engines]
        lines.append(row(name, f"{found['rows']:,}", *cells))
    return lines


def _ratios(queries: dict[str, Any], peers: Sequence[str]) -> list[str]:
    """Above 1: Penstock's are more."""
    columns = [(what, peer) for what in ("seconds", "cpu_seconds") for peer in peers]
    named = {"seconds": "events/s", "cpu_seconds": "events by CPU second"}
    lines = [
        row("query", *(f"{named[what]} to {PEERS[peer]}'s" for what, peer in columns)),
        row("---", *["---:"] * len(columns)),
    ]
    for name, found in queries.items():
        lines.append(row(name, *(spread(ratios(found[what], peer)) for what, peer in columns)))
    lines.append(row("geometric mean", *(f"**{mean(queries, what, peer):.2f}**" for what, peer in columns)))
    targets = ("" if what == "seconds" else f"{TARGETS[peer]:.0f}, none under 1" for what, peer in columns)
    return [*lines, row("target", *targets)]


def ratios(figures: Figures, peer: str) -> list[float]:
    """Return the ratio of each round."""
    return [*map(truediv, figures[peer], figures["penstock"])]


def mean(queries: dict[str, Any], what: str, peer: str) -> float:
    """Geometric, over the queries' medians."""
    medians = [statistics.median(ratios(one[what], peer)) for one in queries.values()]
    return statistics.geometric_mean(medians)
