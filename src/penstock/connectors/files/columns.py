"""Columns that do not come from a file's content: partition columns and ``_metadata``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote, unquote

import pyarrow as pa

from penstock.connectors.files.text.values import MALFORMED, rules_of_names
from penstock.errors import ConfigError, DataError, UnfitFile
from penstock.functions.core.record_fields import text_converter
from penstock.model.splits import Split

METADATA_COLUMN = "_metadata"
_METADATA_FIELDS = (
    "file_path", "file_name", "file_size", "file_block_start", "file_block_length", "file_modification_time",
    "row_index",
)  # fmt: skip
_NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
_URI_SAFE = "/-_.~!$&'()*+,;=:@"
"""Characters that ``java.net.URI`` does not escape in a path."""


@dataclass(frozen=True)
class FileColumns:
    """Columns of a file source. Adds partition columns and ``_metadata`` to the rows of a file.

    Args:
        schema: schema of the source.
        partitions: columns that are read from directory names. If there are none, the directories of a file may still
            have names of ``declared`` columns; these columns are then read from the directories of this file.
        time_zone: time zone of timestamps in directory names.
        with_metadata: add ``_metadata``; otherwise it is a column of the file.
        declared: all columns of the DataFrame's schema; ``schema`` may have fewer. None: those of ``schema``.
        case_sensitive: compare names of columns and directories case-sensitively.
    """

    schema: pa.Schema
    partitions: Sequence[str]
    time_zone: str
    with_metadata: bool = True
    declared: Sequence[str] | None = None
    case_sensitive: bool = False

    def __post_init__(self) -> None:
        for field in self.schema:
            if field.name in self.partitions:
                text_converter(field.name, field.type, rules_of_names(self.time_zone))
            elif field.name == METADATA_COLUMN and not set(_names(field.type)) <= set(_METADATA_FIELDS):
                raise ConfigError(f"column {METADATA_COLUMN}: known fields are {', '.join(_METADATA_FIELDS)}")

    def partition_of(self, path: str, root: str) -> dict[str, str | None]:
        """Return the partition values of a file, as texts by column name.

        They are those of the directories ``name=value`` between ``root`` and the file.

        Raises:
            UnfitFile: the directories are not the query's partition columns in their order.
        """
        values: dict[str, str | None] = {}
        for part in os.path.dirname(os.path.relpath(path, root)).split(os.sep):
            name, equals, text = part.partition("=")
            if equals and name and text:
                values[_unescaped(name)] = None if text == _NULL_NAME else _unescaped(text)
        partitions = self.partitions or self._columns_of(path, values)
        if list(map(self._key, values)) != list(map(self._key, partitions)):
            raise UnfitFile(
                f"{path} must lie in directories {'/'.join(f'{name}=...' for name in self.partitions)} below {root},"
                " the partition columns that were there when the query was made"
            )
        return dict(zip(partitions, values.values(), strict=True))

    def _columns_of(self, path: str, directories: Iterable[str]) -> list[str]:
        """Return the declared columns for partition directories that appeared after the query was created.

        Raises:
            UnfitFile: a directory has the name of no declared column.
        """
        declared = {self._key(name): name for name in (self.schema.names if self.declared is None else self.declared)}
        for name in directories:
            if self._key(name) not in declared:
                raise UnfitFile(
                    f"{path}: a directory is named like a partition, {name}=..., and the query has no such column: add"
                    " it to the DataFrame's schema, or set recursiveFileLookup to read files without it"
                )
        columns = [declared[self._key(name)] for name in directories]
        self.read_from(columns)  # raises for types that directory names cannot have
        return columns

    def _key(self, name: str) -> str:
        return name if self.case_sensitive else name.lower()

    def read_from(self, partitions: Sequence[str]) -> FileColumns:
        """Return these columns for files whose directories have the names ``partitions``."""
        return replace(self, partitions=tuple(partitions))

    @property
    def file_schema(self) -> pa.Schema:
        """Schema of the columns that are read from files."""
        return pa.schema([field for field in self.schema if not self._is_added(field)])

    def _is_added(self, field: pa.Field) -> bool:
        return field.name in self.partitions or (self.with_metadata and field.name == METADATA_COLUMN)

    def complete(self, batch: pa.RecordBatch, split: Split, first_row: int) -> pa.RecordBatch:
        """Return the batch with all columns of the schema. ``first_row``: index of its first row in the file."""
        if batch.num_columns == len(self.schema):
            return batch
        columns = iter(batch.columns)
        arrays = []
        for field in self.schema:
            if field.name in self.partitions:
                arrays.append(self._partition(field, split, batch.num_rows))
            elif self._is_added(field):
                arrays.append(_metadata(field.type, split, first_row, batch.num_rows))
            else:
                arrays.append(next(columns))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _partition(self, field: pa.Field, split: Split, rows: int) -> pa.Array:
        values = cast("dict[str, str | None]", split.spec.get("partition", {}))
        text = values.get(field.name)
        if text is None:
            return pa.nulls(rows, field.type)
        try:
            value = text_converter(field.name, field.type, rules_of_names(self.time_zone))(text)
        except MALFORMED as error:
            path = split.spec["path"]
            raise DataError(f"{path}: directory {field.name}={text} is no value of {field.type}") from error
        return pa.repeat(pa.scalar(value, field.type), rows)


def rows_without_columns(count: int) -> pa.RecordBatch:
    """Return a batch with ``count`` rows and no columns. Arrow has no direct way to create one."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_arrays([pa.nulls(count)], names=["_"])).select([])


def _unescaped(text: str) -> str:
    """Decode Spark's escapes of directory names: ``%3A`` is a single byte, and only ASCII is escaped."""
    return unquote(text, encoding="latin-1")


def _names(kind: pa.DataType) -> list[str]:
    return [kind.field(i).name for i in range(kind.num_fields)]


def _uri(path: str) -> str:
    """Escape a path as ``java.net.URI`` does, which leaves characters that are not ASCII unchanged."""
    return re.sub("[\0-\x7f]+", lambda match: quote(match[0], safe=_URI_SAFE), path)


def _metadata(kind: pa.StructType, split: Split, first_row: int, rows: int) -> pa.Array:
    """Return the column ``_metadata``. The block of a row is the whole file."""
    path, size = cast("str", split.spec["path"]), cast("int", split.spec["size"])
    values: dict[str, Any] = {
        "file_path": "file:" + _uri(path),
        "file_name": _uri(os.path.basename(path)),
        "file_size": size,
        "file_block_start": 0,
        "file_block_length": size,
        "file_modification_time": cast("int", split.spec["modified_ns"]) // 1_000_000 * 1_000,
    }
    children = [
        pa.array(range(first_row, first_row + rows), field.type)
        if field.name == "row_index"
        else pa.repeat(pa.scalar(values[field.name], field.type), rows)
        for field in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind))
