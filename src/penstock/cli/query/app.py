"""Command group ``penstock query``: common options of its commands, and the connection to the service.

Exit codes: 0 done; 1 refused, failed, or outcome unknown (one line on stderr says why and what to do); 2 wrong
arguments; 130 interrupted. With ``--json`` stdout has exactly one JSON document.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.query.naming import names_and_ids
from penstock.cli.query.service import TIMEOUT_S, Service, service_at
from penstock.cli.texts import one_line
from penstock.errors import ConfigError, PenstockError
from penstock.private_files import check_private
from penstock.rest.runtime_file import only_service, running_services

query_app = typer.Typer(
    help="Looks at queries that run and steers them, through the REST service of their driver.", no_args_is_help=True
)

URL_VARIABLE = "PENSTOCK_URL"
TOKEN_VARIABLE = "PENSTOCK_TOKEN"
CA_VARIABLE = "PENSTOCK_CA"
MAX_TOKEN_BYTES = 4096
COMPLETION_TIMEOUT_S = 1.0
"""Timeout of shell completion, because the user waits for it."""


def completed(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names and ids that begin with ``incomplete``, for shell completion.

    If the service does not answer in time, the list is empty, because a shell does not show errors.
    """
    try:
        url, token_file, ca = (ctx.params.get(name) for name in ("url", "token_file", "ca"))
        url, ca = url or os.environ.get(URL_VARIABLE, ""), ca or os.environ.get(CA_VARIABLE)
        service = connected(url, token_file, ca, COMPLETION_TIMEOUT_S)
        return names_and_ids(service, incomplete)
    except PenstockError:
        return []


NAMED = "Its name, its id, or the beginning of its id."
QueryName = Annotated[str, typer.Argument(help=NAMED, metavar="QUERY", autocompletion=completed)]
Url = Annotated[
    str,
    typer.Option(
        "--url", envvar=URL_VARIABLE, help="Where the REST service is, as penstock.serve() tells.", metavar="URL"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help=f"A file that holds the token, instead of {TOKEN_VARIABLE}.", metavar="FILE"),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar=CA_VARIABLE,
        help="A PEM file: the certificate of an https:// service, or of who has signed it.",
        metavar="FILE",
    ),
]


def connected(url: str, token_file: Path | str | None, ca: Path | str | None, timeout_s: float = TIMEOUT_S) -> Service:
    """Return the service at ``url``. If ``url`` is empty, return the only service of this user on this machine.

    Without ``token_file`` the token of a service of this user is read from its runtime file, see ``runtime_file``.
    Nothing is sent to the service yet.

    Raises:
        ConfigError: the address or the token is not valid, or ``url`` is empty and several services run.
        ServiceUnreachable: ``url`` is empty and no service runs.
    """
    token, own = _token(token_file), None
    if not url:
        own = only_service()
    elif token is None:
        own = next((one for one in running_services() if one.url == url.rstrip("/")), None)
    if own is not None:
        url, token = own.url, own.token if token is None else token
    return service_at(url, token, timeout_s, ca=None if ca is None else str(ca))


def _token(token_file: Path | str | None) -> str | None:
    if token_file is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    option = f"--token-file {one_line(str(token_file))}"
    try:
        check_private("--token-file", token_file)
        with Path(token_file).open("rb") as file:
            token = file.read(MAX_TOKEN_BYTES + 1).decode("ascii").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no ASCII text"
        raise ConfigError(f"{option} cannot be read: {why}") from error
    if len(token) > MAX_TOKEN_BYTES:
        raise ConfigError(f"{option} is no file of a token: it has more than {MAX_TOKEN_BYTES} bytes")
    return token
