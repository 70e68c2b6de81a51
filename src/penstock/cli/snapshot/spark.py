"""``penstock snapshot import`` and ``export --to spark-offsets``: move a query from Spark's own engine, and back.

Both need the query's DataFrame. A Python function of the user builds it: ``job.py:build`` or ``package.module:build``.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.snapshot.app import AsJson, emit, reported, snapshot_app
from penstock.cli.snapshot.reading import _bar
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY = typer.Option(
    "--query",
    help="What builds the DataFrame: FILE.py:FUNCTION or MODULE:FUNCTION. It is called with the Spark session, or "
    "without arguments.",
    metavar="PLACE:FUNCTION",
)
Query = Annotated[str, _QUERY]
OptionalQuery = Annotated[str | None, _QUERY]
OutputMode = Annotated[str, typer.Option("--output-mode", help="As the query has it.")]


@snapshot_app.command("import")
def import_checkpoint(
    checkpoint: Annotated[
        str, typer.Argument(help="The checkpointLocation on Spark's engine.", metavar="SPARK_CHECKPOINT")
    ],
    target: Annotated[str, typer.Argument(help="A new checkpoint location.", metavar="TARGET")],
    query: Query,
    output_mode: OutputMode = "append",
    parallelism: Annotated[int | None, typer.Option(help="Of the snapshot; a start may choose another one.")] = None,
    planned: Annotated[
        str,
        typer.Option(
            help="For a batch that Spark has planned but not committed: 'exact' processes it first, with its own id "
            "and rows; 'again' reads its rows again under new ids."
        ),
    ] = "exact",
    as_json: AsJson = False,
) -> None:
    """Take a query over from Spark's engine: positions, event time and state."""
    with reported() as console:
        df = built(query)
        from penstock.interop.spark_checkpoint.importing import import_checkpoint

        with _bar("taking over Spark's state", hidden=as_json, is_bytes=False) as progress:
            taken = import_checkpoint(df, checkpoint, target, output_mode, parallelism, planned, progress)
        if as_json:
            emit(taken)
            return
        console.print(
            f"{target} begins with {taken.snapshot}: batch {taken.batch} of Spark's query {taken.query_id}, "
            f"{taken.state_rows:,} rows of state",
            highlight=False,
            soft_wrap=True,
        )
        if taken.planned is not None:
            console.print(
                f"Batch {taken.planned} was planned and not committed: "
                + (
                    "the query processes it first, with its own id and exactly its rows."
                    if planned == "exact"
                    else "its rows are read again. See that the sink of Spark's query does not have them already."
                ),
                highlight=False,
                soft_wrap=True,
            )


def export_offsets(
    location: str, snapshot: str, directory: Path, query: str | None, output_mode: str, as_json: bool
) -> None:
    """Export offsets, as ``penstock snapshot export --to spark-offsets``."""
    with reported() as console:
        if query is None:
            raise ConfigError("--to spark-offsets needs --query: what builds the query's DataFrame")
        df = built(query)
        from penstock.interop.spark_checkpoint.exporting import exportSparkOffsets

        written = exportSparkOffsets(df, location, str(directory), snapshot=snapshot, outputMode=output_mode)
        if as_json:
            emit(written)
            return
        read = "" if written.files is None else f", {written.files:,} files"
        console.print(
            f"{directory} is a checkpoint that Spark's engine goes on from: {written.snapshot}{read}",
            highlight=False,
            soft_wrap=True,
        )


def built(reference: str) -> DataFrame:
    """Call the user's function in a Spark session and return its DataFrame.

    Raises:
        ConfigError: the file, module or function does not exist, or it raises or does not return a DataFrame.
        ResourceError: there is no Java for a Spark session.
    """
    from pyspark.sql import DataFrame

    found = returned(reference)
    if not isinstance(found, DataFrame):
        raise ConfigError(f"--query {reference}: it returned a {type(found).__name__}; it must return a DataFrame")
    return found


def returned(reference: str) -> Any:
    """Call the user's function in a Spark session and return its result.

    Raises:
        ConfigError: the file, module or function does not exist, or it raises.
        ResourceError: there is no Java for a Spark session.
    """
    name, separator, function_name = reference.rpartition(":")
    if not separator or not name or not function_name:
        raise ConfigError(f"--query {reference}: write FILE.py:FUNCTION or MODULE:FUNCTION")
    function = _function(reference, name, function_name)

    from penstock.api.sessions import session

    spark = session()
    try:
        return _called(function, spark)
    except Exception as error:
        raise ConfigError(f"--query {reference}: it raised {_one_line_error(error)}") from error


def _called(function: Callable[..., Any], spark: SparkSession) -> Any:
    return function(spark) if inspect.signature(function).parameters else function()


def _one_line_error(error: Exception) -> str:
    """Return the class and the first line of the error."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


def _function(reference: str, name: str, function_name: str) -> Callable[..., Any]:
    sys.path.insert(0, "")  # modules of the working directory can be imported, as with ``python -m``
    try:
        module = _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except Exception as error:
        raise ConfigError(f"--query {reference}: {name} cannot be imported: {_one_line_error(error)}") from error
    finally:
        sys.path.remove("")
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigError(f"--query {reference}: {name} has no function {function_name}")
    return function  # type: ignore[no-any-return]


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError("there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # its classes and functions may be pickled by name
    spec.loader.exec_module(module)
    return module
