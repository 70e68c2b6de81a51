"""The same files through Spark's own batch reader and through ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.connectors.files.source import FileSource
from tests.support.connectors.kits import discover_all, new_reader, read_rows, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ours(kind: str, path: Path, ddl: str, options: Mapping[str, str]) -> list[tuple[Any, ...]]:
    schema = to_arrow_schema(StructType.fromDDL(ddl), timezone="UTC")
    source = FileSource(kind, str(path), pa.schema([pa.field(f.name, f.type) for f in schema]), options)
    reader = new_reader(source)
    for split in discover_all(source):
        reader.add_split(split)
    return read_rows(reader)


def sparks(spark: SparkSession, kind: str, path: Path, ddl: str, options: Mapping[str, str]) -> list[tuple[Any, ...]]:
    table = spark.read.format(kind).schema(ddl).options(**options).load(str(path)).toArrow()
    return rows_of(table)


def assert_same(
    spark: SparkSession, kind: str, path: Path, ddl: str, options: Mapping[str, str], lines: list[str]
) -> None:
    actual, expected = ours(kind, path, ddl, options), sparks(spark, kind, path, ddl, options)
    if len(actual) == len(expected) == len(lines):
        different = [(x, a, e) for x, a, e in zip(lines, actual, expected, strict=True) if repr(a) != repr(e)]
        assert not different, "\n".join(f"{line!r}: ours {a}, Spark's {e}" for line, a, e in different[:40])
    assert [repr(row) for row in actual] == [repr(row) for row in expected]
