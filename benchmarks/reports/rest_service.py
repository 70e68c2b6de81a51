"""The section of ``docs/benchmarks.md`` on the REST service, its metrics and the web UI."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import machine, row, times, times_p99

TARGET_PAINT_MS = 1000


def rest_service(result: dict[str, Any]) -> str:
    parts = (_throughput, _checkpoints, _history, _paint)
    lines = [line for part, text in zip(parts, _PARTS, strict=True) for line in part(result[text])]
    note = [result["note"], ""] if "note" in result else []  # where not all parts are of one run
    head = "## REST, metrics and web UI beside a running query"
    return "\n".join([head, "", *lines, *note, f"({machine(result)})", ""])


_PARTS = ("throughput", "checkpoints", "history", "paint")


def _percent(share: float) -> str:
    return f"{share * 100:.2f} %"


def _throughput(found: dict[str, Any]) -> list[str]:
    share, shares = found["driver_share"], found["share"]
    rates = [statistics.median(found["rows_per_second"][form]) / 1e6 for form in ("without", "with")]
    slowest = max(found["latency_ms"].values(), key=lambda one: one["median"])
    others = [_percent(shares[form]["others"]) for form in ("without", "with")]
    lines = [
        "What they cost: the query of *What checkpoints cost without backpressure*, which keeps both cores busy, with",
        "a checkpoint a second. In half of the windows `penstock.serve()` runs, a page of the dataflow is open (it",
        "asks three things every 1.5 s; there is no browser here) and Prometheus scrapes every 5 s. In the other half",
        "there is no service. Windows are of 5 s; which of a pair is first alternates.",
        "Ratios are the medians of the pairs'; bounds are one-sided, at 95 %, from pairs drawn anew with replacement.",
        "Windows beside each other differ by far more than is looked for. So it is looked for in CPU time, too: what",
        "the driver uses more than without is a share of the machine that slots cannot have, and rows for a CPU second",
        "of theirs say what they do with the rest. The target is a cost of at most 1 %.",
        "",
        row("", "pairs", "without", "with", "ratio", "deviation of pairs", "cost", "upper 95 % bound"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    rows = (
        ("M rows/s", found["ratio"], found["deviation"], [f"{rate:.1f}" for rate in rates]),
        ("rows for a CPU second of the slots", found["per_cpu"], found["per_cpu_deviation"], ["", ""]),
    )
    for name, ratio, deviation, cells in rows:
        cost = [_percent(1 - ratio["value"]), f"**{_percent(1 - ratio['lower'])}**"]
        lines.append(row(name, ratio["n"], *cells, f"{ratio['value']:.4f}", f"{deviation:.3f}", *cost))
    drivers = [_percent(shares[form]["driver"]) for form in ("without", "with")]
    lines.append(
        row(
            "the driver's CPU",
            share["n"],
            *drivers,
            "",
            "",
            _percent(share["value"]),
            f"**{_percent(share['upper'])}**",
        )
    )
    return [
        *lines,
        row("the clients' CPU", "", "", _percent(found["clients_share"]), "", "", "", ""),
        row("CPU of what was not ours", "", *others, "", "", "", ""),
        "",
        f"The slowest kind of request took {times_p99(slowest)} ms beside it (min / median / p99 / max).",
        "",
    ]


def _checkpoints(found: dict[str, Any]) -> list[str]:
    lines = [
        "Checkpoints, one a second, beside 200 requests a second: an open loop, they are sent when they are due; ten",
        "kinds of GET in turn, 16 connections, from a process on the same two cores. `without`: nobody asks.",
        "`elsewhere`: the same requests to the same service in a process that has nothing to do with the query, so",
        "that the two cores have as much to do. `with`: they are the query's own driver's to answer. Windows of 10 s",
        "in rotating order, of one query each time: `saturated` is the one above; `paced` has the same aggregation",
        "over 200,000 rows a second, which leave the machine room. Bounds of ratios, at 5 % and 95 %, are from rounds",
        "of windows drawn anew; a p99 of fewer than 100 is the largest. Milliseconds, min / median / p99 / max. The",
        "target is a ratio of 1.",
        "",
        row(
            "query",
            "",
            "checkpoints",
            "n",
            "medians to `without`",
            "p99",
            "medians to `elsewhere`",
            "requests took",
            "cores of who answers",
            "who asks",
        ),
        row("---", "---", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for job, forms in found.items():
        for form, one in forms.items():
            asked = [""] * 6
            if form != "without":
                ratios = [_between(one["ratio"][name]) for name in ("median", "p99")]
                ratios.append(_between(one["ratio_to_elsewhere"]["median"]) if form == "with" else "")
                cores = one["cores"]["driver" if form == "with" else "elsewhere"]
                asked = [*ratios, times_p99(one["all_latency_ms"]), f"{cores:.2f}", f"{one['cores']['clients']:.2f}"]
            lines.append(row(job, form, times_p99(one["duration_ms"]), one["duration_ms"]["n"], *asked))
    return [*lines, ""]


def _between(ratio: dict[str, float]) -> str:
    return f"**{ratio['value']:.2f}** ({ratio['lower']:.2f} to {ratio['upper']:.2f})"


def _history(found: dict[str, Any]) -> list[str]:
    """Keys are ``<checkpoints> <place>``."""
    sizes = list(dict.fromkeys(name.split()[0] for name in found))
    lines = [
        "A page of 50 checkpoints of a history on a local disk, over HTTP, by how many checkpoints the history has:",
        "milliseconds, min / median / p99 / max, and the ratio of the medians to that of the shortest history, with",
        "95 % bounds of either side. The target is no slowing: 1.",
        "",
        row("checkpoints", "beginning", "ratio", "middle", "ratio", "end", "ratio"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for size in sizes:
        cells = []
        for place in ("beginning", "middle", "end"):
            one = found[f"{size} {place}"]
            cells += [times_p99(one), "" if size == sizes[0] else _between(one["ratio"])]
        lines.append(row(f"{int(size):,}", *cells))
    return [*lines, ""]


def _paint(found: dict[str, Any]) -> list[str]:
    lines = [
        "The first painting of the dataflow of 50 vertices with 16 subtasks each, in a headless Chromium on loopback"
    ]
    if "skipped" in found:
        return [*lines, found["skipped"] + ".", ""]
    empty, query = found["empty"], found["query"]
    return [
        *lines,
        f"with nothing in its cache, {query['n']} times in turn with an empty page of one script from the same server:",
        f"from the start of the navigation to all vertices painted {times(query)} ms (min / median / max), the",
        f"empty page {times(empty)} ms: {query['median'] / empty['median']:.1f} times as long. The target is",
        f"{TARGET_PAINT_MS} ms.",
        "",
    ]
