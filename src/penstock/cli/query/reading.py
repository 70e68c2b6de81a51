"""``penstock query list`` and ``show``."""

from __future__ import annotations

from penstock.cli.query.app import Ca, QueryName, TokenFile, Url, connected, query_app
from penstock.cli.query.models import Exceptions, Graph, Query, QueryList, understood
from penstock.cli.query.naming import named_query
from penstock.cli.snapshot.app import AsJson, emit, reported
from penstock.cli.terminal import say
from penstock.cli.texts import one_line

HEADINGS = ("query", "name", "state", "parallelism", "checkpoints", "restarts", "doing")
RIGHT = ("parallelism", "checkpoints", "restarts")


@query_app.command("list")
def list_command(url: Url = "", token_file: TokenFile = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """List the queries of the driver: those that run, then those that ended last."""
    with reported():
        service = connected(url, token_file, ca)
        answer = service.get("queries")
        queries = understood(service, answer.document, QueryList).queries
        if as_json:
            emit(answer.document)
        elif queries:
            _print_list(queries)
        else:
            say(f"{service.url} knows no query: none runs in its driver, and none has ended lately")


@query_app.command("show")
def show_command(
    query: QueryName, url: Url = "", token_file: TokenFile = None, ca: Ca = None, as_json: AsJson = False
) -> None:
    """Show a query: its requested and its actual state, its dataflow, its failure and its recoveries."""
    from penstock.cli.query.printing import print_query

    with reported() as console:
        service = connected(url, token_file, ca)
        name = named_query(service, query).id
        documents = [service.get("queries", name, *more).document for more in ((), ("graph",), ("exceptions",))]
        found = understood(service, documents[0], Query)
        graph = understood(service, documents[1], Graph)
        exceptions = understood(service, documents[2], Exceptions)
        if as_json:
            emit({**documents[0], "graph": documents[1], "exceptions": documents[2]})
        else:
            print_query(console, found, graph, exceptions)


def _print_list(queries: list[Query]) -> None:
    lines = [HEADINGS, *map(_listed, queries)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if heading in RIGHT else cell.ljust(width)
            for cell, width, heading in zip(line, widths, HEADINGS, strict=True)
        )
        say("  ".join(cells).rstrip())


def _listed(query: Query) -> tuple[str, ...]:
    status, requested = query.status, query.spec.parallelism
    failed = f", {status.checkpoints_failed} failed" if status.checkpoints_failed else ""
    return (
        query.short_id,
        one_line(query.name or "", 40),
        one_line(status.state),
        str(requested) if status.parallelism == requested or query.over else f"{status.parallelism}, to be {requested}",
        f"{status.checkpoints_completed:,}{failed}",
        str(status.restarts),
        one_line(status.message, 100),
    )
