"""Where the command line writes: nothing that a snapshot, a service or a file says steers the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from penstock.plain_text import visible


class SafeConsole(Console):
    """A console that shows what is not printable as escapes, in whatever it is given. Styles are rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text, "\n"), segment.style)


def say(text: str, *, err: bool = False) -> None:
    """Print lines of plain text."""
    typer.echo(visible(text, "\n"), err=err)
