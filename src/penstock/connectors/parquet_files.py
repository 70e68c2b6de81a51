"""Parquet files as batches of a given schema, by Spark's rules of what may be read as what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.parquet_int96 import has_int96, metadata_with_bytes, with_timestamps
from penstock.errors import DataError

BATCH_ROWS = 16_384
"""Small enough that decoding one does not hold a step up."""
MOST_ROWS = 4 * BATCH_ROWS
"""Where rows are small: fewer batches have to be joined for a step."""
BATCH_BYTES = 4 << 20
"""From here on a batch is not small."""
READ_BYTES = 1 << 16
"""Of each column at once: pages are decoded while they are in the processor's cache, and no row group lies in memory
whole. By default Arrow reads one ahead, on threads of its own."""


def parquet_format(schema: pa.Schema, options: OptionTexts, time_zone: str) -> ParquetFormat:
    options.without_effect("mergeSchema")
    options.only("datetimeRebaseMode", ["CORRECTED"])
    options.only("int96RebaseMode", ["CORRECTED"])
    return ParquetFormat(schema)


@dataclass(frozen=True)
class ParquetFormat:
    """Reads the columns of ``schema`` by name, regardless of case; a missing column is null."""

    schema: pa.Schema

    def __call__(self, path: str, skip_rows: int) -> Iterator[pa.RecordBatch]:
        try:
            file = _open(path)
            present = file.schema_arrow
            if has_int96(file.schema):
                file = _open(path, metadata_with_bytes(path))
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(f"not a readable Parquet file: {error}") from error
        with file:
            columns = find_columns(path, self.schema, present)
            groups, skip = self._groups_after(file.metadata, skip_rows)
            names = [
                path
                for name, field in zip(columns, self.schema, strict=True)
                if name is not None
                for path in paths_to_read(name, present.field(name).type, field.type)
            ]
            if not groups:
                return
            rows = batch_rows(file.metadata, groups, names)
            batches = file.iter_batches(batch_size=rows, row_groups=groups, columns=names, use_threads=False)
            for batch in batches:
                dropped = min(skip, batch.num_rows)
                skip -= dropped
                if dropped < batch.num_rows:
                    yield self.conformed(path, _with_timestamps(batch, present).slice(dropped), columns)

    def _groups_after(self, metadata: pq.FileMetaData, skip_rows: int) -> tuple[list[int], int]:
        """The row groups that hold rows from ``skip_rows`` on, and how many of theirs to skip."""
        group = 0
        while group < metadata.num_row_groups and skip_rows >= metadata.row_group(group).num_rows:
            skip_rows -= metadata.row_group(group).num_rows
            group += 1
        return list(range(group, metadata.num_row_groups)), skip_rows

    def conformed(self, path: str, batch: pa.RecordBatch, columns: list[str | None]) -> pa.RecordBatch:
        """The batch by the schema; ``columns``: from ``find_columns``. Raises DataError, naming file and column."""
        arrays = []
        for name, field in zip(columns, self.schema, strict=True):
            if name is None:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            try:
                arrays.append(conform(batch.column(batch.schema.get_field_index(name)), field.type))
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


def _with_timestamps(batch: pa.RecordBatch, present: pa.Schema) -> pa.RecordBatch:
    columns = [with_timestamps(batch.column(name), present.field(name).type) for name in batch.schema.names]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if columns else batch


def batch_rows(metadata: pq.FileMetaData, groups: list[int], names: list[str]) -> int:
    """How many rows of these groups and (dotted) columns make a batch."""
    size = rows = 0
    for group in map(metadata.row_group, groups):
        rows += group.num_rows
        for column in map(group.column, range(group.num_columns)):
            if any(f"{column.path_in_schema}.".startswith(f"{name}.") for name in names):
                size += column.total_uncompressed_size
    return max(BATCH_ROWS, min(MOST_ROWS, BATCH_BYTES * rows // max(1, size)))


def find_columns(path: str, wanted: pa.Schema, present: pa.Schema) -> list[str | None]:
    """For each column of the schema its name in the file, or None.

    Raises:
        DataError: the file has several of a name but for case.
    """
    by_lower: dict[str, list[str]] = {}
    for name in present.names:
        by_lower.setdefault(name.lower(), []).append(name)
    columns: list[str | None] = []
    for name in wanted.names:
        candidates = by_lower.get(name.lower(), [])
        if len(candidates) > 1:
            raise DataError(f"{path} has more than one column {name} but for case: {', '.join(candidates)}")
        columns.append(candidates[0] if candidates else None)
    return columns


def paths_to_read(name: str, present: pa.DataType, wanted: pa.DataType) -> list[str]:
    """What to read of a column: all of it, or of a struct the fields that are wanted, as dotted paths. Where the file
    has none of these, all of it too: rows where the struct is null are told from others."""
    if not (pa.types.is_struct(present) and pa.types.is_struct(wanted)):
        return [name]
    known = {present.field(i).name.lower(): present.field(i) for i in range(present.num_fields)}
    pairs = [(known[field.name.lower()], field.type) for field in wanted if field.name.lower() in known]
    return [path for field, kind in pairs for path in paths_to_read(f"{name}.{field.name}", field.type, kind)] or [name]


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The array as ``wanted``, where Spark's reader would widen it too.

    Raises:
        TypeError: Spark would not read one as the other.
    """
    kind = array.type
    if kind == wanted:
        return array
    if pa.types.is_dictionary(kind):
        return conform(array.dictionary_decode(), wanted)
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return _struct(array, wanted)
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        keys, items = conform(array.keys, wanted.key_type), conform(array.items, wanted.item_type)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=wanted)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_list(wanted):
        return pa.ListArray.from_arrays(_offsets(array), conform(array.values, wanted.value_type), type=wanted)
    if not _readable_as(kind, wanted):
        raise TypeError
    return array.cast(wanted)


def _offsets(array: pa.Array) -> pa.Array:
    """Offsets into the children, with a null where the list is null."""
    offsets = array.offsets.cast(pa.int32())
    if not array.null_count:
        return offsets
    present = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pa.compute.if_else(present, offsets, pa.scalar(None, pa.int32()))


def _struct(array: pa.StructArray, wanted: pa.StructType) -> pa.Array:
    by_lower = {array.type.field(i).name.lower(): i for i in range(array.type.num_fields)}
    children = []
    for field in wanted:
        index = by_lower.get(field.name.lower())
        if index is None:
            children.append(pa.nulls(len(array), field.type))
        else:
            # ``field`` is unsliced in places; flatten applies the parent's offset and nulls.
            children.append(conform(array.flatten()[index], field.type))
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())


def _readable_as(kind: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(kind):
        exact = types.is_integer(wanted) and (wanted.bit_width >= kind.bit_width)
        return bool(exact or (kind.bit_width <= 32 and types.is_float64(wanted)) or types.is_decimal(wanted))
    if types.is_float32(kind):
        return bool(types.is_float64(wanted))
    if types.is_decimal(kind) and types.is_decimal(wanted):
        return bool(wanted.scale >= kind.scale and wanted.precision - wanted.scale >= kind.precision - kind.scale)
    if types.is_timestamp(kind) and types.is_timestamp(wanted):
        return bool(wanted.tz is not None or kind.tz is None)
    if types.is_date32(kind):
        return bool(types.is_timestamp(wanted) and wanted.tz is None)
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(is_text(kind) for is_text in texts) and bool(types.is_string(wanted) or types.is_binary(wanted))
