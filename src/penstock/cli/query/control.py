"""``penstock query rescale``, ``suspend``, ``resume``, ``stop`` and ``set``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import typer

from penstock.cli.query.app import Ca, QueryName, TokenFile, Url, connected, query_app
from penstock.cli.query.models import Operation
from penstock.cli.query.naming import named_query
from penstock.cli.query.operations import DRIVER_ENDED, RUNNING, begun_text, followed, succeeded
from penstock.cli.query.service import Service
from penstock.cli.query.spec_changes import SpecChange, change_spec
from penstock.cli.snapshot.app import AsJson, emit, reported
from penstock.cli.terminal import say
from penstock.cli.texts import exact_text, one_line
from penstock.config import alignment as parse_alignment
from penstock.config import checkpoint_duration_ms as parse_interval
from penstock.errors import ConfigError, ServiceRefused

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once it is begun, without waiting for its end.")]


@query_app.command()
def rescale(
    query: QueryName,
    parallelism: Annotated[int, typer.Argument(help="Slots that it is to run on.", metavar="N", min=1)],
    no_wait: NoWait = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Have a query run at another parallelism, and wait until it does. It goes on from a snapshot: nothing is lost."""
    with reported():
        service = connected(url, token_file, ca)
        change = change_spec(service, named_query(service, query).id, {"parallelism": parallelism})
        _refuse_ended(change)
        ended = _carried_out(service, change, no_wait, as_json)
        already = "is to run" if change.query.status.parallelism != parallelism else "runs"
        waits = change.query.status.state == "suspended"
        _print_result(
            change,
            ended,
            as_json,
            f"{'is suspended, and is resumed' if waits else 'runs'} at parallelism {parallelism}",
            f"{already} at parallelism {parallelism} already",
        )


@query_app.command()
def stop(
    query: QueryName,
    no_wait: NoWait = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Stop a query. It goes on from its newest snapshot when its program starts it again."""
    with reported():
        service = connected(url, token_file, ca)
        change = change_spec(service, named_query(service, query).id, {"state": "stopped"})
        ended = _carried_out(service, change, no_wait, as_json)
        driver_ended = ended is not None and ended.state == DRIVER_ENDED
        already = "has ended already" if change.query.over else "is being stopped already"
        _print_result(change, ended, as_json, "has ended with its driver" if driver_ended else "has stopped", already)


@query_app.command()
def suspend(
    query: QueryName,
    no_wait: NoWait = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Take a snapshot, commit what it covers, and give the query's slots back. It waits for resume, in its driver."""
    with reported():
        service = connected(url, token_file, ca)
        change = change_spec(service, named_query(service, query).id, {"state": "suspended"})
        _refuse_ended(change)
        ended = _carried_out(service, change, no_wait, as_json)
        _print_result(change, ended, as_json, "is suspended", "is suspended already")


@query_app.command()
def resume(
    query: QueryName,
    snapshot: Annotated[str, typer.Option("--from", help="An older snapshot, by id or label: a rollback.")] = "",
    output: Annotated[str, typer.Option("--output", help="What was written since: retract or keep.")] = "",
    no_wait: NoWait = False,
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Have a suspended query go on where it was, or from an older snapshot."""
    with reported():
        resume_from = _resume_from(snapshot, output)
        service = connected(url, token_file, ca)
        change = change_spec(service, named_query(service, query).id, {"state": "running"}, resume_from)
        _refuse_ended(change)
        ended = _carried_out(service, change, no_wait, as_json)
        where = f" from {one_line(snapshot)}" if snapshot else ""
        _print_result(change, ended, as_json, f"goes on{where}", "runs already")


def _resume_from(snapshot: str, output: str) -> dict[str, Any]:
    if output and not snapshot:
        raise ConfigError("--output says nothing without --from: it is what becomes of what was written behind that")
    if not snapshot:
        return {}
    return {"resume_from": {"snapshot": snapshot, **({"output": output} if output else {})}}


@query_app.command("set")
def set_command(
    query: QueryName,
    interval: Annotated[str, typer.Option("--interval", help="Between checkpoints: 500ms, 5s, 2m.")] = "",
    alignment: Annotated[str, typer.Option("--alignment", help="auto, aligned or unaligned.")] = "",
    url: Url = "",
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Change how a query takes its checkpoints, from the next one on. A later start has what its program says."""
    with reported():
        changes = _checkpoint_changes(interval, alignment)
        service = connected(url, token_file, ca)
        change = change_spec(service, named_query(service, query).id, {"checkpoint": changes})
        _refuse_ended(change)
        every = [f"every {exact_text(changes['interval_ms'])}"] if interval else []
        settings = ", ".join([*every, *([changes["alignment"]] if alignment else [])])
        _print_result(change, None, as_json, f"takes checkpoints {settings}", f"takes checkpoints {settings} already")


def _checkpoint_changes(interval: str, alignment: str) -> dict[str, Any]:
    if not interval and not alignment:
        raise ConfigError("say what to set: --interval 5s, --alignment unaligned, or both")
    changes: dict[str, Any] = {}
    if interval:
        changes["interval_ms"] = parse_interval("--interval", interval)
    if alignment:
        changes["alignment"] = parse_alignment("--alignment", alignment).value
    return changes


def _refuse_ended(change: SpecChange) -> None:
    """Refuse a query that has ended. The service accepts requests that change nothing, but users expect an effect."""
    if change.query.over:
        raise ServiceRefused(f"{change.query.called} has ended: start it again in its program", HTTPStatus.CONFLICT)


def _carried_out(service: Service, change: SpecChange, no_wait: bool, as_json: bool) -> Operation | None:
    """Wait for the operation of a change and return it; with ``no_wait``, return it without waiting.

    Returns:
        The operation; None if the change needs none.

    Raises:
        ServiceError: the operation failed.
        NoAnswer: its outcome is not known.
    """
    begun, query = change.operation, change.query
    if begun is None or (no_wait and begun.state == RUNNING):
        return begun
    status_command = f"penstock query show {query.short_id}"
    return succeeded(followed(service, query, begun, hidden=as_json, status_command=status_command), query)


def _print_result(change: SpecChange, ended: Operation | None, as_json: bool, now: str, before: str) -> None:
    query = change.query
    if as_json:
        document = {
            "query_id": query.id,
            "name": query.name,
            "asked": change.changes,
            "changed": change.changed,
        }
        emit({**document, "operation": ended})
    elif ended is not None and ended.state == RUNNING:
        say(f"{begun_text(ended, query)} is begun; `penstock query show {query.short_id}` tells where it is")
    else:
        say(f"{query.called} {now if change.changed or ended is not None else before}")
