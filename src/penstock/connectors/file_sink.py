"""File sinks: rows become files of an output directory, each committed row exactly once.

Below the output directory::

    part-00002-<query id>-e0000000007-c000.snappy.parquet   committed: subtask 2, epoch 7
    part-00000-<query id>-e0000000007-m000.snappy.parquet   committed: small files of epoch 7, merged
    part-00000-<query id>-r<token>.snappy.parquet           committed: small files of several epochs, merged
    day=2020-01-01/part-...                                 the same with ``partitionBy("day")``
    _penstock/owner.json                                    the one query that writes here
    _penstock/staged/g3-<token>-00002-000005.parquet        not committed: Generation 3
    _penstock/kept/...                                      committed and kept back: ``file_rolls``
    _penstock/bundles/...                                   small files that are being merged: ``file_bundles``

A file is written and made durable where no reader looks, and becomes visible by one rename.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.config import duration_ms, size_bytes
from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.connectors.file_sink_committer import FileSinkCommitter
from penstock.connectors.file_sink_format import FileFormat
from penstock.connectors.file_sink_writer import FileSinkWriter
from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.connectors.sink_partitions import Partitioning

TARGET_BYTES = 128 << 20
"""The default of ``targetFileSize``: as much as Spark reads in one task."""


@dataclass(frozen=True)
class FileSizes:
    """What all formats have.

    Attributes:
        roll_interval_ms: how long committed small files may be kept back to become one; 0: not at all.
        target_bytes: a file is ended at about this size, and small ones are kept back until they have it together.
    """

    roll_interval_ms: int = 0
    target_bytes: int = TARGET_BYTES


def file_sizes(options: OptionTexts) -> FileSizes:
    """From the options ``rollInterval`` and ``targetFileSize``."""
    target = size_bytes("targetFileSize", options.text("targetFileSize", str(TARGET_BYTES)))
    if target < 1:
        raise options.bad("targetFileSize", str(target), "it must be positive")
    return FileSizes(duration_ms("rollInterval", options.text("rollInterval", "0")), target)


class FileSink(Sink):
    """Every committed row in the directory exactly once.

    Args:
        path: output directory, on a file system that all slots and the driver share; created if missing.
        file_format: of the files; its schema is the rows' without partition columns.
        partitions: by which columns the rows go to subdirectories.
        sizes: see there.
    """

    def __init__(
        self,
        path: str,
        file_format: FileFormat,
        partitions: Partitioning | None = None,
        sizes: FileSizes | None = None,
    ) -> None:
        self.path = local_path(path)
        self.file_format = file_format
        self.partitions = partitions
        self.sizes = sizes or FileSizes()

    def describe(self) -> str:
        return f"FileSink[file:{self.path}]"

    def create_writer(self) -> SinkWriter:
        return FileSinkWriter(Path(self.path), self.file_format, self.partitions, self.sizes.target_bytes)

    def create_committer(self) -> SinkCommitter:
        interval_s = self.sizes.roll_interval_ms / 1000
        return FileSinkCommitter(Path(self.path), self.file_format, interval_s, self.sizes.target_bytes)
