"""The command ``penstock``."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

# These modules add their commands to the groups when they are imported.
import penstock.cli.query.control
import penstock.cli.query.reading
import penstock.cli.query.watching
import penstock.cli.snapshot.changing
import penstock.cli.snapshot.draining
import penstock.cli.snapshot.moving
import penstock.cli.snapshot.portable
import penstock.cli.snapshot.reading
import penstock.cli.snapshot.spark  # noqa: F401
from penstock.cli.bench import run as run_benchmarks
from penstock.cli.query.app import query_app
from penstock.cli.snapshot.app import reported, snapshot_app
from penstock.cli.terminal import SafeConsole
from penstock.errors import PenstockError

app = typer.Typer(help="Runs PySpark streaming DataFrames as continuous dataflows.", no_args_is_help=True)
app.add_typer(query_app, name="query")
app.add_typer(snapshot_app, name="snapshot")


@app.callback()
def main() -> None:
    """Run PySpark streaming DataFrames as continuous dataflows."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"penstock {metadata.version('penstock')}")


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which ones; by default all.", metavar="[NAME]...")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Shorter, and nothing is kept; without NAME the ratios that matter most."),
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="Only say which ones there are.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the page and its charts from what is kept.")] = False,
) -> None:
    """Run the benchmarks of a checkout: they keep raw figures beside them and write docs/benchmarks.md."""
    chosen = {"--quick": quick, "--list": listed, "--page": page}
    arguments = [*(names or ()), *(option for option, given in chosen.items() if given)]
    with reported():
        code = run_benchmarks(arguments)
    raise typer.Exit(code)


@app.command()
def demo(
    small: Annotated[bool, typer.Option("--small", help="Two months of flights instead of the whole year.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="The same DataFrame on Structured Streaming.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep input files and the checkpoint location.")] = False,
    job: Annotated[
        Path | None, typer.Option("--job", help="A job file; by default the checkout's demo/job.py.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Where a directory of this run is made.")] = Path("demo/out"),
) -> None:
    """Run the main job on the flights of 2013, slow it down, snapshot it, kill it, and compare with Spark."""
    from pyspark.errors import PySparkException

    console = SafeConsole()
    try:
        # Imported here: the other commands must not wait for Spark.
        from penstock.api.sessions import check_java

        check_java()  # fail before any file is written
        if spark:
            from penstock.cli.demo.spark_run import run_on_spark

            passed = run_on_spark(console, out, small, job)
        else:
            from penstock.cli.demo.scenario import run_demo

            passed = run_demo(console, out, small, keep, job)
    except (PenstockError, PySparkException) as error:
        console.print(f"[bold red]penstock:[/] {error}", highlight=False)
        raise typer.Exit(1) from None
    if not passed:
        raise typer.Exit(1)
