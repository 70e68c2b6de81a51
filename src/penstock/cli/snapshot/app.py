"""Command group ``penstock snapshot``: common options, output and errors of its commands.

Exit codes: 0 done; 1 refused or failed (one line on stderr says why and what to do); 2 wrong arguments. With ``--json``
stdout has exactly one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from penstock.cli.terminal import SafeConsole
from penstock.errors import ConfigError, PenstockError
from penstock.plain_text import json_text

snapshot_app = typer.Typer(help="Looks at snapshots and manages them.", no_args_is_help=True)

Location = Annotated[str, typer.Argument(help="The checkpoint location of a query.", metavar="LOCATION")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]


@contextmanager
def reported() -> Iterator[Console]:
    """Yield the console of a command. An error of Penstock is printed to stderr and ends the command.

    Then the exit code is 2 for wrong arguments, else 1.
    """
    console = SafeConsole()
    try:
        yield console
    except PenstockError as error:
        text = escape(str(error))
        SafeConsole(stderr=True).print(f"[bold red]penstock:[/] {text}", highlight=False, soft_wrap=True)
        raise typer.Exit(2 if isinstance(error, ConfigError) else 1) from None


def emit(document: Any) -> None:
    """Print a document of structs, lists and dicts as JSON."""
    typer.echo(json_text(json.dumps(msgspec.to_builtins(document), indent=2, ensure_ascii=False)))
