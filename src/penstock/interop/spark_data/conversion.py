"""Conversion of a portable snapshot with large state: Spark tasks copy ranges of key groups in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from penstock.decoding import decode_msgpack
from penstock.errors import CorruptSnapshot
from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.snapshots.bootstrap import LocationBootstrap
from penstock.snapshots.format.sections import SectionWriter, state_path
from penstock.snapshots.portable.convert import StatePart, StatesBySubtask, convert_snapshot, write_states
from penstock.snapshots.portable.layout import Manifest
from penstock.snapshots.portable.untrusted_files import key_groups_by_row_group, read_rows
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.store.stores import store_at
from penstock.snapshots.writing.base_sections import append_rows
from penstock.snapshots.writing.state_index import KeyGroups
from penstock.spark.shipping import ship_to_cluster
from penstock.spark.watched_tasks import watched_tasks

TASK_BYTES = 128 << 20
"""Approximate bytes of a Parquet part that one task reads."""
FIRST_FILE = 1 << 20
"""Number of the first file of a task. Files of slots have lower numbers, because no snapshot has so many slots."""


def convert_with_spark(
    spark: SparkSession,
    directory: str | Path,
    location: str | Path,
    task_bytes: int = TASK_BYTES,
    progress: Progress = no_progress,
) -> SnapshotMetadata:
    """Convert a portable snapshot as ``convert_snapshot`` does, by tasks of the session's executors.

    The executors must see both folders, and the one to which a portable snapshot of an object store is copied.

    Args:
        spark: the session.
        directory: the portable snapshot.
        location: the new location.
        task_bytes: approximate bytes that one task reads, at least one key group.
        progress: as for ``convert_snapshot``; called for the tables when tasks have ended.
    """

    def states(
        bootstrap: LocationBootstrap, manifest: Manifest, parts: Sequence[StatePart], meter: Meter
    ) -> StatesBySubtask:
        return _by_tasks(spark, bootstrap, manifest, parts, task_bytes, meter)

    return convert_snapshot(directory, location, states, progress=progress)


def _by_tasks(
    spark: SparkSession,
    bootstrap: LocationBootstrap,
    manifest: Manifest,
    parts: Sequence[StatePart],
    task_bytes: int,
    meter: Meter,
) -> StatesBySubtask:
    metadata = manifest.metadata
    found = write_states(bootstrap, manifest, [part for part in parts if part.part.rows == 0], meter)
    full = [part for part in parts if part.part.rows]
    tasks = [(number, groups) for number, part in enumerate(full) for groups in _ranges(part, task_bytes)]
    if not tasks:
        return found
    ship_to_cluster(spark)
    copy = _CopyTask(bootstrap.store.root, bootstrap.first_file + FIRST_FILE, metadata, full)
    with watched_tasks(spark, meter):
        results = spark.sparkContext.parallelize(tasks, len(tasks)).map(copy).collect()
    rows = [0] * len(full)
    for (number, _), written in sorted(zip(tasks, results, strict=True), key=lambda pair: pair[0]):
        if isinstance(written, str):
            raise CorruptSnapshot(written)
        entries = decode_msgpack(written, list[StateEntry])
        rows[number] += sum(entry.rows for entry in entries)
        found.setdefault((full[number].vertex, full[number].part.subtask), []).extend(entries)
    used = {entry.section.path for entries in found.values() for entry in entries}
    bootstrap.store.delete_all(
        [path for path in bootstrap.attempt_files() if path not in used]
    )  # remove the files of tasks that ran twice
    for part, count in zip(full, rows, strict=True):
        if count != part.part.rows:
            raise CorruptSnapshot(f"{part.part.file.path} has {count} rows instead of {part.part.rows}")
    return found


def _ranges(part: StatePart, task_bytes: int) -> Iterator[KeyGroups]:
    """Yield ranges of key groups with about ``task_bytes`` each. Together they cover all possible key groups."""
    begun, held, highest = 0, 0, int(np.iinfo(np.int16).max)
    for (_, last), size in key_groups_by_row_group(part.path, part.table, part.part):
        held += size
        if held >= task_bytes and begun <= last < highest:
            yield begun, last
            begun, held = last + 1, 0
    yield begun, highest


class _CopyTask:
    """Function of a task: copies some key groups of a part to base sections in a file of its own."""

    def __init__(self, root: str, first_file: int, metadata: SnapshotMetadata, parts: Sequence[StatePart]) -> None:
        self._root = root
        self._first_file = first_file
        self._generation = metadata.generation
        self._checkpoint = metadata.checkpoint
        self._max_parallelism = metadata.max_parallelism
        self._parts = parts

    def __call__(self, task: tuple[int, KeyGroups]) -> bytes | str:
        """Return the encoded entries, or the text of an error of the part."""
        context = TaskContext.get()
        assert context is not None
        part, groups = self._parts[task[0]], task[1]
        path = state_path(self._generation, self._checkpoint, self._first_file + context.taskAttemptId())
        name = part.prefix(self._generation, self._checkpoint), part.table.operator_id, part.table.table
        try:
            schema, batches = read_rows(part.path, part.table, part.part, self._max_parallelism, groups)
            with SectionWriter(store_at(self._root), path) as writer:
                return msgspec.msgpack.encode(list(append_rows(writer, *name, schema, _of_key_groups(batches, groups))))
        except CorruptSnapshot as error:
            return str(error)


def _of_key_groups(batches: Iterator[pa.RecordBatch], groups: KeyGroups) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        numbers = batch.column(0).to_numpy(zero_copy_only=False)
        first, end = np.searchsorted(numbers, groups[0], "left"), np.searchsorted(numbers, groups[1], "right")
        if first < end:
            yield batch.slice(first, end - first)
