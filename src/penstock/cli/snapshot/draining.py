"""``penstock snapshot drain``: run a stopped query without new input until nothing is in flight.

A location stores no user functions, sources or sinks, so the user's program must build the query again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.snapshot.app import AsJson, emit, reported, snapshot_app
from penstock.cli.snapshot.changing import Force
from penstock.cli.snapshot.file_client import located
from penstock.cli.snapshot.spark import returned
from penstock.errors import ConfigError, QueryFailed
from penstock.model.ids import snapshot_id
from penstock.snapshots.commands import ownership
from penstock.snapshots.log.snapshot_log import SnapshotLog

if TYPE_CHECKING:
    from penstock.api.writer import DataStreamWriter


@snapshot_app.command()
def drain(
    location: Annotated[
        str,
        typer.Argument(
            help="The checkpoint location of a query that does not run. A snapshot that is named must be its newest.",
            metavar="LOCATION[#SNAPSHOT]",
        ),
    ],
    query: Annotated[
        str,
        typer.Option(
            "--query",
            help="What builds the query as it was: FILE.py:FUNCTION or MODULE:FUNCTION. It is called with the Spark "
            "session, or without arguments, and returns the writer (penstock.writeStream(df)...), not started, or a "
            "list of writers.",
            metavar="PLACE:FUNCTION",
        ),
    ],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Process what is in flight in the newest snapshot, without new input, and take a snapshot without it."""
    with reported() as console:
        root = location.rpartition("#")[0] if "#" in location else location
        with located(root) as store:
            ownership.require_stopped(store, force=force)
            _run(_writers(query), location, root)
            snapshot = snapshot_id(SnapshotLog(store).refresh().lineage[-1].checkpoint)
        if as_json:
            emit({"snapshot": snapshot})
        else:
            console.print(f"nothing is in flight in {snapshot}: an edited query can start from it", highlight=False)


def _writers(reference: str) -> Sequence[DataStreamWriter]:
    from penstock.api.writer import DataStreamWriter

    found = returned(reference)
    writers = list(found) if isinstance(found, list | tuple) else [found]
    if not writers or not all(isinstance(writer, DataStreamWriter) for writer in writers):
        raise ConfigError(
            f"--query {reference}: it returned a {type(found).__name__}; it must return a writer from "
            "penstock.writeStream(df), not started, or a list of them"
        )
    return writers


def _run(writers: Sequence[DataStreamWriter], location: str, root: str) -> None:
    from pyspark.errors import StreamingQueryException

    from penstock.api.several import start

    for writer in writers:
        writer.option("checkpointLocation", root).option("startFrom", location).option("startMode", "drain")
    query = start(writers) if len(writers) > 1 else writers[0].start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise QueryFailed(str(error.__cause__ or error)) from error
