"""Many small files, read by Spark's batch reader in one query and one by one by the file source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.catalyst.types import to_arrow_schema
from penstock.connectors.files.source import FileSource
from penstock.errors import PenstockError
from penstock.functions.text.java_utf8 import decode_as_java
from tests.support.connectors.kits import discover_all, new_reader, next_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[str, ...]]
_NAME = "file of the row"


def differences(
    spark: SparkSession, kind: str, folder: Path, ddl: str, options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the differences by file name in the folder.

    If the source refuses all files with an error of ``errors.py``, there is no difference. If it refuses one file that
    Spark reads, there is.
    """
    options = options or {}
    expected = _sparks(spark, kind, folder, ddl, options)
    from pyspark.sql.types import StructType

    schema = to_arrow_schema(StructType.fromDDL(ddl).json())
    source = FileSource(kind, str(folder), pa.schema([field.with_nullable(True) for field in schema]), options)
    found = _ours(source)
    return {
        name: f"ours {found.get(name, [])}\n   Spark's {expected.get(name, [])}"
        for name in sorted({*expected, *found})
        if expected.get(name, []) != found.get(name, [])
    }


def _ours(source: FileSource) -> dict[str, Rows | str]:
    found: dict[str, Rows | str] = {}
    for split in discover_all(source):
        reader = new_reader(source)
        reader.add_split(split)
        path = Path(str(split.spec["path"]))
        rows: Rows = []
        try:
            while (batch := next_batch(reader, 1000)) is not None:
                batch.validate(full=True)
                rows += rows_of(batch.columns, batch.num_rows)
            found[path.name] = rows
        except PenstockError as error:
            names = "" if str(path) in str(error) else "it does not name the file, "
            found[path.name] = f"{names}{type(error).__name__}: {error}"
    return found


def _sparks(spark: SparkSession, kind: str, folder: Path, ddl: str, options: Mapping[str, str]) -> dict[str, Rows]:
    df = spark.read.format(kind).schema(ddl).options(**options).load(str(folder))
    table = df.selectExpr(f"_metadata.file_name as `{_NAME}`", "*").toArrow()
    found: dict[str, Rows] = {}
    names = table.column(0).to_pylist()
    for name, row in zip(names, rows_of(table.columns[1:], table.num_rows), strict=True):
        found.setdefault(name, []).append(row)
    return found


def rows_of(columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> Rows:
    texts = [list(map(repr, plain_values(_one_chunk(column)))) for column in columns]
    return list(zip(*texts, strict=True)) if texts else [()] * count


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def plain_values(array: pa.Array) -> list[Any]:
    """Return values that can be compared: dates and timestamps as numbers, and texts as Java prints them."""
    types, kind = pa.types, array.type
    if types.is_struct(kind):
        children = zip(*map(plain_values, array.flatten()), strict=True) if kind.num_fields else iter([()] * len(array))
        return [row if valid else None for row, valid in zip(children, array.is_valid().to_pylist(), strict=True)]
    if types.is_map(kind):
        return list(_parts(array, list(zip(plain_values(array.keys), plain_values(array.items), strict=True))))
    if types.is_list(kind):
        return list(_parts(array, plain_values(array.values)))
    if types.is_string(kind):
        return [None if text is None else decode_as_java(text) for text in array.cast(pa.binary()).to_pylist()]
    if types.is_date32(kind):
        return array.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if types.is_timestamp(kind) or types.is_duration(kind):
        return array.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return array.to_pylist()  # type: ignore[no-any-return]


def _parts(array: pa.Array, values: list[Any]) -> Iterator[list[Any] | None]:
    offsets = array.offsets.to_pylist()
    for place, valid in enumerate(array.is_valid().to_pylist()):
        yield values[offsets[place] : offsets[place + 1]] if valid else None
