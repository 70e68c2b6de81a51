"""Writing of Parquet files, as Spark writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.files.format import FileFormat, FileWriter, refuse_types
from penstock.connectors.files.nested_arrays import nullable_schema, nullable_table
from penstock.connectors.files.row_groups import RowGroup
from penstock.connectors.option_texts import OptionTexts

_BATCH_ROWS = 1 << 15

_CODECS = {
    "none": ("NONE", ""),
    "uncompressed": ("NONE", ""),
    "snappy": ("SNAPPY", ".snappy"),
    "gzip": ("GZIP", ".gz"),
    "zstd": ("ZSTD", ".zstd"),
    "lz4_raw": ("LZ4_RAW", ".lz4raw"),
    "brotli": ("BROTLI", ".br"),
}


def parquet_sink_format(schema: pa.Schema, options: OptionTexts) -> ParquetFormat:
    codec = options.text("compression", "snappy").strip().lower()
    if codec not in _CODECS:
        raise options.bad("compression", codec, f"choose one of {', '.join(_CODECS)}")
    refuse_types("parquet", schema, lambda kind: False)
    return ParquetFormat(schema, codec)


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    codec: str

    @property
    def name(self) -> str:
        return "parquet"

    @property
    def suffix(self) -> str:
        return f"{_CODECS[self.codec][1]}.parquet"

    def create(self, path: Path | BinaryIO) -> FileWriter:
        """Create a file, or write to an open file. Closing the writer also closes that file."""
        return _ParquetFileWriter(path, self.schema, _CODECS[self.codec][0])

    def merge(self, sources: Sequence[Path], target: Path) -> None:
        writer = self.create(target)
        group = RowGroup()
        for source in sources:
            # No threads: the threads of Arrow's pools never end and have separate heaps, and small files would not be
            # read faster.
            with pq.ParquetFile(source, pre_buffer=False) as file:
                for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
                    group.add(batch)
                    if group.is_full():
                        writer.write(group.take())
        if group:
            writer.write(group.take())
        writer.close()


class _ParquetFileWriter(FileWriter):
    def __init__(self, path: Path | BinaryIO, schema: pa.Schema, codec: str) -> None:
        self._file = None if isinstance(path, Path) else path
        # As in Spark: timestamps in microseconds, and decimals of up to 18 digits as integers.
        self._writer = pq.ParquetWriter(
            path,
            nullable_schema(schema),
            compression=codec,
            coerce_timestamps="us",
            store_decimal_as_integer=True,
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(nullable_table(table), row_group_size=max(1, table.num_rows))

    def close(self) -> None:
        self._writer.close()
        if self._file is not None:
            self._file.close()
