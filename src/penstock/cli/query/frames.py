"""Frame of ``penstock query watch``: draws a sample into a given width and height."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.query.models import Checkpoint, Graph, Vertex
from penstock.cli.query.printing import STYLE_OF, checkpoints_line, restart_line, state_line
from penstock.cli.query.sampling import Rates, Sample
from penstock.cli.texts import age_text, one_line, rate_text, short_vertex, size_text, time_text, watermark_text
from penstock.snapshots.commands.plain_values import known_minimum

BAR_CELLS = 12
SHARES = "of its time"
VERTEX_COLUMNS = ("rows in/s", "out/s", SHARES, "busy", "backp.", "queued")
BUSY, BACKPRESSURED, IDLE = "█", "▒", "·"
NOT_KNOWN = ("-", "-", "-")
CHECKPOINTS_SHOWN = 5
RESTARTS_SHOWN = 3
WIDE = 110
"""Width in columns from which on the table also has the watermark of each vertex."""


def frame(sample: Sample, width: int, height: int | None = None, notice: str = "") -> RenderableType:
    """Draw a sample.

    Args:
        sample: the sample.
        width: width in columns.
        height: most lines; None: as many as necessary.
        notice: text above everything else.
    """
    restarts = sample.exceptions.restarts[:RESTARTS_SHOWN]
    vertices, checkpoints = len(sample.graph.vertices), min(len(sample.checkpoints), CHECKPOINTS_SHOWN)
    if height is not None:
        # Other lines: the notice; three lines of head; a blank and headings above the vertices; a blank, a line and
        # headings above the checkpoints; the recoveries and a blank above them; the failure.
        taken = bool(notice) + 3 + 2 + 3 + len(restarts) + bool(restarts) + bool(sample.exceptions.failure)
        room = max(2, height - taken)
        checkpoints = min(checkpoints, max(1, room - vertices))
        vertices = max(1, room - checkpoints)
    parts: list[RenderableType] = [_line(notice, "black on yellow")] if notice else []
    parts += [*_head(sample), Text(), *_vertices(sample, vertices, width >= WIDE)]
    parts += [Text(), _line(checkpoints_line(sample.query)), _checkpoints(sample, checkpoints)]
    if restarts:
        parts += [Text(), *(_line(restart_line(one, sample.at_ms), "yellow") for one in restarts)]
    if sample.exceptions.failure is not None:
        failure = sample.exceptions.failure
        parts.append(_line(f"{failure.kind}: {failure.text.partition(chr(10))[0]}", "bold red"))
    return Group(*parts)


def bar(busy: float, backpressured: float) -> Text:
    """Draw the busy, backpressured and idle shares of time as one bar. It is readable without colors."""
    at_work = min(BAR_CELLS, round(busy * BAR_CELLS))
    blocked = min(BAR_CELLS - at_work, round(backpressured * BAR_CELLS))
    cells = Text(BUSY * at_work, style="green") + Text(BACKPRESSURED * blocked, style="red")
    return cells + Text(IDLE * (BAR_CELLS - at_work - blocked), style="dim")


def _line(text: str, style: str = "") -> Text:
    return Text(one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def _head(sample: Sample) -> list[Text]:
    query, status = sample.query, sample.query.status
    requested = query.spec.parallelism
    arrives = "" if query.over or status.parallelism == requested else f", to be {requested}"
    first = f"{query.called}  generation {status.generation}  parallelism {status.parallelism}{arrives}"
    watermark = _event_time(sample.graph)
    return [
        _line(f"{first}  restarts {status.restarts}", "bold"),
        _line(state_line(query), STYLE_OF.get(status.state, "yellow")),
        _line(
            f"watermark {watermark_text(watermark)}  epoch {status.committed_epoch:,} committed  "
            f"{size_text(status.inflight_bytes)} in flight"
        ),
    ]


def _event_time(graph: Graph) -> int | None:
    """Return the lowest watermark of all subtasks.

    Return None while a subtask has no watermark although the vertex that it reads from has one.
    """
    least = {vertex.id: known_minimum(one.watermark_us for one in vertex.subtasks) for vertex in graph.vertices}
    silent = {vertex.id for vertex in graph.vertices if any(one.watermark_us is None for one in vertex.subtasks)}
    if any(least.get(edge.producer) is not None and edge.consumer in silent for edge in graph.edges):
        return None
    return known_minimum(least.values())


def _table(first: str, columns: Sequence[str], left: Sequence[str] = ()) -> Table:
    """Create a table whose first column takes the remaining width.

    Args:
        first: heading of the first column.
        columns: headings of the other columns.
        left: columns with left-aligned text. All others have right-aligned numbers.
    """
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(first, ratio=1, no_wrap=True, overflow="ellipsis")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    return table


def _vertices(sample: Sample, line_count: int, wide: bool) -> list[RenderableType]:
    """Return the table of vertices in ``line_count`` lines. If necessary, the last line counts the omitted vertices."""
    vertices = sample.graph.vertices
    fits = len(vertices) <= line_count
    table = _table("vertex", [*VERTEX_COLUMNS, *(["watermark"] if wide else [])], (SHARES,))
    for vertex in vertices if fits else vertices[: line_count - 1]:
        table.add_row(*_vertex(vertex, sample.rates.get(vertex.id)), *([_watermark(vertex)] if wide else []))
    more = _line(f"and {len(vertices) - line_count + 1} more, for which the window is too small", "dim")
    return [table] if fits else [table, more]


def _vertex(vertex: Vertex, rates: Rates | None) -> tuple[Text | str, ...]:
    queued = sum(one.input_queued_bytes + one.output_queued_bytes for one in vertex.subtasks)
    name = Text(short_vertex(vertex.name))
    if rates is None:
        return name, "-", "-", *NOT_KNOWN, size_text(queued)
    rows = rate_text(rates.rows_in), rate_text(rates.rows_out)
    if rates.busy is None or rates.backpressured is None:
        return name, *rows, *NOT_KNOWN, size_text(queued)
    shares = f"{rates.busy:.0%}", f"{rates.backpressured:.0%}"
    return name, *rows, bar(rates.busy, rates.backpressured), *shares, size_text(queued)


def _watermark(vertex: Vertex) -> str:
    """Return the lowest watermark of the subtasks; no watermark if one of them has none."""
    watermarks = [one.watermark_us for one in vertex.subtasks]
    return watermark_text(None if None in watermarks else known_minimum(watermarks))


def _checkpoints(sample: Sample, line_count: int) -> Table:
    table = _table("checkpoint", ["state", "age", "took", "captured", "written", "all state"], ("state",))
    for one in sample.checkpoints[:line_count]:
        table.add_row(_checkpoint_name(one), *_checkpoint(one, sample.at_ms))
    return table


def _checkpoint_name(one: Checkpoint) -> Text:
    label = f" {one_line(one.label, 40)}" if one.label else " requested" if one.requested else ""
    return Text(f"{one.checkpoint}{label}") + Text(f" {one_line(one.alignment)}", style="dim")


def _checkpoint(one: Checkpoint, at_ms: int) -> tuple[Text | str, ...]:
    state = Text(one_line(one.state), style=STYLE_OF.get(one.state, "yellow"))
    age = age_text(max(0, at_ms - one.triggered_at_ms) / 1000)
    if one.state != "complete":
        return state, age, time_text(one.duration_ms), "-", "-", "-"
    sizes = (size_text(size) for size in (one.inflight_bytes, one.state_bytes, one.state_total_bytes))
    return state, age, time_text(one.duration_ms), *sizes
