"""``docs/benchmarks.md`` and its charts from the raw results; nothing is typed by hand but the explanations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.lib.harness import RESULTS
from benchmarks.reports import readme_table
from benchmarks.reports.ablations import ablations
from benchmarks.reports.charts import CHARTS as DRAWN
from benchmarks.reports.checkpoint_cost import checkpoint_cost
from benchmarks.reports.dataflow import (
    backpressure,
    concurrency,
    exchange,
    file_sink,
    inflight_limit,
    inflight_target,
    parquet_jobs,
    recovery,
    rescale,
    throughput,
)
from benchmarks.reports.drawing import svg
from benchmarks.reports.flip76 import flip76, queues_and_skew
from benchmarks.reports.incremental_peers import incremental_peers
from benchmarks.reports.latency_under_load import latency_under_load
from benchmarks.reports.nexmark import nexmark
from benchmarks.reports.progress import progress
from benchmarks.reports.recovery_peers import recovery_peers
from benchmarks.reports.rest_service import rest_service
from benchmarks.reports.scaling import coordinator, scaling
from benchmarks.reports.snapshots import snapshot_catalog, snapshot_formats, state_as_data
from benchmarks.reports.soak import soak
from benchmarks.reports.state import keyed, large_state, state, state_rocksdb
from benchmarks.reports.user_python import isolation, latency, stateful_python, timers

PAGE = ROOT / "docs" / "benchmarks.md"
CHARTS = PAGE.with_suffix("")
"""The folder of the charts."""

HEAD = """# Benchmarks

Written by `make bench` from the raw figures in `benchmarks/results/`, with its charts; `penstock bench NAME` measures
one section anew, on the machine it is called on, and `make bench-quick` prints the ratios that matter most in some
minutes and keeps nothing. Machines are shared and noisy: read the ratios, not the absolute figures.

`1.20 (1.10 to 1.45)` is a median with the least and the largest of its rounds, `1.20 (once)` a single round; where only
one figure was kept there is no spread to tell. Each section ends with what it was measured on, as far as that was kept
with its figures.
"""


SECTIONS = {
    "exchange": exchange,
    "throughput": throughput,
    "backpressure": backpressure,
    "concurrency": concurrency,
    "inflight_target": inflight_target,
    "inflight_limit": inflight_limit,
    "recovery": recovery,
    "parquet_jobs": parquet_jobs,
    "stateful_python": stateful_python,
    "timers": timers,
    "latency": latency,
    "isolation": isolation,
    "file_sink": file_sink,
    "state": state,
    "state_rocksdb": state_rocksdb,
    "keyed": keyed,
    "large_state": large_state,
    "rescale": rescale,
    "snapshot_catalog": snapshot_catalog,
    "snapshot_formats": snapshot_formats,
    "state_as_data": state_as_data,
    "nexmark": nexmark,
    "rest_service": rest_service,
    "flip76": flip76,
    "queues_and_skew": queues_and_skew,
    "progress": progress,
    "latency_under_load": latency_under_load,
    "ablations": ablations,
    "checkpoint_cost": checkpoint_cost,
    "recovery_peers": recovery_peers,
    "incremental_peers": incremental_peers,
    "scaling": scaling,
    "coordinator": coordinator,
    "soak": soak,
}


def page(results: Path = RESULTS) -> str:
    """Return the page of all benchmarks that have results."""
    parts = [HEAD]
    for name, result in _kept(results).items():
        shown = [f"![{title}]({CHARTS.name}/{file})\n" for file, (title, _) in _charts(name, result).items()]
        command = f"Measured by `penstock bench {name}`; [raw figures](../benchmarks/results/{name}.json).\n"
        parts += [SECTIONS[name](result), *shown, command]
    return "\n".join(parts)


def charts(results: Path = RESULTS) -> dict[str, str]:
    """Return all charts of the page by file name."""
    drawings = (_charts(name, result) for name, result in _kept(results).items())
    return {file: text for drawing in drawings for file, (_, text) in drawing.items()}


def _kept(results: Path) -> dict[str, dict[str, Any]]:
    paths = {name: results / f"{name}.json" for name in SECTIONS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def _charts(name: str, result: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the title and the drawing of each chart by file name."""
    made = {f"{file}.svg": draw(result) for file, draw in DRAWN.get(name, {}).items()}
    return {file: (chart.title, svg(chart)) for file, chart in made.items()}


def write() -> None:
    """Rewrite the page, its charts and the README's table."""
    PAGE.write_text(page())
    readme_table.write(_kept(RESULTS))
    CHARTS.mkdir(exist_ok=True)
    for file, text in charts().items():
        (CHARTS / file).write_text(text)
