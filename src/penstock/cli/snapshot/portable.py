"""``penstock snapshot export`` and ``convert``: convert a snapshot to a portable snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.snapshot.app import AsJson, Location, emit, reported, snapshot_app
from penstock.cli.snapshot.reading import _bar
from penstock.cli.snapshot.spark import OptionalQuery, OutputMode, export_offsets
from penstock.snapshots.store.stores import location_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.snapshots.portable.jobs import RunJobs

_Directory = Annotated[str, typer.Argument(help="A portable snapshot, s3://bucket/prefix too.", metavar="DIRECTORY")]


class ExportTo(Enum):
    """Format that ``export`` writes."""

    PORTABLE = "portable"
    SPARK_OFFSETS = "spark-offsets"


@snapshot_app.command()
def export(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help="Its id or label.", metavar="SNAPSHOT")],
    directory: Annotated[
        str, typer.Argument(help="Where to, s3://bucket/prefix too; it must not be there yet.", metavar="DIRECTORY")
    ],
    master: Annotated[
        str, typer.Option("--spark", help="Write its files in a Spark application of this master.", metavar="MASTER")
    ] = "",
    to: Annotated[ExportTo, typer.Option("--to", help="The format; spark-offsets needs --query.")] = ExportTo.PORTABLE,
    query: OptionalQuery = None,
    output_mode: OutputMode = "append",
    as_json: AsJson = False,
) -> None:
    """Write a snapshot as Parquet files and Arrow streams for other programs.

    With ``--to spark-offsets``, write the source positions as a checkpoint for Spark's own engine instead.
    """
    if to is ExportTo.SPARK_OFFSETS:
        export_offsets(location, snapshot, Path(directory).absolute(), query, output_mode, as_json)
        return
    from penstock.snapshots.portable.export import export_snapshot  # imported late, because pyarrow loads slowly

    with reported() as console, _running(master) as run:
        target = location_text(directory)
        with _bar("exporting", hidden=as_json, is_bytes=False) as progress:
            manifest = export_snapshot(location, snapshot, target, run=run, progress=progress)
        files = manifest.files()
        document = {
            "snapshot": manifest.metadata.id,
            "query_id": manifest.metadata.query_id,
            "directory": target,
            "files": len(files) + 1,
            "bytes": sum(file.length for file in files),
            "state_rows": sum(part.rows for table in manifest.tables for part in table.parts),
            "inflight_rows": sum(stream.rows for stream in manifest.streams),
        }
        if as_json:
            emit(document)
        else:
            console.print(
                f"{document['snapshot']} is in {directory}: {document['state_rows']:,} rows of state, "
                f"{document['inflight_rows']:,} in flight, {document['bytes']:,} bytes",
                highlight=False,
                soft_wrap=True,
            )


@contextmanager
def _session(master: str) -> Iterator[SparkSession]:
    """Yield a session of a Spark master. It is stopped at the end, unless this process had an active session before."""
    from pyspark.sql import SparkSession

    from penstock.api.sessions import session

    active = SparkSession.getActiveSession()
    spark = session("penstock snapshot", {"spark.master": master})
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


@contextmanager
def _running(master: str) -> Iterator[RunJobs]:
    """Yield the runner that writes the large files of an export: threads, or a Spark application."""
    from penstock.snapshots.portable.jobs import run_in_threads
    from penstock.spark.snapshot_jobs import in_executors

    if master:
        with _session(master) as spark:
            yield in_executors(spark)
    else:
        yield run_in_threads


@snapshot_app.command()
def convert(
    directory: _Directory,
    location: Annotated[str, typer.Argument(help="A new checkpoint location.", metavar="LOCATION")],
    master: Annotated[
        str, typer.Option("--spark", help="Bring the state by tasks of this Spark master.", metavar="MASTER")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint location from a portable snapshot; a query started there goes on from it."""
    from penstock.snapshots.portable.convert import convert_snapshot

    with reported() as console:
        origin, target = location_text(directory), location_text(location)
        if master:
            from penstock.interop.spark_data.conversion import convert_with_spark

            with _session(master) as spark, _bar("converting", hidden=as_json, is_bytes=False) as progress:
                metadata = convert_with_spark(spark, origin, target, progress=progress)
        else:
            with _bar("converting", hidden=as_json, is_bytes=False) as progress:
                metadata = convert_snapshot(origin, target, progress=progress)
        if as_json:
            emit({"snapshot": metadata.id, "origin": metadata.query_id, "location": target})
        else:
            console.print(
                f"{location} begins with {metadata.id} of query {metadata.query_id}", highlight=False, soft_wrap=True
            )
