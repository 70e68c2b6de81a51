"""``penstock query watch``: a live view of one query."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from penstock.cli.query.app import Ca, QueryName, TokenFile, Url, connected, query_app
from penstock.cli.query.frames import frame
from penstock.cli.query.naming import named_query
from penstock.cli.query.sampling import Sample, Sampler
from penstock.cli.snapshot.app import AsJson, emit, reported
from penstock.errors import ServiceError

REQUEST_TIMEOUT_S = 5.0
"""Timeout of each request. The screen does not change while a request is pending."""


@query_app.command()
def watch(
    query: QueryName,
    once: Annotated[bool, typer.Option("--once", help="One frame, as where stdout is no terminal.")] = False,
    every: Annotated[float, typer.Option("--every", help="Seconds between two looks.", min=0.2, max=3600.0)] = 1.0,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Watch a query: rates, who is busy and who waits, queues, watermark, checkpoints and recoveries.

    It ends with the query, or with Ctrl-C; the code is 1 if the query has failed.
    """
    with reported() as console:
        service = connected(url, token_file, ca, REQUEST_TIMEOUT_S)
        sampler = Sampler(service, named_query(service, query).id)
        if as_json:
            last = sampler.sample_with_rates()
            rates = {str(vertex): vars(rate) for vertex, rate in last.rates.items()}
            emit({**last.documents, "rates": rates})
        elif once or not console.is_terminal or console.is_dumb_terminal:
            last = sampler.sample_with_rates()
            console.print(frame(last, console.width))
        else:
            last = watched(console, sampler, lambda: time.sleep(every))
        if last.query.status.state == "failed":
            raise typer.Exit(1)


def watched(console: Console, sampler: Sampler, pause: Callable[[], None]) -> Sample:
    """Draw frames on the whole screen until the query ends or the user interrupts; the last one stays.

    While the service does not answer, the last frame stays on the screen with a note that it is old.
    """
    last = sampler.take()
    away_since_s: float | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live, suppress(KeyboardInterrupt):
        live.update(frame(last, console.width, console.height), refresh=True)
        while not last.query.over:
            pause()
            notice = ""
            try:
                last, away_since_s = sampler.take(), None
            except ServiceError as error:
                away_since_s = away_since_s or time.monotonic()
                notice = f"as it was {time.monotonic() - away_since_s:.0f} s ago; trying again: {error}"
            live.update(frame(last, console.width, console.height, notice), refresh=True)
    console.print(frame(last, console.width))
    return last
