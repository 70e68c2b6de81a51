"""Reading of ORC files with a given schema, as Spark reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import dataset, fs, orc

from penstock.connectors.files.columns import rows_without_columns
from penstock.connectors.files.orc.footers import check_footer
from penstock.connectors.files.parquet.calendars import gregorian_dates
from penstock.connectors.files.parquet.reading import (
    BATCH_ROWS,
    MOST_PAGE_BYTES,
    ParquetFormat,
    find_columns,
    page_bytes,
)
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import DataError, NotSupported

_HIVES_NAME = "_col"
"""Prefix of Hive's column names. If all names have it, Spark reads columns by position."""


def orc_format(schema: pa.Schema, options: OptionTexts, time_zone: str, case_sensitive: bool = False) -> OrcFormat:
    """Parse the options. Raise NotSupported for a column that ``only_spark_reads`` yields."""
    options.without_effect("mergeSchema")
    for path in only_spark_reads(schema):
        raise NotSupported(f"column {path}: timestamps, and dates inside of other values, are not read from ORC files")
    return OrcFormat(schema, case_sensitive, page_bytes(options))


def only_spark_reads(schema: pa.Schema) -> Iterator[str]:
    """Yield the paths of columns that Penstock cannot read as Spark does: timestamps, and dates inside other values.

    Arrow reads ORC timestamps in nanoseconds, whose range begins in 1677, and ignores the writer's time zone and
    calendar.
    """
    for field in schema:
        yield from _unreadable(field.name, field.type, inner=False)


def _unreadable(path: str, kind: pa.DataType, inner: bool) -> Iterator[str]:
    if pa.types.is_timestamp(kind) or (inner and pa.types.is_date(kind)):
        yield path
    for index in range(kind.num_fields):
        yield from _unreadable(f"{path}.{kind.field(index).name}", kind.field(index).type, inner=True)


@dataclass(frozen=True)
class OrcFormat:
    """Format of ORC files: a function ``(path, skip_rows)`` that reads a file.

    Columns are read by name; a missing column is null.

    Attributes:
        page_bytes: limit for a block and for the footer, in bytes after decompression; see ``footers``.
    """

    schema: pa.Schema
    case_sensitive: bool = False
    page_bytes: int = MOST_PAGE_BYTES

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        check_footer(path, self.page_bytes)
        file = orc.ORCFile(path)
        if file.schema.names and all(name.startswith(_HIVES_NAME) for name in file.schema.names):
            raise DataError(f"{path} was written by Hive without names of columns; write it again with Spark")
        columns = find_columns(path, self.schema, file.schema, self.case_sensitive)
        names = [name for name in columns if name is not None]
        conformed = ParquetFormat(self.schema, self.case_sensitive, binary_is_text=False).conformed
        for batch in _batches(path, file, names):
            dropped = min(skip_rows, batch.num_rows)
            skip_rows -= dropped
            if dropped < batch.num_rows:
                yield conformed(path, _gregorian(batch.slice(dropped)), columns)


def _batches(path: str, file: orc.ORCFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file, with Arrow's scanner.

    The scanner reads a stripe in parts. This saves memory: a stripe of a few KiB may decode to several GiB.
    """
    if not names:
        rows = rows_without_columns(file.nrows)
        yield from (rows.slice(start, BATCH_ROWS) for start in range(0, rows.num_rows, BATCH_ROWS))
        return
    columns = {name: dataset.field(name) for name in names}
    fragment = dataset.OrcFileFormat().make_fragment(path, fs.LocalFileSystem())
    scanner = fragment.scanner(
        columns=columns, batch_size=BATCH_ROWS, batch_readahead=0, fragment_readahead=0, use_threads=False
    )
    yield from scanner.to_batches()


def _gregorian(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert ORC dates before 1582-10-15, which Spark reads and writes by the Julian calendar."""
    columns = [gregorian_dates(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch
