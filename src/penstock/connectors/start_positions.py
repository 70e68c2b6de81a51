"""Start positions of sources whose first input was already read: by Spark's engine, or to build initial state."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from penstock.connectors.base import Source
from penstock.connectors.files.source import FileSource
from penstock.connectors.kafka.cluster import Partition
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.local_files import local_path
from penstock.connectors.python.source import PythonSource
from penstock.connectors.spark.files import SparkFilesSource
from penstock.errors import ConfigError
from penstock.model.splits import Discovery

ReadUpTo = Sequence[str] | Mapping[str, Any]
"""Input that was read.

Paths or ``file:`` URLs of files, the next Kafka offsets (``{"topic": {"0": 17}}``), or the next offset of a Python data
source.
"""


def start_after(source: Source, read: ReadUpTo, parallelism: int) -> Discovery:
    """Return the state and the splits of a new query whose source starts after the input in ``read``.

    Of the external system, only the names and modification times of files are read.

    Raises:
        ConfigError: ``read`` is not a position of this kind of source, or has a file that does not exist or that the
            source does not list.
    """
    is_files = not isinstance(read, str | Mapping)
    if isinstance(source, FileSource | SparkFilesSource) and is_files:
        return start_after_files(source, _modified(source, [path_of(text) for text in read]))
    if isinstance(source, KafkaSource) and isinstance(read, Mapping) and (offsets := kafka_offsets(read)):
        return source.discovery_at(offsets, parallelism)
    if isinstance(source, PythonSource) and isinstance(read, Mapping):
        return source.discovery_at(dict(read))
    if isinstance(source, FileSource | SparkFilesSource | KafkaSource | PythonSource):
        raise ConfigError(
            f"{source.describe()} cannot begin after {read!r:.100}: give a list of paths for files, "
            '{"topic": {"0": 17}} for Kafka, the offset of the reader for a Python data source'
        )
    raise ConfigError(f"{source.describe()} has no position to begin at: files, Kafka and Python data sources have")


def start_after_files(source: FileSource | SparkFilesSource, files: Mapping[str, int]) -> Discovery:
    """Return the state and the splits of a new query whose source starts after these files.

    Args:
        source: a source of files.
        files: modification time in milliseconds by path. The files may have been removed.
    """
    state = source.file_discovery.state_after_reading(files)
    return Discovery((), state if isinstance(source, FileSource) else {"files": state, "range": 0})


def kafka_offsets(position: Mapping[str, Any]) -> dict[Partition, int]:
    """Parse Kafka offsets in Spark's form; empty if ``position`` has another form."""
    found: dict[Partition, int] = {}
    for topic, partitions in position.items():
        if not isinstance(partitions, Mapping):
            return {}
        for number, offset in partitions.items():
            if not (isinstance(number, str) and number.isdigit() and type(offset) is int and offset >= 0):
                return {}
            found[topic, int(number)] = offset
    return found


def path_of(text: str) -> str:
    """Return the path of a file that is given as a path or, as in Spark, as a percent-encoded ``file:`` URL."""
    return local_path(unquote(text)) if text.startswith("file:") else local_path(text)


def _modified(source: FileSource | SparkFilesSource, paths: Sequence[str]) -> dict[str, int]:
    """Return the modification times by path, in milliseconds as in Spark."""
    try:
        found = {path: os.stat(path).st_mtime_ns // 1_000_000 for path in paths}
    except OSError as error:
        raise ConfigError(f"{source.describe()} cannot have read {error.filename}: {error.strerror}") from error
    strange = source.file_discovery.not_listed(paths)
    if strange:
        raise ConfigError(f"{source.describe()} does not read {strange[0]}: give files of its own path only")
    return found
