"""State of Spark's operators: read by Spark's own ``statestore`` source and written as sections of a snapshot.

A Spark job reads the state stores of any provider, maps their columns (``mapping.py``), partitions the rows by subtask,
sorts them by key group and writes them as Arrow files next to the new location. The driver copies these files, with one
batch in memory at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.decoding import decode_json
from penstock.errors import CorruptSnapshot, LocationError
from penstock.interop.spark_checkpoint.logs import STATE, SparkCheckpoint, list_names
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import JobGraph, OperatorSpec
from penstock.model.key_groups import owned_range
from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.snapshots.bootstrap import LocationBootstrap
from penstock.snapshots.format.sections import SectionWriter, state_path
from penstock.snapshots.progress_meter import Meter
from penstock.snapshots.writing.state_index import BASE
from penstock.snapshots.writing.state_sections import split_into_sections
from penstock.spark.job import reason
from penstock.state.hashing import groups_of
from penstock.state.stored_form import KEY_GROUP_COLUMN

_P = TypeVar("_P")
_STORES_WITH_IDS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_WRITTEN = "partition int, name string, rows long"


@dataclass(frozen=True)
class StateOperator:
    """Operator of Spark whose state is in ``state/<number>``, with Spark's name and its number of partitions."""

    number: int
    name: str
    partitions: int


@dataclass(frozen=True)
class MappedTable:
    """Table of Penstock's state, computed from Spark's state.

    Attributes:
        name: key in the ``state_schemas`` of its operator.
        rows: the table's columns without the key group, by position, in types that can be cast to those of the schema.
        key_group_columns: number of leading columns that decide the key group.
    """

    name: str
    rows: DataFrame
    key_group_columns: int


@dataclass(frozen=True)
class StagedTable:
    """Table whose rows Spark has written as Arrow files. ``files``: the file of each subtask that has rows."""

    vertex: int
    spec: OperatorSpec
    name: str
    key_group_columns: int
    files: Mapping[int, Path]

    @property
    def schema(self) -> pa.Schema:
        """The stored schema of the table."""
        return self.spec.state_schemas[self.name]


class SparkStateReader:
    """Reader of the state in a checkpoint, in a session of its own with the settings of the checkpoint.

    Args:
        spark: any session of the application.
        checkpoint: Spark's checkpoint.
    """

    def __init__(self, spark: SparkSession, checkpoint: SparkCheckpoint) -> None:
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._spark.conf.set("spark.sql.ansi.enabled", "true")  # a value that does not fit its type is an error
        self._spark.conf.set(_STORES_WITH_IDS, "2" if checkpoint.state_ids else "1")
        self._checkpoint = checkpoint

    def operators(self) -> list[StateOperator]:
        """Return the stateful operators by number; none if the query has no state.

        Raises:
            LocationError: Spark cannot read the state.
        """
        if not self._checkpoint.has_state:
            return []
        self._check_metadata()
        with self._reading():
            found = self._spark.read.format("state-metadata").load(str(self._checkpoint.path))
            rows = found.select("operatorId", "operatorName", "numPartitions").collect()
        return [StateOperator(*row) for row in sorted({(int(row[0]), str(row[1]), int(row[2])) for row in rows})]

    def _check_metadata(self) -> None:
        """Check that each operator has metadata: Spark ignores an operator without them."""
        folder = self._checkpoint.path / STATE
        for name in sorted(list_names(folder)):
            if name.isdigit() and not (folder / name / "_metadata").is_dir():
                raise LocationError(
                    f"{folder / name} has no _metadata: an older release of Spark has written it; let the query run "
                    "one more batch on Spark 4, and import it then"
                )

    def check_partitions(self, operator: StateOperator, keys: int) -> None:
        """Check that all partitions exist, because Spark reads only those that exist.

        Args:
            operator: the operator.
            keys: number of its key columns; without keys it has one partition.

        Raises:
            LocationError: one is missing, or there are too many.
        """
        folder = self._checkpoint.path / STATE / str(operator.number)
        existing = sorted(int(name) for name in list_names(folder) if name.isdigit())
        expected = operator.partitions if keys else 1
        if existing != list(range(expected)[: len(existing) + 1]):
            raise LocationError(
                f"{folder} says that it has {expected} partitions and has {len(existing)}; the checkpoint is damaged: "
                "restore it from a copy"
            )

    def rows(self, operator: StateOperator, **options: str) -> DataFrame:
        """Return the state after the committed batch: columns ``key`` and ``value``, or others for some options.

        Reads only the schema. ``options``: options of the ``statestore`` source.
        """
        with self._reading():
            reader = self._spark.read.format("statestore").option("batchId", self._checkpoint.batch)
            reader = reader.options(**options).option("operatorId", operator.number)
            return reader.load(str(self._checkpoint.path))

    def properties(self, operator: StateOperator, kind: type[_P]) -> _P:
        """Return the properties that Spark stores for operators with state variables.

        Raises:
            LocationError: they cannot be read.
        """
        with self._reading():
            found = self._spark.read.format("state-metadata").load(str(self._checkpoint.path))
            rows = found.where(F.col("operatorId") == operator.number).select("operatorProperties").collect()
        try:
            return decode_json(rows[0][0], kind)
        except (msgspec.DecodeError, IndexError) as error:
            raise LocationError(
                f"{self._checkpoint.path}: what Spark notes of state/{operator.number} ({operator.name}) is not known "
                f"here: {error}; only checkpoints of Spark 4.3 were tried"
            ) from error

    def no_rows(self, schema: pa.Schema) -> DataFrame:
        """Return an empty table.

        It does not call ``createDataFrame``, which would make this session the active one of the user.
        """
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in from_arrow_schema(schema)]
        return self._spark.range(0).select(*nulls)

    def stage(self, table: MappedTable, vertex: int, spec: OperatorSpec, graph: JobGraph, folder: Path) -> StagedTable:
        """Write the rows as Arrow files, by subtask. ``folder``: executors and driver share it.

        Raises:
            LocationError: Spark cannot read the state.
        """
        schema = spec.state_schemas[table.name]
        with self._reading():
            own = _with_key_group(table, graph.max_parallelism)
            owner = F.expr(f"int(int(c0) * {graph.parallelism} div {graph.max_parallelism})")  # see model/key_groups.py
            sorted_rows = own.repartitionById(graph.parallelism, owner).sortWithinPartitions("c0")
            written = sorted_rows.mapInArrow(_StagingTask(str(folder), schema), _WRITTEN).collect()
        files = {int(row["partition"]): folder / str(row["name"]) for row in written}
        return StagedTable(vertex, spec, table.name, table.key_group_columns, files)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not isinstance(error, PySparkException) and not type(error).__module__.startswith("py4j"):
                raise
            raise LocationError(
                f"{self._checkpoint.path}: Spark cannot read the state behind batch {self._checkpoint.batch}: "
                f"{reason(error)}; restore the checkpoint from a copy"
            ) from error


def _with_key_group(table: MappedTable, max_parallelism: int) -> DataFrame:
    """Return the columns of the stored schema, named ``c0``, ``c1``, ...

    The key group in ``c0`` is computed by Spark's ``xxhash64``, the hash function of ``state/hashing.py``.
    """
    names = [f"c{position}" for position in range(1, len(table.rows.columns) + 1)]
    rows = table.rows.toDF(*names)
    spread = names[: table.key_group_columns]
    group = (
        F.pmod(F.xxhash64(*spread), F.lit(max_parallelism)) if spread else F.lit(_group_without_keys(max_parallelism))
    )
    return rows.select(group.cast("short").alias("c0"), *names)


def _group_without_keys(max_parallelism: int) -> int:
    return int(groups_of([], 1, max_parallelism)[0])


class _StagingTask:
    """Function of Spark's tasks: writes one Arrow file per partition that has rows."""

    def __init__(self, folder: str, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return
        name, rows = f"{context.partitionId():05d}-{secrets.token_hex(8)}.arrows", first.num_rows
        with pa.ipc.new_stream(str(Path(self._folder, name)), self._schema) as writer:
            writer.write_batch(self._converted(first))
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(self._converted(batch))
        report = {"partition": [context.partitionId()], "name": [name], "rows": [rows]}
        types = [("partition", pa.int32()), ("name", pa.string()), ("rows", pa.int64())]
        yield pa.record_batch(report, schema=pa.schema(types))

    def _converted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [as_type(column, field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert the column to a type. Fields of structs are matched by position and may have other names."""
    if column.type == kind:
        return column
    if not pa.types.is_struct(kind):
        return column.cast(kind)
    children = [as_type(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())


# -- sections ---------------------------------------------------------------------------------------------------------


def write_state(
    bootstrap: LocationBootstrap,
    metadata: SnapshotMetadata,
    staged: Sequence[StagedTable],
    graph: JobGraph,
    meter: Meter,
) -> dict[tuple[int, int], list[StateEntry]]:
    """Write the staged rows as sections of a snapshot, one file per slot, and return entries by vertex and subtask."""
    found: dict[tuple[int, int], list[StateEntry]] = {}
    for subtask in range(graph.parallelism if staged else 0):
        path = state_path(metadata.generation, metadata.checkpoint, bootstrap.first_file + subtask)
        with SectionWriter(bootstrap.store, path) as writer:
            for table in staged:
                owner = f"g{metadata.generation}/c{metadata.checkpoint}/{SubtaskId(table.vertex, subtask)}"
                entries = found.setdefault((table.vertex, subtask), [])
                entries += _table_entries(writer, table, subtask, graph, owner)
        meter.add(meter.total // graph.parallelism)
    return found


def _table_entries(
    writer: SectionWriter, table: StagedTable, subtask: int, graph: JobGraph, owner: str
) -> list[StateEntry]:
    """Write a table of one subtask. ``owner``: start of the identities of sections."""
    entries = []
    operator_id, schema = table.spec.operator_id, table.schema
    prefix = f"{owner}/state/{operator_id}/{table.name}"
    path = table.files.get(subtask)
    for content in split_into_sections(_checked_rows(path, table, graph, subtask) if path is not None else ()):
        name = f"{prefix}/{writer.written:x}"
        section = writer.append(name, schema, ((batch, None) for batch in content))
        groups = content.first, content.last
        entries.append(StateEntry(operator_id, table.name, BASE, content.rows, *groups, section))
    if not entries:
        section = writer.append(f"{prefix}/0", schema, ())
        entries.append(StateEntry(operator_id, table.name, BASE, 0, 0, -1, section))
    return entries


def _checked_rows(path: Path, table: StagedTable, graph: JobGraph, subtask: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows, and check that they are in the key groups of their keys. No lookup would find other rows."""
    first, last = owned_range(subtask, graph.parallelism, graph.max_parallelism)
    with pa.memory_map(str(path)) as mapped:
        for batch in pa.ipc.open_stream(mapped):
            groups: Any = batch.column(KEY_GROUP_COLUMN).to_numpy(zero_copy_only=False)
            own = groups_of(batch.columns[1 : 1 + table.key_group_columns], batch.num_rows, graph.max_parallelism)
            if not np.array_equal(groups, own) or groups.min() < first or groups.max() > last:
                raise CorruptSnapshot(f"{path.name}: rows of the state do not lie in the key groups of their keys")
            yield batch
