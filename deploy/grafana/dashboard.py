"""Makes ``penstock.json`` beside it: ``python deploy/grafana/dashboard.py``.

A dashboard is data, but most of it repeats itself; here is what differs. What the metrics mean is in docs/metrics.md.
Nothing but Python is needed; a test runs this and compares, and checks every expression.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("penstock.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
"""Of Grafana's grid."""
HEIGHT = 8
CHOSEN = 'query=~"$query"'
RATE = "[$__rate_interval]"


@dataclass(frozen=True)
class Panel:
    """``lines``: legend and expression of each. ``text``: what to make of it, shown as the panel's help."""

    title: str
    text: str
    lines: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = HEIGHT
    limit: float | None = None
    """Red from here on."""
    stacked: bool = False
    top: float | None = None


def per_second(counter: str, by: str) -> str:
    return f"sum by ({by}) (rate({counter}{{{CHOSEN}}}{RATE}))"


def share(state: str) -> str:
    """Of a vertex's subtasks' time, on average."""
    return f"avg by (query, vertex, vertex_name) (rate(penstock_subtask_{state}_seconds_total{{{CHOSEN}}}{RATE}))"


def quantile(part: float, histogram: str) -> str:
    return f"histogram_quantile({part}, sum by (le, query, name) (rate({histogram}_bucket{{{CHOSEN}}}{RATE})))"


def of_vertices(metric: str, how: str = "sum") -> str:
    return f"{how} by (query, vertex, vertex_name) ({metric}{{{CHOSEN}}})"


def of_query(metric: str) -> str:
    return f"{metric}{{{CHOSEN}}}"


QUERY = "{{name}} {{query}}"
VERTEX = "{{vertex}} {{vertex_name}}"

OVERVIEW = (
    Panel(
        "Queries",
        "That run or recover in the drivers that are scraped.",
        (("active", "sum(penstock_driver_active_queries)"),),
        kind="stat",
        width=3,
        height=4,
    ),
    Panel(
        "Failed",
        "Of the 20 queries of each driver that ended last. GET /api/v1/queries says which, and why.",
        (("failed", "sum(penstock_driver_failed_queries)"),),
        kind="stat",
        width=3,
        height=4,
        limit=1,
    ),
    Panel(
        "Not running",
        "Active queries of which not all subtasks run: they start, recover or are rescaled.",
        (("not running", f"count(penstock_query_running{{{CHOSEN}}} == 0) or vector(0)"),),
        kind="stat",
        width=3,
        height=4,
        limit=1,
    ),
    Panel(
        "Recoveries",
        "In the time shown.",
        (("recoveries", f"sum(increase(penstock_query_restarts_total{{{CHOSEN}}}[$__range]))"),),
        kind="stat",
        width=3,
        height=4,
        limit=1,
    ),
    Panel(
        "Safe since",
        "Age of the newest complete checkpoint, of the query where it is oldest: so much work would be done again.",
        (("age", f"max(time() - penstock_checkpoint_last_completed_timestamp_seconds{{{CHOSEN}}})"),),
        unit="s",
        kind="stat",
        width=6,
        height=4,
    ),
    Panel(
        "Slots",
        "Taken by the queries, and how many of those that were asked for are missing.",
        (
            ("taken", f"sum(penstock_query_parallelism{{{CHOSEN}}})"),
            (
                "missing",
                f"sum(penstock_query_wanted_parallelism{{{CHOSEN}}} - penstock_query_parallelism{{{CHOSEN}}})",
            ),
        ),
        kind="stat",
        width=6,
        height=4,
    ),
    Panel(
        "Rows in",
        "Committed rows of all sources a second; in steps of the checkpoint interval.",
        ((QUERY, per_second("penstock_source_rows_total", "query, name")),),
        unit="rowsps",
    ),
    Panel(
        "Rows out",
        "Rows a second that all sinks were handed.",
        ((QUERY, per_second("penstock_sink_rows_total", "query, name")),),
        unit="rowsps",
    ),
    Panel(
        "Age of the output",
        "Since output became visible last. It rises up to the checkpoint interval, and should not rise further.",
        ((QUERY, f"time() - {of_query('penstock_query_last_commit_timestamp_seconds')}"),),
        unit="s",
    ),
    Panel(
        "Event time behind the clock",
        "Of what is committed. Where input is old, so is its event time.",
        ((QUERY, f"time() - {of_query('penstock_query_watermark_timestamp_seconds')}"),),
        unit="s",
    ),
    Panel(
        "Queued in all channels",
        "In-flight data: what an unaligned checkpoint takes along.",
        ((QUERY, of_query("penstock_query_inflight_bytes")),),
        unit="bytes",
    ),
    Panel(
        "Time to recover",
        "The newest recovery: from the failure to all subtasks running.",
        ((QUERY, of_query("penstock_query_last_recovery_seconds")),),
        unit="s",
    ),
    Panel(
        "Failing now",
        "What fails and is tried again: Generations, checkpoints, sinks, the checkpoint location. The query's status "
        "says which, and why.",
        ((QUERY, of_query("penstock_query_outages")),),
        width=12,
        limit=1,
    ),
    Panel(
        "Failed commits",
        "In the time between two points. Each commit is repeated until it succeeds or the query gives up.",
        ((QUERY, f"increase(penstock_query_commit_errors_total{{{CHOSEN}}}{RATE})"),),
        width=12,
        limit=1,
    ),
)
SLOW = (
    Panel(
        "Busy",
        "Share of time at work. The bottleneck is the vertex that is busy while those before it are backpressured.",
        ((VERTEX, share("busy")),),
        unit="percentunit",
        top=1,
    ),
    Panel(
        "Backpressured",
        "Share of time spent waiting for room: whoever comes behind is slower.",
        ((VERTEX, share("backpressured")),),
        unit="percentunit",
        top=1,
    ),
    Panel(
        "Idle",
        "Share of time spent waiting for input.",
        ((VERTEX, share("idle")),),
        unit="percentunit",
        top=1,
    ),
    Panel(
        "Rows into each vertex",
        "A second.",
        ((VERTEX, per_second("penstock_subtask_rows_in_total", "query, vertex, vertex_name")),),
        unit="rowsps",
    ),
    Panel(
        "Busiest subtask above the average",
        "How much busier the busiest subtask of a vertex is than all of them are: skew, if it stays far from 0.",
        (
            (
                VERTEX,
                f"max by (query, vertex, vertex_name) (rate(penstock_subtask_busy_seconds_total{{{CHOSEN}}}{RATE}))"
                f" - {share('busy')}",
            ),
        ),
        unit="percentunit",
        top=1,
    ),
    Panel(
        "Queued in front of each vertex",
        "Bytes in the input channels.",
        ((VERTEX, of_vertices("penstock_subtask_input_queued_bytes")),),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "Queued behind each vertex",
        "Bytes in the output channels.",
        ((VERTEX, of_vertices("penstock_subtask_output_queued_bytes")),),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "Event time behind the clock, by vertex",
        "Of the subtask that is furthest behind.",
        ((VERTEX, f"time() - {of_vertices('penstock_subtask_watermark_timestamp_seconds', 'min')}"),),
        unit="s",
    ),
    Panel(
        "Left to replay",
        "Rows that were in flight at the recovery; live input waits for them.",
        ((VERTEX, of_vertices("penstock_subtask_recovered_rows")),),
    ),
)
CHECKPOINTS = (
    Panel(
        "Duration",
        "Trigger to complete: half, and 95 of 100, are quicker. The interval is for comparison.",
        (
            (f"p50 {QUERY}", quantile(0.5, "penstock_checkpoint_duration_seconds")),
            (f"p95 {QUERY}", quantile(0.95, "penstock_checkpoint_duration_seconds")),
            (f"interval {QUERY}", of_query("penstock_checkpoint_interval_seconds")),
        ),
        unit="s",
    ),
    Panel(
        "Complete, and not",
        "Those that are not were given up, or made superfluous by a newer one; errors are those that went wrong.",
        (
            (
                f"complete {QUERY}",
                f"sum by (query, name) (increase(penstock_checkpoints_completed_total{{{CHOSEN}}}{RATE}))",
            ),
            (
                f"not {QUERY}",
                f"sum by (query, name) (increase(penstock_checkpoints_failed_total{{{CHOSEN}}}{RATE}))",
            ),
            (
                f"errors {QUERY}",
                f"sum by (query, name) (increase(penstock_checkpoint_errors_total{{{CHOSEN}}}{RATE}))",
            ),
        ),
    ),
    Panel(
        "Under way",
        "How long the oldest one has taken so far.",
        ((QUERY, of_query("penstock_checkpoint_pending_seconds")),),
        unit="s",
    ),
    Panel(
        "Start delay",
        "Trigger to first barrier, slowest subtask: barriers wait behind a step, aligned ones behind data, too.",
        ((VERTEX, of_vertices("penstock_vertex_checkpoint_start_delay_seconds", "max")),),
        unit="s",
    ),
    Panel(
        "Alignment",
        "First barrier to last, slowest subtask. An unaligned checkpoint does not wait meanwhile.",
        ((VERTEX, of_vertices("penstock_vertex_checkpoint_alignment_seconds", "max")),),
        unit="s",
    ),
    Panel(
        "Standing still, and writing",
        "Slowest subtask: its pause, and what was written beside its work.",
        (
            (f"still {VERTEX}", of_vertices("penstock_vertex_checkpoint_sync_seconds", "max")),
            (f"writing {VERTEX}", of_vertices("penstock_vertex_checkpoint_async_seconds", "max")),
        ),
        unit="s",
    ),
    Panel(
        "In-flight data",
        "Captured by the newest checkpoint, and what of it was written: what was durable before is only referred to. "
        "Processed: by subtasks that had one barrier and waited for others.",
        (
            (f"captured {QUERY}", of_query("penstock_checkpoint_last_inflight_bytes")),
            (f"written {QUERY}", of_query("penstock_checkpoint_last_inflight_written_bytes")),
            (f"processed {QUERY}", of_query("penstock_checkpoint_last_inflight_processed_bytes")),
        ),
        unit="bytes",
    ),
    Panel(
        "In-flight data by vertex",
        "Captured by the newest checkpoint: most of it lies in front of the bottleneck.",
        ((VERTEX, of_vertices("penstock_vertex_checkpoint_inflight_bytes")),),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "Unaligned",
        "1 where the newest checkpoint was unaligned anywhere, asked for or because it took too long.",
        ((QUERY, of_query("penstock_checkpoint_last_unaligned")),),
        top=1,
    ),
)
STATE = (
    Panel(
        "Size",
        "What holds all state of the newest checkpoint, by vertex.",
        ((VERTEX, of_vertices("penstock_vertex_state_size_bytes")),),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "Rows of state",
        "In the newest checkpoint, by vertex. State that only grows needs a watermark or a time to live.",
        ((VERTEX, of_vertices("penstock_vertex_state_rows")),),
    ),
    Panel(
        "Memory",
        "What state takes in the slots; with RocksDB its write buffers only.",
        ((VERTEX, of_vertices("penstock_subtask_state_memory_bytes")),),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "Written by each checkpoint",
        "State that changed, by vertex.",
        ((VERTEX, of_vertices("penstock_vertex_checkpoint_state_bytes")),),
        unit="bytes",
    ),
    Panel(
        "Late rows dropped",
        "A second. penstock.late(df) gives them.",
        ((VERTEX, per_second("penstock_subtask_late_dropped_rows_total", "query, vertex, vertex_name")),),
        unit="rowsps",
    ),
    Panel(
        "Duplicates dropped",
        "A second.",
        ((VERTEX, per_second("penstock_subtask_duplicate_dropped_rows_total", "query, vertex, vertex_name")),),
        unit="rowsps",
    ),
)
ENDS = (
    Panel(
        "Rows of each source",
        "Committed, a second.",
        (("{{name}} {{source}}", per_second("penstock_source_rows_total", "query, name, source")),),
        unit="rowsps",
    ),
    Panel(
        "Behind",
        "Offsets that are there and not read, where a source can tell (Kafka): all, and the partition furthest behind.",
        (
            ("{{name}} {{source}}", of_query("penstock_source_behind_rows")),
            ("furthest {{name}} {{source}}", of_query("penstock_source_behind_most_rows")),
        ),
    ),
    Panel(
        "Splits left",
        "Files, ranges or partitions that wait for a reader, and that readers have.",
        (
            ("waiting {{name}} {{source}}", of_query("penstock_source_pending_splits")),
            ("reading {{name}} {{source}}", of_query("penstock_source_reading_splits")),
        ),
    ),
    Panel(
        "Caught up",
        "1 while the sources have nothing left to read.",
        ((QUERY, of_query("penstock_query_caught_up")),),
        top=1,
    ),
    Panel(
        "Rows of each sink",
        "Handed to it, a second.",
        (("{{name}} {{sink}}", per_second("penstock_sink_rows_total", "query, name, sink")),),
        unit="rowsps",
    ),
    Panel(
        "Commit",
        "Checkpoint complete to output visible: half, and 95 of 100, are quicker; and the newest.",
        (
            (f"p50 {QUERY}", quantile(0.5, "penstock_commit_duration_seconds")),
            (f"p95 {QUERY}", quantile(0.95, "penstock_commit_duration_seconds")),
            (f"newest {QUERY}", of_query("penstock_commit_last_duration_seconds")),
        ),
        unit="s",
    ),
)
ROWS = {
    "Overview": OVERVIEW,
    "Why is it slow": SLOW,
    "Checkpoints": CHECKPOINTS,
    "State": STATE,
    "Sources and sinks": ENDS,
}


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def drawn(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    defaults: dict[str, Any] = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.top is not None:
        defaults["max"] = panel.top
    options: dict[str, Any] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "axisSoftMin": 0,
            "fillOpacity": 10,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for index, (legend, expression) in enumerate(panel.lines)
        ],
    }


def laid_out(rows: dict[str, Sequence[Panel]]) -> list[dict[str, Any]]:
    """One row of the dashboard after the other, each filled from left to right."""
    found: list[dict[str, Any]] = []
    y = 0
    for title, panels in rows.items():
        place = {"x": 0, "y": y, "w": WIDTH, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": place})
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            found.append(drawn(panel, len(found) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return found


def dashboard() -> dict[str, Any]:
    return {
        "uid": "penstock",
        "title": "Penstock",
        "description": "Queries that Penstock runs; what the metrics mean is in docs/metrics.md.",
        "tags": ["penstock", "spark"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                variable("name", "Name", "label_values(penstock_query_running, name)"),
                variable("query", "Query", 'label_values(penstock_query_running{name=~"$name"}, query)'),
            ]
        },
        "panels": laid_out(dict(ROWS)),
    }


def written() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(written())
