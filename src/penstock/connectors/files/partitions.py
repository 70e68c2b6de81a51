"""``partitionBy``: splits batches by partition directory, with directories named as in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.connectors.files.text.sink_texts import cast_texts
from penstock.errors import ConfigError, NotSupported, SinkError
from penstock.functions.core.vectors import Vector
from penstock.functions.core.zones import Zone

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Directory value for null and for the empty string."""
MAX_NAME_BYTES = 255
"""Limit of file systems."""
# ``ExternalCatalogUtils.charToEscape``
_ESCAPED = {character: f"%{ord(character):02X}" for character in [*map(chr, range(1, 0x20)), *"\"#%'*/:=?\\\x7f{[]^"]}
_ESCAPES = str.maketrans(_ESCAPED)


@dataclass(frozen=True)
class Partitioning:
    """Partition columns of a sink. It is sent to the slots.

    Attributes:
        columns: positions of the partition columns in the rows, in the order of the directories.
        names: names of these columns.
        data_columns: positions of the other columns, which are in the files.
        time_zone: time zone of the session, for timestamps in directory names.
        ansi: write decimals as ANSI mode does.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    data_columns: tuple[int, ...]
    time_zone: str
    ansi: bool

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each directory (relative, with ``/``) and its rows without partition columns.

        If there are several directories, the rows are copied, so that the rows of one directory do not keep the others
        in memory.

        Raises:
            SinkError: a value cannot be part of a directory name.
        """
        data = batch.select(list(self.data_columns))
        directories, codes = self._directories(batch)
        if len(directories) == 1:
            yield directories[0], data
            return
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(directories) + 1))
        for code, directory in enumerate(directories):
            yield directory, data.take(pa.array(order[bounds[code] : bounds[code + 1]]))

    def _directories(self, batch: pa.RecordBatch) -> tuple[list[str], Vector]:
        """Return the distinct directories of a batch, and for each row the index of its directory."""
        paths = [""]
        codes = np.zeros(batch.num_rows, np.int64)
        zone = Zone(self.time_zone)
        for index, name in zip(self.columns, self.names, strict=True):
            encoded = batch.column(index).dictionary_encode(null_encoding="encode")
            texts = cast_texts(encoded.dictionary, zone, self.ansi).to_pylist()
            components = [directory_name(name, text) for text in texts]
            combined = codes * len(components) + encoded.indices.to_numpy(zero_copy_only=False)
            distinct, codes = np.unique(combined, return_inverse=True)
            pairs = (divmod(int(pair), len(components)) for pair in distinct)
            paths = [
                f"{paths[outer]}/{components[inner]}" if paths[outer] else components[inner] for outer, inner in pairs
            ]
        return paths, codes


def partitioning(
    schema: pa.Schema, names: Sequence[str], time_zone: str, ansi: bool, case_sensitive: bool
) -> Partitioning:
    """Create the partitioning for the columns of ``partitionBy``.

    Raises:
        ConfigError: a column is unknown or repeated.
        NotSupported: values of a column's type cannot be part of a directory name.
    """

    def key(name: str) -> str:
        return name if case_sensitive else name.lower()

    indexes = {key(field.name): index for index, field in enumerate(schema)}
    columns: list[int] = []
    for name in names:
        index = indexes.get(key(name))
        if index is None:
            known = ", ".join(field.name for field in schema)
            raise ConfigError(f"partitionBy names column {name}, which the rows do not have; they have {known}")
        if index in columns:
            raise ConfigError(f"partitionBy names column {name} twice")
        kind = schema.field(index).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_duration(kind):
            raise NotSupported(f"partitionBy cannot use column {name} of type {kind}: cast it to a string")
        columns.append(index)
    others = tuple(index for index in range(len(schema)) if index not in columns)
    return Partitioning(tuple(columns), tuple(schema.field(c).name for c in columns), others, time_zone, ansi)


def directory_name(column: str, text: str | None) -> str:
    """Return ``column=value``, escaped as ``ExternalCatalogUtils.getPartitionPathString`` escapes both.

    Raises:
        SinkError: the name is too long, or contains a NUL.
    """
    name = f"{column.translate(_ESCAPES)}={text.translate(_ESCAPES) if text else DEFAULT_PARTITION}"
    if len(name.encode()) > MAX_NAME_BYTES or "\0" in name:
        raise SinkError(
            f"a value of partition column {column} makes no directory name: it is longer than {MAX_NAME_BYTES} bytes "
            f"or holds a NUL: {name[:80]!r}; partition by a shorter expression"
        )
    return name
