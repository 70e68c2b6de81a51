"""Spark's batch readers of files, for the Spark lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from penstock.connectors.hadoop_globs import is_glob
from penstock.errors import DataError
from penstock.spark.messages import first_line

_AS_THEY_ARE = {"__globPaths__": "false"}
"""Spark's own option: a path is no pattern."""


class SparkFiles:
    """See ``penstock.connectors.spark_files.SparkReader``.

    Args:
        spark: a classic session.
        format: as the stream's.
        schema: the stream's, partition columns included.
        columns: what of it, and of ``_metadata``, is read.
        path: the stream's: without wildcards, partition directories are those below it, as in Spark's own stream.
    """

    def __init__(
        self,
        spark: SparkSession,
        format: str,  # noqa: A002 - as Spark calls it
        schema: StructType,
        columns: Sequence[str],
        path: str,
    ) -> None:
        self._spark = spark
        self._format = format
        self._schema = schema
        self._columns = columns
        self._base = {} if is_glob(path) else {"basePath": path}

    def stage(self, files: Sequence[str], options: Mapping[str, str], directory: str) -> None:
        given = {**options, **_AS_THEY_ARE, **self._base}
        reader = self._spark.read.format(self._format).schema(self._schema).options(**given)
        quoted = [f"`{name.replace('`', '``')}`" for name in self._columns]
        try:
            reader.load(list(files)).select(*map(col, quoted)).write.parquet(directory)
        except (PySparkException, Py4JJavaError) as error:
            raise DataError(
                f"Spark cannot read {len(files)} files of format {self._format} ({', '.join(files[:3])}"
                f"{', ...' if len(files) > 3 else ''}): {first_line(error)}"
            ) from error
