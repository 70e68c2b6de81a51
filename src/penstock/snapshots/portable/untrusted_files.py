"""Readers of Arrow streams and Parquet files that may be forged. They check each file before they decode it in parts.

Files may not be compressed and may not have dictionaries. So decoded data is about as large as the file, and a small
file cannot become large in memory. Buffers are validated, because no later code does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptSnapshot
from penstock.model.plain import Plain
from penstock.snapshots.format.arrow_streams import check_schema, check_stream, decoding
from penstock.snapshots.portable.columns import arrow_type, column_texts
from penstock.snapshots.portable.layout import Table, TablePart
from penstock.snapshots.portable.parquet_pages import RowGroup, check_pages, read_footer
from penstock.snapshots.writing.checkpoint_writer import BUFFER_ID, BUFFER_OFFSET
from penstock.snapshots.writing.state_index import KeyGroups

MAX_ROWS = 1 << 20
"""Maximum number of rows of a batch and of a row group. Rows of nulls, or without columns, take no bytes."""
MAX_VALUES = 1 << 27
"""Maximum number of values of a column in a row group, including elements of lists.

An export writes at most this many values of the smallest kind, one bit each, into one row group.
"""
MAX_ROW_GROUP_BYTES = 1 << 30
ROWS_AT_ONCE = 1 << 14


class Batch(NamedTuple):
    """Batch of a stream with its custom metadata."""

    rows: pa.RecordBatch
    custom: dict[str, str]

    @property
    def of_buffer(self) -> dict[str, str]:
        """Custom metadata of the batch in a section."""
        return {name: self.custom[name] for name in (BUFFER_ID, BUFFER_OFFSET) if name in self.custom}


def read_stream(path: Path, what: str, columns: Plain = None) -> tuple[pa.Schema, Iterator[Batch]]:
    """Return the schema of an Arrow stream and its batches, none empty.

    Args:
        what: name of the stream, for messages.
        columns: expected columns as texts; None for any.

    Raises:
        CorruptSnapshot: the file is not such a stream. The iterator may raise it, too.
    """
    with decoding(what):
        mapped = pa.memory_map(str(path))
        check_stream(mapped, what, compressed=False)
        mapped.seek(0)
        reader = pa.ipc.open_stream(mapped)
        check_schema(reader.schema)
        if columns is not None and column_texts(reader.schema) != columns:
            raise CorruptSnapshot(
                f"{what} has the columns {column_texts(reader.schema)!r:.300}, which the plan has not"
            )
    return reader.schema.remove_metadata(), _batches(reader, what)


def _batches(reader: pa.RecordBatchStreamReader, what: str) -> Iterator[Batch]:
    while True:
        with decoding(what):
            try:
                rows, custom = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            if rows.num_rows > MAX_ROWS:
                raise CorruptSnapshot(f"{what} has a batch of {rows.num_rows} rows; {MAX_ROWS} are allowed")
            rows.validate(full=True)
            batch = Batch(rows, {k.decode(): v.decode() for k, v in (custom or {}).items()})
        if rows.num_rows:
            yield batch


def read_rows(
    path: Path, table: Table, part: TablePart, max_parallelism: int, groups: KeyGroups | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches, none empty, of a subtask's part of a table, by ascending key group.

    Columns have the names of the table.

    Args:
        groups: skip row groups that have none of these key groups.

    Raises:
        CorruptSnapshot: the file is not such a file. The iterator may raise it, too.
    """
    what = part.file.path
    with decoding(what):
        reader, schema, row_groups = _open_parquet(path, table, part)
        needed = list(range(len(row_groups)))
        if groups is not None:
            spans = enumerate(_key_group_ranges(reader, len(row_groups)))
            needed = [number for number, (first, last) in spans if first <= groups[1] and last >= groups[0]]
    return schema, _rows(reader, needed, schema, max_parallelism, what)


def key_groups_by_row_group(path: Path, table: Table, part: TablePart) -> list[tuple[KeyGroups, int]]:
    """Return the key group range and the size in bytes of each row group of such a file.

    The range consists of the lowest and the highest key group.

    Raises:
        CorruptSnapshot: as ``read_rows``.
    """
    with decoding(part.file.path):
        reader, _, row_groups = _open_parquet(path, table, part)
        spans = _key_group_ranges(reader, len(row_groups))
    return list(zip(spans, (group.bytes for group in row_groups), strict=True))


def _open_parquet(path: Path, table: Table, part: TablePart) -> tuple[pq.ParquetFile, pa.Schema, Sequence[RowGroup]]:
    """Open a checked file. Return it with the schema of its rows under the table's names, and its row groups."""
    what = part.file.path
    mapped = pa.memory_map(str(path))
    row_groups = read_footer(mapped)
    _check_groups(row_groups, part, what)
    for chunk in (chunk for group in row_groups for chunk in group.columns):
        check_pages(mapped, chunk)
    reader = pq.ParquetFile(mapped, pre_buffer=False)
    check_schema(reader.schema_arrow)
    written = pa.schema([field.with_type(arrow_type(field.type)) for field in reader.schema_arrow])
    if column_texts(written) != [f"{column.stored_as} {column.type}" for column in table.columns]:
        raise CorruptSnapshot(f"{what} has other columns than the manifest says: {column_texts(written)!r:.300}")
    fields = [pa.field(c.name, f.type, f.nullable) for c, f in zip(table.columns, written, strict=True)]
    return reader, pa.schema(fields), row_groups


def _key_group_ranges(reader: pq.ParquetFile, count: int) -> list[KeyGroups]:
    """Return the lowest and the highest key group of each row group; ``(0, -1)`` for one without key groups.

    Reads the column itself: statistics may be forged, and may crash pyarrow.
    """
    name = reader.schema_arrow.names[0]
    columns = (reader.read_row_group(number, columns=[name], use_threads=False).column(0) for number in range(count))
    known = [column.drop_null().to_numpy() for column in columns]
    return [(int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1) for numbers in known]


def _check_groups(groups: Sequence[RowGroup], part: TablePart, what: str) -> None:
    rows = sum(group.rows for group in groups)
    if rows != part.rows:
        raise CorruptSnapshot(f"{what} has {rows} rows instead of {part.rows}")
    for group in groups:
        if group.rows > MAX_ROWS or group.bytes > MAX_ROW_GROUP_BYTES:
            raise CorruptSnapshot(f"{what} has a row group of {group.rows} rows and {group.bytes} bytes")
        if not all(chunk.plain for chunk in group.columns):
            raise CorruptSnapshot(f"{what} is compressed, or has dictionaries")
        if any(chunk.values > MAX_VALUES for chunk in group.columns):
            raise CorruptSnapshot(f"{what} has more than {MAX_VALUES} values in a row group")


def _rows(
    reader: pq.ParquetFile, row_groups: Sequence[int], schema: pa.Schema, max_parallelism: int, what: str
) -> Iterator[pa.RecordBatch]:
    last = 0
    batches = reader.iter_batches(batch_size=ROWS_AT_ONCE, row_groups=list(row_groups), use_threads=False)
    while True:
        with decoding(what):
            batch = next(batches, None)
            if batch is None:
                return
            batch.validate(full=True)
            if batch.num_rows == 0:
                continue
            columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            last = _checked_groups(rows.column(0), last, max_parallelism, what)
        yield rows


def _checked_groups(groups: pa.Array, last: int, max_parallelism: int, what: str) -> int:
    if groups.null_count:
        raise CorruptSnapshot(f"{what} has rows without a key group")
    numbers: Sequence[int] = groups.to_numpy()
    if int(numbers[0]) < last or np.any(np.diff(numbers) < 0) or int(numbers[-1]) >= max_parallelism:
        raise CorruptSnapshot(f"{what} is not sorted by key group, or has key groups that there are not")
    return int(numbers[-1])
