"""Progress of a long run: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console

LINE_EVERY_S = 10.0


class Progress:
    """A context manager.

    Args:
        total: how many steps there are.
        console: where it goes; stdout by default.
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self._total = total
        self._console = console or Console()
        self._began = time.monotonic()
        self._line_at = self._began + LINE_EVERY_S
        self._done = 0
        columns = ("{task.description}", "{task.completed:,} of {task.total:,}", "{task.fields[rate]}")
        self._bar = rich_progress.Progress(
            columns[0],
            rich_progress.BarColumn(),
            *columns[1:],
            rich_progress.TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("schedules", total=total, rate="")

    def step(self, failed: int) -> None:
        """One more is done."""
        self._done += 1
        now = time.monotonic()
        rate = f"{self._done / max(now - self._began, 1e-9):,.1f} a second, {failed} failed"
        if self._console.is_terminal:
            self._bar.update(self._task, advance=1, rate=rate)
        elif now >= self._line_at or self._done == self._total:
            self._line_at = now + LINE_EVERY_S
            left_s = (self._total - self._done) * (now - self._began) / self._done
            print(f"{self._done:,} of {self._total:,} schedules, {rate}, {left_s:,.0f} s left", flush=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While something else is printed."""
        is_terminal = self._console.is_terminal
        if is_terminal:
            self._bar.stop()
        yield
        if is_terminal:
            self._bar.start()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()
