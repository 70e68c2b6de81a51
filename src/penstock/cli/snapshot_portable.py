"""``penstock snapshot export`` and ``convert``: to a portable snapshot and back."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.snapshot_app import AsJson, Location, emit, reported, snapshot_app
from penstock.cli.snapshot_spark import OptionalQuery, OutputMode, export_offsets

_Directory = Annotated[Path, typer.Argument(help="A portable snapshot.", metavar="DIRECTORY")]


class ExportTo(Enum):
    """What ``export`` writes."""

    PORTABLE = "portable"
    SPARK_OFFSETS = "spark-offsets"


@snapshot_app.command()
def export(
    location: Location,
    snapshot: Annotated[str, typer.Argument(help="Its id or label.", metavar="SNAPSHOT")],
    directory: Annotated[Path, typer.Argument(help="Where to; it must not be there yet.", metavar="DIRECTORY")],
    to: Annotated[ExportTo, typer.Option("--to", help="The format; spark-offsets needs --query.")] = ExportTo.PORTABLE,
    query: OptionalQuery = None,
    output_mode: OutputMode = "append",
    as_json: AsJson = False,
) -> None:
    """Write a snapshot as Parquet files and Arrow streams that other programs read, or how far it has read as a
    checkpoint that Spark's own engine goes on from (--to spark-offsets)."""
    if to is ExportTo.SPARK_OFFSETS:
        export_offsets(location, snapshot, directory.absolute(), query, output_mode, as_json)
        return
    from penstock.snapshot.portable.export import export_snapshot  # pyarrow takes a moment

    with reported() as console:
        manifest = export_snapshot(location, snapshot, directory.absolute())
        files = manifest.files()
        document = {
            "snapshot": manifest.metadata.id,
            "query_id": manifest.metadata.query_id,
            "directory": str(directory.absolute()),
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


@snapshot_app.command()
def convert(
    directory: _Directory,
    location: Annotated[str, typer.Argument(help="A new checkpoint location.", metavar="LOCATION")],
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint location from a portable snapshot; a query started there goes on from it."""
    from penstock.connectors.local_files import local_path
    from penstock.snapshot.portable.convert import convert_snapshot

    with reported() as console:
        target = Path(local_path(location))
        metadata = convert_snapshot(directory.absolute(), target)
        if as_json:
            emit({"snapshot": metadata.id, "origin": metadata.query_id, "location": str(target)})
        else:
            console.print(
                f"{location} begins with {metadata.id} of query {metadata.query_id}", highlight=False, soft_wrap=True
            )
