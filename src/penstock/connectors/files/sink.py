"""File sink: writes each committed row exactly once to files of an output directory.

Below the output directory::

    part-00002-<query id>-e0000000007-c000.snappy.parquet   committed: subtask 2, epoch 7
    part-00000-<query id>-e0000000007-m000.snappy.parquet   committed: small files of epoch 7, merged
    part-00000-<query id>-r<token>.snappy.parquet           committed: small files of several epochs, merged
    day=2020-01-01/part-...                                 the same with ``partitionBy("day")``
and in the directory of ``private_directory``::

    owner.json                                              the query that writes here
    fence/..., work/<token>/...                             the fence of this output: see ``fence``; in ``work``:
        staged/g3-<token>-00002-000005.parquet              not committed: generation 3
        kept/...                                            committed and kept back: ``file_roller``
        bundles/...                                         small files that are being merged: ``bundles``
    forks/<query id>/...                                    fence and work of a fork of that query, if the fork may
                                                            write here, too

A file is written and made durable in a directory that readers ignore. One rename makes it visible.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from penstock.config import duration_ms, shown, size_bytes
from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.partitions import Partitioning
from penstock.connectors.files.private_directory import home_of
from penstock.connectors.files.sink_committer import FileSinkCommitter, owner_of
from penstock.connectors.files.sink_plan import PRIVATE_DIRECTORY, private_directory, work_directory
from penstock.connectors.files.sink_writer import FileSinkWriter
from penstock.connectors.local_files import local_path
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError

TARGET_BYTES = 128 << 20
"""Default of ``targetFileSize``: Spark's default for the input of one task."""


@dataclass(frozen=True)
class FileSizes:
    """Options for the sizes of files.

    Attributes:
        roll_interval_ms: how long committed small files may be kept back to be merged; 0: not at all.
        target_bytes: a file is completed at about this size. Small files are kept back until their sum reaches it.
    """

    roll_interval_ms: int = 0
    target_bytes: int = TARGET_BYTES


def file_sizes(options: OptionTexts) -> FileSizes:
    """Parse the options ``rollInterval`` and ``targetFileSize``."""
    target = size_bytes("targetFileSize", options.text("targetFileSize", str(TARGET_BYTES)))
    if target < 1:
        raise options.bad("targetFileSize", str(target), "it must be positive")
    return FileSizes(duration_ms("rollInterval", options.text("rollInterval", "0")), target)


def _check_length(path: str) -> None:
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigError(f"output path {shown(path)}: {error.strerror}; give a shorter one") from error


class FileSink(Sink):
    """Sink that writes to a directory.

    Args:
        path: output directory, on a file system that all slots and the driver share; created if missing.
        file_format: format of the files. Its schema is that of the rows without partition columns.
        partitions: the partition columns. Their values become names of subdirectories.
        sizes: options for the sizes of files.

    Raises:
        ConfigError: the path is too long for a file system.
    """

    def __init__(
        self,
        path: str,
        file_format: FileFormat,
        partitions: Partitioning | None = None,
        sizes: FileSizes | None = None,
    ) -> None:
        self.path = local_path(path)
        _check_length(self.path)
        self.file_format = file_format
        self.partitions = partitions
        self.sizes = sizes or FileSizes()
        self._private = PRIVATE_DIRECTORY

    def describe(self) -> str:
        return f"FileSink[file:{self.path}]"

    def target(self) -> str:
        return f"files:{os.path.realpath(self.path)}"

    def share(self, query_id: str, origin: str) -> None:
        """Use a separate private directory for this query if the output directory belongs to the origin.

        The same applies if the origin itself shares the output directory with another query.
        """
        root = Path(self.path)
        home = home_of(root)
        privates = [private_directory(one, shared=True) for one in (query_id, origin)]
        own, origins = (root / work_directory(private, "", home) for private in privates)
        if own.exists() or origins.exists() or owner_of(root) == origin:
            self._private = private_directory(query_id, shared=True)

    def create_writer(self) -> SinkWriter:
        root, target_bytes = Path(self.path), self.sizes.target_bytes
        return FileSinkWriter(root, self.file_format, self.partitions, target_bytes, self._private)

    def create_committer(self) -> SinkCommitter:
        root, interval_s = Path(self.path), self.sizes.roll_interval_ms / 1000
        return FileSinkCommitter(root, self.file_format, interval_s, self.sizes.target_bytes, private=self._private)
