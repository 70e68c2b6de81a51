"""The README's table: of what was measured against both peers, the figures that most users ask for first."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import ROOT
from benchmarks.reports import nexmark as report_nexmark
from benchmarks.reports.cells import row
from benchmarks.reports.flip76 import median_ms
from benchmarks.suites.progress import FLIP_547, QUEUES, share

README = ROOT / "README.md"
BEGIN, END = "<!-- begin of what `make bench` writes -->\n", "<!-- end of what `make bench` writes -->\n"
ROW_MS = "1"
"""Of the sink, in the test plan of FLIP-76."""
MODES = {
    "unaligned": ("unaligned", "unaligned"),
    "aligned for 200 ms (Flink: 100) at most": ("default", "100 ms time-out"),
    "aligned": ("aligned", "aligned"),
}
"""Of checkpoints: Penstock's, which has the second by default, and Flink's."""

COSTS = (
    ("with backpressure", "an unaligned checkpoint", "unaligned", "unaligned"),
    ("without backpressure", "an unaligned checkpoint", "unaligned", "unaligned"),
    ("without backpressure", "a checkpoint as shipped (Flink: aligned)", "default", "aligned"),
)
"""The load; what of, in words, as Penstock calls it, and as Flink does. With backpressure hardly one of Flink's aligned
ones is complete while it is measured."""

Result = dict[str, Any]
PEERS = ("Flink", FLIP_547, "Spark")

Line = tuple[str, str, str, str, str]
"""What; then Penstock's figure, and those of ``PEERS``. Flink with FLIP-547 is measured where it makes a difference."""


def _checkpoints(result: Result) -> Iterator[Line]:
    table = result["row_ms"][ROW_MS]
    flink, penstock = table["engines"]["Flink"], table["engines"][QUEUES]
    batch = f"{statistics.median(table['spark']['micro_batch_ms']) / 1000:.1f} s a micro-batch"
    for name, (ours, theirs) in MODES.items():
        yield f"checkpoint under backpressure, {name}", _duration(penstock[ours]), _duration(flink[theirs]), "", batch


def _duration(cell: Result) -> str:
    if not cell["checkpoints"]:
        return f"over {cell['over_ms'] / 1000:.0f} s"
    found = median_ms(cell)
    return f"{found:.0f} ms" if found < 1000 else f"{found / 1000:.1f} s"


def _progress(result: Result) -> Iterator[Line]:
    engines = result["engines"]
    for trouble in engines[QUEUES]["unaligned"]["troubles"]:
        penstock, flink, flip_547 = (_share(engines[name], "unaligned", trouble) for name in (QUEUES, *PEERS[:2]))
        yield (
            f"progress with {trouble}, of undisturbed",
            penstock,
            flink,
            flip_547,
            _share(engines["Spark"], None, trouble),
        )


def _share(modes: Result, mode: str | None, trouble: str) -> str:
    cell = modes[mode] if mode is not None else next(iter(modes.values()))
    return f"{share(cell['troubles'][trouble], cell['undisturbed']):.2f}" if trouble in cell["troubles"] else ""


def _recovery(result: Result) -> Iterator[Line]:
    names = {"processing_s": "`kill -9` to processing", "next_checkpoint_s": "and from there to the next checkpoint"}
    for figure, name in names.items():
        penstock, flink, flip_547, spark = (_seconds(result, engine, figure) for engine in ("Penstock", *PEERS))
        yield name, penstock, flink, flip_547, spark


def _seconds(result: Result, engine: str, figure: str) -> str:
    return f"{statistics.median(one[figure] for one in result['engines'][engine]['kill -9']):.2f} s"


def _nexmark(result: Result) -> Iterator[Line]:
    """Nothing of a run without Flink."""
    queries = result["queries"]
    if "flink" in result:
        means = [f"{1 / report_nexmark.mean(queries, 'cpu_seconds', peer):.2f}" for peer in ("flink", "spark")]
        yield f"Nexmark, {len(queries)} queries: events by CPU second, of Penstock's", "1", means[0], "", means[1]


def _cost(result: Result) -> Iterator[Line]:
    for load, what, *forms in COSTS:
        of = result["loads"][load]["summary"]
        penstock, flink = (
            _cost_of(of[engine][form]) for engine, form in zip(("Penstock", "Flink"), forms, strict=True)
        )
        yield f"rows a second that {what} every second costs, {load}", penstock, flink, "", ""


def _cost_of(form: Result) -> str:
    return f"{100 * (1 - form['rows']['mean']):.1f} %"


PARTS: dict[str, Callable[[Result], Iterator[Line]]] = {
    "flip76": _checkpoints,
    "progress": _progress,
    "recovery_peers": _recovery,
    "nexmark": _nexmark,
    "checkpoint_cost": _cost,
}
"""By benchmark."""


def table(results: dict[str, Result]) -> str:
    """Return the table with the results that were measured."""
    lines = [line for name, part in PARTS.items() if name in results for line in part(results[name])]
    heads = [row("", "Penstock", *PEERS), row("---", *["---:"] * (1 + len(PEERS)))]
    return "\n".join([*heads, *(row(*line) for line in lines), ""])


def placed(readme: str, results: dict[str, Result]) -> str:
    """The README with the table in its place."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + table(results) + END + rest.split(END)[1]


def write(results: dict[str, Result]) -> None:
    README.write_text(placed(README.read_text(), results))
