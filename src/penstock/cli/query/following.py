"""Follows an operation to its end, with a bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

import msgspec
import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from penstock.cli.query.models import Failure, Operation, Query, understood
from penstock.cli.query.service import Service
from penstock.cli.query.texts import one_line
from penstock.cli.terminal import SafeConsole, say
from penstock.errors import NoAnswer, ServiceError, ServiceRefused

POLL_S = 0.1
PATIENCE_S = 15.0
"""So long a service may be away before what came of an operation counts as not known."""
RUNNING, SUCCEEDED = "running", "succeeded"
GONE = "gone"
"""Our own word for a stop that was begun, and whose driver has ended with its query."""
INTERRUPTED = 130
T = TypeVar("T", bound=Operation)


def followed(service: Service, query: Query, begun: T, *, hidden: bool, tells: str) -> T:
    """``follow``, shown on a terminal unless it is ``hidden``. Ctrl-C stops following, and ends the command with a line
    that says that it goes on, and which command ``tells`` what came of it."""
    try:
        with progress_of(begun, query, hidden=hidden) as told:
            return follow(service, query, begun, told, tells)
    except KeyboardInterrupt:
        text = f"penstock: not followed any longer; {begun_text(begun, query)} goes on, and `{tells}` tells where it is"
        say(text, err=True)
        raise typer.Exit(INTERRUPTED) from None


def succeeded(operation: T, query: Query) -> T:
    """The operation, which has ended. Raises ServiceError if it has failed."""
    if operation.state not in (SUCCEEDED, GONE):
        kind, text = failure_of(operation)
        raise ServiceError(f"{begun_text(operation, query)} failed: {kind}: {text}")
    return operation


def failure_of(operation: Operation) -> tuple[str, str]:
    """Kind and text, one line each, of why it failed."""
    failure = operation.error or Failure("Error", "no reason is told")
    return one_line(failure.kind), one_line(failure.text)


def follow(service: Service, query: Query, begun: T, told: Callable[[Operation], None], tells: str) -> T:
    """Wait for the end of ``begun``; ``told`` hears of its progress, and the command ``tells`` what came of it.

    A stopped query often is all that its program waited for: where nobody listens any more after a stop was begun, the
    driver has ended, and the query with it. The operation is given with state ``gone`` then.

    Returns:
        The operation, succeeded, failed or gone.

    Raises:
        NoAnswer: what came of it is not known.
    """
    away_since_s: float | None = None
    operation = begun
    while operation.state == RUNNING:
        told(operation)
        time.sleep(POLL_S)
        try:
            operation = understood(service, service.get("operations", begun.id).document, type(begun))
            away_since_s = None
        except ServiceError as error:
            if begun.verb == "stop" and isinstance(error.__cause__, ConnectionRefusedError):
                return msgspec.structs.replace(begun, state=GONE, progress=None)
            away_since_s = time.monotonic() if away_since_s is None else away_since_s
            final = isinstance(error, ServiceRefused) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            if final or time.monotonic() - away_since_s >= PATIENCE_S:
                raise NoAnswer(
                    f"{begun_text(begun, query)} was begun, and what came of it is not known (`{tells}` tells): {error}"
                ) from error
    return operation


@contextmanager
def progress_of(begun: Operation, query: Query, *, hidden: bool) -> Iterator[Callable[[Operation], None]]:
    """What shows it on a terminal, on stderr: stdout is for the result."""
    console = SafeConsole(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    shown = not hidden and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(escape(begun_text(begun, query)), total=None)

        def told(operation: Operation) -> None:
            at = operation.progress
            if at is not None:
                bar.update(task, description=escape(one_line(at.message, 60)), completed=at.done, total=at.total)

        yield told


def begun_text(operation: Operation, query: Query) -> str:
    """``the rescale of sums (5b0c1f2e), operation 17c0...,``: what it is, without what became of it."""
    return f"the {one_line(operation.verb)} of {query.called}, operation {one_line(operation.id)},"
