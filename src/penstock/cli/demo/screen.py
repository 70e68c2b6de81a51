"""Output of the demo on a terminal: a headline for each numbered step, and a live table between them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from penstock.cli.demo.sampling import Sample, VertexSample

BAR_CELLS = 20
PLAIN_LINE_EVERY_S = 2.0
"""Time between lines that replace the live table if the output is no terminal."""


def megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size / 1e3:.1f} kB"


class Screen:
    """Screen of the demo. It prints only its arguments and does not access the query."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps = 0
        self._live: Live | None = None
        self._last_plain_s = 0.0

    def step(self, title: str, shows: str) -> None:
        """Print a numbered headline and a description, in one line."""
        self._steps += 1
        self._console.print(f"\n[bold cyan]{self._steps}. {title}[/]  [dim]{shows}[/]", highlight=False)

    def say(self, text: str) -> None:
        self._console.print(f"   {text}", highlight=False)

    def code(self, source: str) -> None:
        self._console.print(Syntax(source.rstrip(), "python", background_color="default", word_wrap=True))

    @contextmanager
    def live(self) -> Iterator[None]:
        """Let ``show`` repaint in place within the ``with`` block, if the output is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as self._live:
            try:
                yield
            finally:
                self._live = None

    def show(self, sample: Sample, headline: str) -> None:
        if self._live is not None:
            self._live.update(Group(Text.from_markup(f"   {headline}"), _table(sample), Text(f"   {_summary(sample)}")))
        elif not self._console.is_terminal and time.monotonic() - self._last_plain_s >= PLAIN_LINE_EVERY_S:
            self._last_plain_s = time.monotonic()
            self.say(f"{Text.from_markup(headline).plain}  {_summary(sample)}  {_vertex_line(sample)}")


def _summary(sample: Sample) -> str:
    rows_per_s = sample.vertices[0].rows_per_s if sample.vertices else 0.0
    left = sample.inflight_rows_left
    return (
        f"files {sample.files}  read {rows_per_s:,.0f} rows/s  windows committed {sample.windows}  "
        f"in flight {megabytes(sample.view.inflight_bytes)}  epoch {sample.view.committed_epoch}  "
        f"generation {sample.view.generation}" + (f"  restored rows left {left:,}" if left else "")
    )


def _vertex_line(sample: Sample) -> str:
    return "  ".join(
        f"[v{number} busy {vertex.busy:.0%} backpressured {vertex.backpressured:.0%} {megabytes(vertex.queued_bytes)}]"
        for number, vertex in enumerate(sample.vertices)
    )


def _table(sample: Sample) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    table.add_column("   vertex", no_wrap=True, max_width=44, overflow="ellipsis")
    table.add_column("rows/s", justify="right")
    table.add_column("busy, backpressured, idle")
    table.add_column("queued", justify="right")
    for vertex in sample.vertices:
        table.add_row(
            f"   {short_name(vertex.name)}", f"{vertex.rows_per_s:,.0f}", _bar(vertex), megabytes(vertex.queued_bytes)
        )
    return table


def short_name(vertex: str) -> str:
    """Shorten ``Watermark (at, 1 hour) -> Project [a, b] -> Filter x`` to ``Watermark > Filter``."""
    words = [re.split(r"[ \[(]", operator.strip(), maxsplit=1)[0] for operator in vertex.split(" -> ")]
    telling = [word for word in words if word != "Project"]
    return " > ".join(telling or words)


def _bar(vertex: VertexSample) -> Text:
    busy = round(vertex.busy * BAR_CELLS)
    blocked = min(BAR_CELLS - busy, round(vertex.backpressured * BAR_CELLS))
    bar = Text("█" * busy, style="green") + Text("█" * blocked, style="red")
    return bar + Text("░" * (BAR_CELLS - busy - blocked), style="dim")
