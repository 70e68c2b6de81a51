"""Reading of Parquet files with a given schema, by Spark's rules for the conversion of types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.config import size_bytes
from penstock.connectors.files.nested_arrays import map_leaves, nullable_offsets
from penstock.connectors.files.parquet.calendars import FileCalendar, file_calendar
from penstock.connectors.files.parquet.int96 import has_int96, instants, is_int96, metadata_with_bytes
from penstock.connectors.files.parquet.pages import check_footer, max_batch_rows
from penstock.connectors.files.parquet.valid_texts import with_valid_texts
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import DataError

BATCH_ROWS = 16_384
"""Rows of a batch. The number is small, so that decoding one batch does not delay a step."""
MOST_ROWS = 4 * BATCH_ROWS
"""Limit for the rows of a batch if rows are small, so that fewer batches must be joined for a step."""
BATCH_BYTES = 4 << 20
"""Target size of batches with more than ``BATCH_ROWS`` rows."""
_PAGE_BYTES = "128m"
MOST_PAGE_BYTES = (1 << 31) - 1
"""Largest size that the header of a page can have."""
READ_BYTES = 1 << 16
"""Number of bytes that are read of each column at a time.

So pages are decoded while they are in the processor's cache, and no whole row group is in memory. By default, Arrow
would read a row group ahead, on its own threads.
"""


def parquet_format(
    schema: pa.Schema, options: OptionTexts, time_zone: str, case_sensitive: bool = False
) -> ParquetFormat:
    options.without_effect("mergeSchema")
    options.only("datetimeRebaseMode", ["CORRECTED"])
    options.only("int96RebaseMode", ["CORRECTED"])
    return ParquetFormat(schema, case_sensitive, page_bytes=page_bytes(options))


def page_bytes(options: OptionTexts) -> int:
    text = options.text("maxPageBytes", _PAGE_BYTES)
    size = size_bytes("maxPageBytes", text)
    if size < 1:
        raise options.bad("maxPageBytes", text, "no page is so small")
    return min(size, MOST_PAGE_BYTES)


@dataclass(frozen=True)
class Conformity:
    """Rules for comparing the types of a file with those of a schema.

    Args:
        case_sensitive: compare names case-sensitively.
        binary_is_text: binary values may be read as strings.
    """

    case_sensitive: bool = False
    binary_is_text: bool = True


@dataclass(frozen=True)
class ParquetFormat:
    """Format of Parquet files: a function ``(path, skip_rows)`` that reads a file.

    Columns are read by name; a missing column is null. ``page_bytes``: limit for a decompressed page and for the
    footer, in bytes; see ``pages``. For the other fields see ``Conformity``.
    """

    schema: pa.Schema
    case_sensitive: bool = False
    binary_is_text: bool = True
    page_bytes: int = MOST_PAGE_BYTES

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        try:
            check_footer(path, self.page_bytes)
            file = _open(path)
            present, int96 = file.schema_arrow, has_int96(file.schema)
            if int96:
                file.close()
                file = _open(path, metadata_with_bytes(path))
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(f"not a readable Parquet file: {error}") from error
        with file:
            calendar = file_calendar(file.metadata.metadata)
            columns = find_columns(path, self.schema, present, self.case_sensitive)
            groups, skip = self._groups_after(file.metadata, skip_rows)
            names = [
                path
                for name, field in zip(columns, self.schema, strict=True)
                if name is not None
                for path in paths_to_read(name, present.field(name).type, field.type, self.case_sensitive)
            ]
            if not groups:
                return
            leaves = leaves_of(file.metadata, names)
            rows = batch_rows(file.metadata, groups, leaves)
            rows = max_batch_rows(path, file.metadata, groups, leaves, rows, self.page_bytes)
            missing = sum(file.metadata.row_group(group).num_rows for group in groups)
            for batch in file.iter_batches(batch_size=rows, row_groups=groups, columns=names, use_threads=False):
                missing -= batch.num_rows
                dropped = min(skip, batch.num_rows)
                skip -= dropped
                if dropped < batch.num_rows:
                    whole = _gregorian(path, batch, present, calendar) if int96 or calendar.times else batch
                    yield self.conformed(path, whole.slice(dropped), columns)
            if missing:  # pyarrow 26: a page of lists of booleans without a boolean, encoded as RLE
                raise DataError(f"cannot read {path}: {missing} rows are missing in what pyarrow reads of it")

    def _groups_after(self, metadata: pq.FileMetaData, skip_rows: int) -> tuple[list[int], int]:
        """Return the row groups with rows after the first ``skip_rows``, and the number of rows to skip in them."""
        group = 0
        while group < metadata.num_row_groups and skip_rows >= metadata.row_group(group).num_rows:
            skip_rows -= metadata.row_group(group).num_rows
            group += 1
        return list(range(group, metadata.num_row_groups)), skip_rows

    def conformed(self, path: str, batch: pa.RecordBatch, columns: list[str | None]) -> pa.RecordBatch:
        """Convert a batch to the schema. ``columns``: from ``find_columns``. Raise DataError with file and column."""
        arrays = []
        rules = Conformity(self.case_sensitive, self.binary_is_text)
        for name, field in zip(columns, self.schema, strict=True):
            if name is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            try:
                array = batch.column(batch.schema.get_field_index(name))
                arrays.append(with_valid_texts(conform(array, field.type, rules)))
            except (pa.ArrowException, TypeError) as error:
                kind = batch.schema.field(name).type
                raise DataError(f"{path}: column {name} of type {kind} cannot be read as {field.type}") from error
        if not arrays:
            return batch
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _open(path: str, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    return pq.ParquetFile(
        path, metadata=metadata, coerce_int96_timestamp_unit="us", pre_buffer=False, buffer_size=READ_BYTES
    )


def _gregorian(path: str, batch: pa.RecordBatch, present: pa.Schema, calendar: FileCalendar) -> pa.RecordBatch:
    """Decode INT96 timestamps, and convert dates and times to the Gregorian calendar."""

    def convert(leaf: pa.Array, kind: pa.DataType) -> pa.Array:
        return calendar.gregorian_int96(instants(leaf)) if is_int96(leaf, kind) else calendar.gregorian(leaf)

    arrays = []
    for name in batch.schema.names:
        try:
            arrays.append(map_leaves(batch.column(name), present.field(name).type, convert))
        except TypeError as error:
            raise DataError(f"{path}: column {name}: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names) if arrays else batch


def leaves_of(metadata: pq.FileMetaData, names: list[str]) -> list[int]:
    """Return the indexes of the leaf columns at and below the columns with these dotted names."""
    chosen = set(names)
    paths = (metadata.schema.column(number).path for number in range(metadata.num_columns))
    prefixes = (accumulate(path.split("."), "{}.{}".format) for path in paths)
    return [number for number, found in enumerate(prefixes) if not chosen.isdisjoint(found)]


def batch_rows(metadata: pq.FileMetaData, groups: list[int], leaves: list[int]) -> int:
    """Return the number of rows per batch for these row groups and columns."""
    size = rows = 0
    for group in map(metadata.row_group, groups):
        rows += group.num_rows
        size += sum(group.column(leaf).total_uncompressed_size for leaf in leaves)
    return max(BATCH_ROWS, min(MOST_ROWS, BATCH_BYTES * rows // max(1, size)))


def find_columns(path: str, requested: pa.Schema, present: pa.Schema, case_sensitive: bool) -> list[str | None]:
    """Return the name in the file of each column of the schema; None for a missing column.

    Raises:
        DataError: the file has several columns with the same name.
    """
    indexes = _indexes_by_key([field.name for field in present], case_sensitive)
    columns: list[str | None] = []
    for name in requested.names:
        candidates = [present.field(index).name for index in indexes.get(_key(name, case_sensitive), [])]
        if len(candidates) > 1:
            raise DataError(f"{path} has more than one column {name}: {', '.join(candidates)}")
        columns.append(candidates[0] if candidates else None)
    return columns


def _key(name: str, case_sensitive: bool) -> str:
    return name if case_sensitive else name.lower()


def _indexes_by_key(names: Iterable[str], case_sensitive: bool) -> dict[str, list[int]]:
    """Return the indexes of each name, by the result of ``_key``."""
    indexes: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        indexes.setdefault(_key(name, case_sensitive), []).append(index)
    return indexes


def paths_to_read(name: str, present: pa.DataType, requested: pa.DataType, case_sensitive: bool = False) -> list[str]:
    """Return the dotted paths to read for a column. Of a struct, only the requested fields are read.

    If the file has none of these fields, the whole struct is read, because its nulls are needed.
    """
    if not (pa.types.is_struct(present) and pa.types.is_struct(requested)):
        return [name]
    indexes = _indexes_by_key((field.name for field in present), case_sensitive)
    pairs = [
        (present.field(index), field.type)
        for field in requested
        for index in indexes.get(_key(field.name, case_sensitive), [])
    ]
    return [
        path
        for field, kind in pairs
        for path in paths_to_read(f"{name}.{field.name}", field.type, kind, case_sensitive)
    ] or [name]


def conform(array: pa.Array, requested: pa.DataType, rules: Conformity) -> pa.Array:
    """Convert the array to the type ``requested``, if Spark's reader also converts it.

    Raises:
        TypeError: Spark's reader does not convert between these types.
    """
    kind = array.type
    if kind == requested:
        return array
    if pa.types.is_dictionary(kind):
        return conform(array.dictionary_decode(), requested, rules)
    if pa.types.is_struct(kind) and pa.types.is_struct(requested):
        return _struct(array, requested, rules)
    if pa.types.is_map(kind) and pa.types.is_map(requested):
        keys = conform(array.keys, requested.key_type, rules)
        items = conform(array.items, requested.item_type, rules)
        return pa.MapArray.from_arrays(nullable_offsets(array), keys, items, type=requested)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_list(requested):
        values = conform(array.values, requested.value_type, rules)
        return pa.ListArray.from_arrays(nullable_offsets(array), values, type=requested)
    if not _readable_as(kind, requested, rules):
        raise TypeError
    if pa.types.is_null(kind):
        return pa.nulls(len(array), requested)
    if pa.types.is_string(requested):
        return array.cast(pa.binary()).view(requested)  # ``with_valid_texts`` checks the bytes
    return array.cast(requested)


def _struct(array: pa.StructArray, requested: pa.StructType, rules: Conformity) -> pa.Array:
    indexes = _indexes_by_key((field.name for field in array.type), rules.case_sensitive)
    children = []
    for field in requested:
        found = indexes.get(_key(field.name, rules.case_sensitive), [])
        if len(found) > 1:
            raise TypeError(f"it has {len(found)} fields {field.name}")
        if not found:
            children.append(pa.nulls(len(array), field.type))
        else:
            # ``field`` is unsliced in some cases; flatten applies the parent's offset and nulls.
            children.append(conform(array.flatten()[found[0]], field.type, rules))
    return pa.StructArray.from_arrays(children, fields=list(requested), mask=array.is_null())


def _readable_as(kind: pa.DataType, requested: pa.DataType, rules: Conformity) -> bool:
    types = pa.types
    if types.is_null(kind):  # its pages have the format of 32-bit integers
        return bool(types.is_integer(requested) or types.is_float64(requested) or types.is_date32(requested))
    if types.is_uint32(kind) and types.is_float64(requested):
        return False  # in Spark large numbers become negative
    if types.is_integer(kind):
        exact = types.is_integer(requested) and (requested.bit_width >= kind.bit_width)
        return bool(exact or (kind.bit_width <= 32 and types.is_float64(requested)) or types.is_decimal(requested))
    if types.is_float32(kind):
        return bool(types.is_float64(requested))
    if types.is_decimal(kind) and types.is_decimal(requested):
        return bool(
            requested.scale >= kind.scale and requested.precision - requested.scale >= kind.precision - kind.scale
        )
    if types.is_timestamp(kind) and types.is_timestamp(requested):
        return bool(requested.tz is not None or kind.tz is None)
    if types.is_date32(kind):
        return bool(types.is_timestamp(requested) and requested.tz is None)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    if not any(is_one(kind) for is_one in texts):
        return False
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return bool(types.is_binary(requested) or (types.is_string(requested) and (is_text or rules.binary_is_text)))
