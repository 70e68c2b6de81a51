"""Spark's batch readers of files, for the Spark source bridge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from penstock.errors import UnfitFile
from penstock.spark.messages import first_line

_AS_THEY_ARE = {"__globPaths__": "false"}
"""Spark's internal option that a path is not a pattern."""
_NAMED = 3
"""Number of files that an error message names."""


class SparkFiles:
    """Reader of files with Spark; see ``penstock.connectors.spark.files.SparkFileReader``.

    Args:
        spark: a classic session.
        format: format of the stream.
        schema: schema of the stream, including partition columns.
        columns: columns to read, including those of ``_metadata``.
    """

    def __init__(
        self,
        spark: SparkSession,
        format: str,  # noqa: A002 - as Spark calls it
        schema: StructType,
        columns: Sequence[str],
    ) -> None:
        self._spark = spark
        self._format = format
        self._schema = schema
        self._columns = [f"`{name.replace('`', '``')}`" for name in columns]

    def stage(self, files: Mapping[str, Sequence[str]], options: Mapping[str, str], directory: str) -> None:
        try:
            parts = [self._rows(root, paths, options) for root, paths in files.items()]
            reduce(DataFrame.union, parts).write.parquet(_uri(directory))
        except (PySparkException, Py4JJavaError) as error:
            paths = [path for of_root in files.values() for path in of_root]
            more = ", ..." if len(paths) > _NAMED else ""
            raise UnfitFile(
                f"Spark cannot read {len(paths)} files of format {self._format} ({', '.join(paths[:_NAMED])}{more}): "
                f"{first_line(error)}"
            ) from error

    def _rows(self, root: str, paths: Sequence[str], options: Mapping[str, str]) -> DataFrame:
        given = {**options, **_AS_THEY_ARE, **({"basePath": _uri(root)} if root else {})}
        reader = self._spark.read.format(self._format).schema(self._schema).options(**given)
        return reader.load([_uri(path) for path in paths]).select(*map(col, self._columns))


def _uri(path: str) -> str:
    """Return the URI of a path on Spark's default file system. Hadoop's paths are not percent-encoded."""
    return f"file://{path}"
