"""Output of the command line. Control characters in texts of snapshots, services and files are printed as escapes."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.plain_text import visible


class SafeConsole(Console):
    """Console that prints unprintable characters of all texts as escapes. Rich's own control codes stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, "\n"), segment.style)


WIDEST = 100_000
"""Width in columns if the output is not a terminal."""


def widen(console: Console) -> None:
    """Let tables be as wide as their cells, unless the output is a terminal: other outputs have no width."""
    if not console.is_terminal:
        console.width = WIDEST


def say(text: str, *, err: bool = False) -> None:
    """Print plain text with unprintable characters as escapes. It may have several lines."""
    typer.echo(visible(text, "\n"), err=err)
