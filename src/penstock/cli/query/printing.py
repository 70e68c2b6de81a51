"""Text of one query for the terminal."""

from __future__ import annotations

import time

from rich.console import Console
from rich.text import Text

from penstock.cli.query.models import Edge, Exceptions, Graph, Query, Restart, Vertex
from penstock.cli.texts import age_text, exact_text, lines_of, one_line, size_text, time_text

RESTARTS_PRINTED = 5
STYLE_OF = {
    "running": "green",
    "failed": "bold red",
    "suspended": "yellow",
    "stopped": "dim",
    "complete": "green",
    "pending": "cyan",
}


def print_query(console: Console, query: Query, graph: Graph, exceptions: Exceptions) -> None:
    """Print a query. ``--json`` has more details."""
    status, spec = query.status, query.spec
    name = f"{one_line(query.name)}, " if query.name else ""
    _say(console, f"{name}query {one_line(query.id)}, run {one_line(query.run_id)}", "bold")
    _say(console, f"at {one_line(query.location)}")
    _say(console, state_line(query), STYLE_OF.get(status.state, "yellow"))
    _say(
        console,
        f"generation {status.generation}, parallelism {status.parallelism} of {status.max_parallelism} at most, "
        f"{size_text(status.inflight_bytes)} in flight, epoch {status.committed_epoch:,} committed",
    )
    _say(console, checkpoints_line(query))
    if not status.converged:
        _say(console, f"it is to be: {one_line(spec.state)}, parallelism {spec.parallelism}", "yellow")
    for one in status.operations:
        _say(console, f"under way: {one_line(one.verb)}, operation {one_line(one.id)}", "yellow")
    vertex_ids = {vertex.id for vertex in graph.vertices}
    for vertex in graph.vertices:
        _print_vertex(console, vertex)
        for edge in graph.edges:
            if edge.producer == vertex.id and edge.consumer in vertex_ids:
                _say(console, f"  {_edge_text(edge)} -> {edge.consumer}")
    for restart in exceptions.restarts[:RESTARTS_PRINTED]:
        _say(console, restart_line(restart, now_ms()))
    if exceptions.failure is not None:
        _say(console, f"{one_line(exceptions.failure.kind)}:", "bold red")
        for line in lines_of(exceptions.failure.text):
            _say(console, f"  {line}")


def state_line(query: Query) -> str:
    """Return the state as a line: ``running: Processing new data``."""
    status = query.status
    error = f" ({one_line(status.error)})" if status.error else ""
    return f"{one_line(status.state)}{error}: {one_line(status.message)}"


def checkpoints_line(query: Query) -> str:
    status, spec = query.status, query.spec.checkpoint
    return (
        f"checkpoints: every {exact_text(spec.interval_ms)}, {one_line(spec.alignment)}; "
        f"{status.checkpoints_completed:,} complete, {status.checkpoints_failed:,} failed"
    )


def restart_line(restart: Restart, at_ms: int) -> str:
    """Describe one recovery in a line."""
    ago = age_text(max(0, at_ms - restart.detected_at_ms) / 1000)
    pending = "given up" if restart.given_up else "under way"
    back = pending if restart.duration_ms is None else f"back after {time_text(restart.duration_ms)}"
    where = one_line(restart.restored_from) or "the beginning"
    return (
        f"generation {restart.failed_generation} -> {restart.generation}, {ago} ago, {back}, from {where}: "
        f"{one_line(restart.cause.partition(chr(10))[0])}"
    )


def now_ms() -> int:
    return int(time.time() * 1000)


def _print_vertex(console: Console, vertex: Vertex) -> None:
    _say(console, f"[{vertex.id}] {one_line(vertex.name)}", "bold")
    for operator in vertex.operators:
        if operator.text:
            _say(console, f"  {one_line(operator.operator_id)}: {one_line(operator.text)}")


def _edge_text(edge: Edge) -> str:
    keys = f" by {', '.join(map(one_line, edge.keys))}" if edge.keys else ""
    return f"{one_line(edge.kind)}{keys}"


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
