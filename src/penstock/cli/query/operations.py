"""Operations of the REST service: waits for their end, with a progress bar on a terminal."""

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
from penstock.cli.terminal import SafeConsole, say
from penstock.cli.texts import one_line
from penstock.errors import NoAnswer, ServiceError, ServiceRefused

POLL_S = 0.1
PATIENCE_S = 15.0
"""Time without an answer of the service after which the outcome of an operation counts as unknown."""
RUNNING, SUCCEEDED = "running", "succeeded"
DRIVER_ENDED = "gone"
"""State of a stop operation whose driver has ended with the query. The service itself has no such state."""
INTERRUPTED = 130
T = TypeVar("T", bound=Operation)


def followed(service: Service, query: Query, begun: T, *, hidden: bool, status_command: str) -> T:
    """Wait for the end of an operation, with a progress bar on a terminal unless ``hidden``.

    Ctrl-C ends the command, but not the operation. Then the last line names ``status_command``, which shows the
    outcome.
    """
    try:
        with progress_of(begun, query, hidden=hidden) as on_progress:
            return follow(service, query, begun, on_progress, status_command)
    except KeyboardInterrupt:
        going_on = f"{begun_text(begun, query)} goes on, and `{status_command}` tells where it is"
        say(f"penstock: not followed any longer; {going_on}", err=True)
        raise typer.Exit(INTERRUPTED) from None


def succeeded(operation: T, query: Query) -> T:
    """Return the ended operation. Raise ServiceError if it has failed."""
    if operation.state not in (SUCCEEDED, DRIVER_ENDED):
        kind, text = failure_of(operation)
        raise ServiceError(f"{begun_text(operation, query)} failed: {kind}: {text}")
    return operation


def failure_of(operation: Operation) -> tuple[str, str]:
    """Return the kind and the text of the failure, one line each."""
    failure = operation.error or Failure("Error", "no reason is told")
    return one_line(failure.kind), one_line(failure.text)


def follow(
    service: Service, query: Query, begun: T, on_progress: Callable[[Operation], None], status_command: str
) -> T:
    """Wait for the end of an operation and report its progress.

    A driver program often ends with its query. If the service refuses connections after a stop was begun, the driver
    has ended with the query, and the operation's state is ``DRIVER_ENDED``.

    Args:
        status_command: command that shows the outcome, for error messages.

    Returns:
        The operation; its state is succeeded, failed or ``DRIVER_ENDED``.

    Raises:
        NoAnswer: the outcome is not known.
    """
    away_since_s: float | None = None
    operation = begun
    while operation.state == RUNNING:
        on_progress(operation)
        time.sleep(POLL_S)
        try:
            operation = understood(service, service.get("operations", begun.id).document, type(begun))
            away_since_s = None
        except ServiceError as error:
            if begun.verb == "stop" and isinstance(error.__cause__, ConnectionRefusedError):
                return msgspec.structs.replace(begun, state=DRIVER_ENDED, progress=None)
            away_since_s = time.monotonic() if away_since_s is None else away_since_s
            final = isinstance(error, ServiceRefused) and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            if final or time.monotonic() - away_since_s >= PATIENCE_S:
                raise NoAnswer(
                    f"{begun_text(begun, query)} was begun, and what came of it is not known "
                    f"(`{status_command}` tells): {error}"
                ) from error
    return operation


@contextmanager
def progress_of(begun: Operation, query: Query, *, hidden: bool) -> Iterator[Callable[[Operation], None]]:
    """Show a progress bar on stderr, because stdout is for the result."""
    console = SafeConsole(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn())
    is_visible = not hidden and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not is_visible) as bar:
        task = bar.add_task(escape(begun_text(begun, query)), total=None)

        def on_progress(operation: Operation) -> None:
            at = operation.progress
            if at is not None:
                bar.update(task, description=escape(one_line(at.message, 60)), completed=at.done, total=at.total)

        yield on_progress


def begun_text(operation: Operation, query: Query) -> str:
    """Describe an operation without its outcome: ``the rescale of sums (5b0c1f2e), operation 17c0...,``."""
    return f"the {one_line(operation.verb)} of {query.called}, operation {one_line(operation.id)},"
