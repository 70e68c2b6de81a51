"""``penstock.importSparkCheckpoint``: converts a checkpoint of Spark's engine, so that its query continues in Penstock.

First the checkpoint is read and compared with the DataFrame. Then a new checkpoint location is created atomically. Its
log begins with ``Forked``: the new query is a fork of Spark's query and does not commit what Spark has committed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.api.sessions import set_workers_python
from penstock.api.start import session_options
from penstock.config import parse_options
from penstock.errors import CheckpointFailed, ConfigError, LocationError, NotSupported
from penstock.interop.spark_checkpoint.aggregation_mapping import AggregationMapping
from penstock.interop.spark_checkpoint.deduplication_mapping import DeduplicationMapping
from penstock.interop.spark_checkpoint.findings import SAME, Finding, refuse
from penstock.interop.spark_checkpoint.logs import SparkCheckpoint, read_checkpoint
from penstock.interop.spark_checkpoint.mapping import SparkState, StateMapping
from penstock.interop.spark_checkpoint.plans import graph_of, source_of, stateful_operators
from penstock.interop.spark_checkpoint.positions import WAY_OUT, planned_batch, start_discovery
from penstock.interop.spark_checkpoint.state import SparkStateReader, StateOperator, write_state
from penstock.interop.spark_checkpoint.stateful_mapping import StatefulMapping
from penstock.model.ids import snapshot_id
from penstock.model.job_graph import JobGraph, OperatorSpec, Vertex
from penstock.model.manifest import (
    FORMAT_VERSION,
    SlotManifest,
    SnapshotMetadata,
    SourceManifest,
    StateEntry,
    SubtaskManifest,
)
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from penstock.operators.aggregate.final import FinalAggregateSpec
from penstock.operators.deduplicate import DeduplicateSpec
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.watermark import WatermarkOperator, WatermarkSpec
from penstock.snapshots.bootstrap import LocationBootstrap, bootstrap_location, location_in_use_error
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.log.entries import PlannedBatch
from penstock.snapshots.portable.files import new_directory
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.stores import store_at
from penstock.spark.errors import pysparks_refusals
from penstock.spark.launcher import SparkLauncher
from penstock.spark.watched_tasks import watched_tasks

MAPPINGS: dict[type[OperatorSpec], type[StateMapping]] = {
    FinalAggregateSpec: AggregationMapping,
    DeduplicateSpec: DeduplicationMapping,
    TransformWithStateSpec: StatefulMapping,
}
"""Class of the mapping from Spark's state, by the class of Penstock's operator."""
_MICROS_PER_MILLI = 1_000
_SHARE = 1000
"""Meter units for reading Spark's state, and as many for writing it."""
EXACT, AGAIN = "exact", "again"
_FIRST = 1
"""Generation and checkpoint of the new snapshot."""


@dataclass(frozen=True)
class ImportedCheckpoint:
    """Result of an import.

    Attributes:
        location: the new checkpoint location.
        snapshot: the id of its snapshot.
        query_id: the id of Spark's query.
        batch: its newest committed batch: nothing up to it is read again.
        planned: a newer batch that Spark had planned and not committed, see ``importSparkCheckpoint``; None: there is
            none.
        watermark_ms: the watermark; None: there is none yet.
        state_rows: number of imported rows of state: groups of an aggregation, keys of a deduplication, values of state
            variables, and timers.
    """

    location: str
    snapshot: str
    query_id: str
    batch: int
    planned: int | None
    watermark_ms: int | None
    state_rows: int


@pysparks_refusals()
def importSparkCheckpoint(  # noqa: N802 - named as PySpark names things
    df: DataFrame,
    checkpoint: str,
    target: str,
    *,
    outputMode: str = "append",  # noqa: N803
    parallelism: int | None = None,
    planned: str = EXACT,
) -> ImportedCheckpoint:
    """Create a checkpoint location from a checkpoint of Structured Streaming. ``df`` started there continues the query.

    Spark's query must have ended. The import does not change its checkpoint, which may be removed afterwards. Spark
    jobs read the state.

    Args:
        df: the streaming DataFrame, built as for Spark.
        checkpoint: the ``checkpointLocation`` of Spark's query, on a file system that driver and executors share.
        target: a new ``checkpointLocation``, absent or empty. It is created atomically.
        outputMode: the output mode of Spark's query. In append mode results that were not emitted yet will be emitted;
            in the other modes Spark has emitted them.
        parallelism: parallelism of the snapshot, by default that of a new query. The query may be started with another
            one. ``maxParallelism`` comes from the session's ``spark.penstock.maxParallelism`` and cannot be changed.
        planned: for a batch that Spark has planned but not committed. ``exact``: the query processes it first, with its
            own id and exactly its rows; refused if that is not possible. ``again``: its rows are read again with all
            others, under new batch ids; the sink must not have any of them yet.

    Raises:
        NotSupported: a part cannot be mapped. The text has a table of all such parts, and nothing was written.
        LocationError: the checkpoint is missing, damaged or not Spark's, or the target is not empty.
        ConfigError: see ``writeStream(df).start``.
    """
    return import_checkpoint(df, checkpoint, target, outputMode, parallelism, planned)


def import_checkpoint(
    df: DataFrame,
    checkpoint: str,
    target: str,
    output_mode: str,
    parallelism: int | None,
    planned: str = EXACT,
    progress: Progress = no_progress,
) -> ImportedCheckpoint:
    """Import a checkpoint, see ``importSparkCheckpoint``. ``progress``: called with the share of state that is done."""
    if planned not in (EXACT, AGAIN):
        raise ConfigError(f"planned={planned!r}: choose {EXACT} or {AGAIN}")
    read = read_checkpoint(checkpoint)
    store = store_at(target)
    _check_outside(read, store)
    spark = df.sparkSession
    given = {} if parallelism is None else {"parallelism": str(parallelism)}
    options = parse_options({**session_options(spark), **given})
    set_workers_python(spark)
    launcher = SparkLauncher(spark)
    width = options.parallelism or launcher.default_parallelism(options.max_parallelism)
    reader = SparkStateReader(spark, read)
    exact = planned == EXACT and read.planned is not None
    import_plan = _compare(df, output_mode, width, options.max_parallelism, read, reader, exact)
    launcher.prepare(import_plan.graph, replace(options, parallelism=width))
    with ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(_new_location(store))
            if bootstrap.found is not None:
                raise location_in_use_error(bootstrap.store)
            staging = stack.enter_context(_staging(bootstrap.store))
            written = import_plan.write(bootstrap, reader, staging, spark, Meter(2 * _SHARE, progress))
        except (CheckpointFailed, OSError) as error:
            raise LocationError(f"the location {target} cannot be written: {error}") from error
    return ImportedCheckpoint(
        location=store.root,
        snapshot=written.id,
        query_id=read.query_id,
        batch=read.batch,
        planned=read.planned,
        watermark_ms=read.watermark_ms or None,
        state_rows=sum(entry.rows for slot in written.slots for one in slot.subtasks for entry in one.states),
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def _compare(
    df: DataFrame,
    output_mode: str,
    parallelism: int,
    max_parallelism: int,
    read: SparkCheckpoint,
    reader: SparkStateReader,
    exact: bool,
) -> _ImportPlan:
    """Compare the checkpoint with the DataFrame. Raises NotSupported with a table of all parts that do not fit."""
    operators = reader.operators()
    known = {name for kind in MAPPINGS.values() for name in kind.spark_names}
    findings = [_refused(operator) for operator in operators if operator.name not in known]
    try:
        graph = graph_of(df, output_mode, parallelism, max_parallelism)
    except NotSupported as error:
        refuse(_refusal_start(read), [Finding("the DataFrame", str(error), "leave that part on Spark"), *findings])
        raise AssertionError("a table with a line is refused") from error
    source = source_of(graph).source
    try:
        position = planned_batch(source, read, parallelism) if exact else start_discovery(source, read, parallelism)
    finally:
        source.close()
    findings += _depends_on_batches(graph, read) if exact else []
    if isinstance(position, Finding):
        findings.append(position)
        position = Discovery((), None)
    paired = _pair_operators(graph, [operator for operator in operators if operator.name in known])
    states = []
    if isinstance(paired, list):
        findings += paired
    else:
        states = [_OperatorState(*one, SparkState(reader, operator, read.conf)) for operator, one in paired.items()]
        findings += [finding for state in states for finding in state.mapping.findings(state.spark)]
    refuse(_refusal_start(read), findings)
    return _ImportPlan(graph, read, position, states, exact)


def _depends_on_batches(graph: JobGraph, read: SparkCheckpoint) -> list[Finding]:
    """Find operators whose output depends on the batch of a row: Spark fixes the watermark and the time per batch."""
    follows_time = any(isinstance(spec, WatermarkSpec) for vertex in graph.vertices for spec in vertex.operators)
    why = "its rows depend on the watermark and the time of the batch"
    return [
        Finding(f"batch {read.planned} and {spec.name}", why, WAY_OUT)
        for _, spec in stateful_operators(graph)
        if follows_time or isinstance(spec, TransformWithStateSpec)
    ]


def _refusal_start(read: SparkCheckpoint) -> str:
    return f"{read.path} cannot be taken over as it is"


def _refused(operator: StateOperator) -> Finding:
    what = f"state/{operator.number} ({operator.name})"
    return Finding(what, "Penstock does not take over the state of such an operator", "leave this query on Spark")


def _pair_operators(
    graph: JobGraph, operators: list[StateOperator]
) -> dict[StateOperator, tuple[int, OperatorSpec, StateMapping]] | list[Finding]:
    """Pair Spark's operators with the stateful operators of the plan and their vertices.

    Returns:
        The pairs; or findings if they do not correspond.
    """
    stateful = stateful_operators(graph)[::-1]  # Spark counts from the sink, a graph from the source
    findings = [
        Finding(f"state of {spec.name}", "it has no counterpart in Spark", "start the query anew")
        for _, spec in stateful
        if type(spec) not in MAPPINGS
    ]
    if findings:
        return findings
    if not stateful:
        return [Finding(f"state/{one.number} ({one.name})", "the DataFrame has none", SAME) for one in operators]
    if not operators:
        return [Finding(f"state of {spec.name}", "Spark's query kept none", SAME) for _, spec in stateful]
    mappings = [MAPPINGS[type(spec)](spec) for _, spec in stateful]
    theirs, ours = [one.name for one in operators], [mapping.spark_name for mapping in mappings]
    if theirs != ours:
        return [Finding("state", f"Spark has {', '.join(theirs)}, the DataFrame {', '.join(ours)}", SAME)]
    return {
        operator: (vertex, spec, mapping)
        for operator, (vertex, spec), mapping in zip(operators, stateful, mappings, strict=True)
    }


def _check_outside(read: SparkCheckpoint, store: Store) -> None:
    """Refuse a location inside Spark's checkpoint, which must not change."""
    if Path(store.root).absolute().is_relative_to(read.path):
        raise LocationError(f"the location {store.root} lies in Spark's checkpoint; choose another one")


# -- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def _new_location(store: Store) -> Iterator[LocationBootstrap]:
    """Create the location. A local folder gets its name at the end; an object store is written in place."""
    if isinstance(store, LocalStore):
        with new_directory(Path(store.root), "the location") as folder:
            yield LocationBootstrap(LocalStore(folder))
        return
    with bootstrap_location(store.root) as bootstrap:
        yield bootstrap


@contextmanager
def _staging(store: Store) -> Iterator[Path]:
    """Create a temporary folder for Spark's tasks, next to the location, so that the executors share it."""
    parent = Path(store.root).parent if isinstance(store, LocalStore) else None
    with tempfile.TemporaryDirectory(prefix=".penstock-import-", suffix=".tmp", dir=parent) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class _OperatorState:
    """Stateful operator with its mapping and its state in Spark's checkpoint."""

    vertex: int
    spec: OperatorSpec
    mapping: StateMapping
    spark: SparkState


@dataclass(frozen=True)
class _ImportPlan:
    """Parts of a checkpoint that can be imported: source position and states. ``exact``: with the planned batch."""

    graph: JobGraph
    read: SparkCheckpoint
    position: Discovery
    states: Sequence[_OperatorState]
    exact: bool

    def write(
        self, bootstrap: LocationBootstrap, reader: SparkStateReader, staging: Path, spark: SparkSession, meter: Meter
    ) -> SnapshotMetadata:
        """Write the snapshot, and return its metadata."""
        bare = bootstrap.with_free_number(self._metadata({}))
        tables = [(state, table) for state in self.states for table in state.mapping.tables(state.spark)]
        staged = []
        for state, table in tables:
            read = meter.part(_SHARE // len(tables))
            with watched_tasks(spark, read):
                staged.append(reader.stage(table, state.vertex, state.spec, self.graph, staging))
            read.finish()
        states = write_state(bootstrap, bare, staged, self.graph, meter.part(_SHARE))
        whole = msgspec.structs.replace(self._metadata(states), checkpoint=bare.checkpoint, id=bare.id)
        planned = None
        if self.exact:
            assert self.read.planned is not None
            planned = PlannedBatch(self.read.query_id, self.read.planned)
        whole = BlobStore(bootstrap.store, bootstrap.first_file).write_blobs(whole)
        return bootstrap.complete(whole, continues=True, planned=planned)

    def _metadata(self, states: Mapping[tuple[int, int], list[StateEntry]]) -> SnapshotMetadata:
        graph = self.graph
        slots = [
            SlotManifest(index, [self._subtask(vertex, index, states) for vertex in graph.vertices])
            for index in range(graph.parallelism)
        ]
        spec = source_of(graph)
        vertex = next(vertex.id for vertex in graph.vertices if vertex.source is spec)
        source = SourceManifest(spec.operator_id, vertex, self.position.state, list(self.position.splits))
        return SnapshotMetadata(
            format_version=FORMAT_VERSION,
            id=snapshot_id(_FIRST),
            query_id=self.read.query_id,
            generation=_FIRST,
            checkpoint=_FIRST,
            alignment="aligned",
            requested=False,
            label="",
            created_ms=time.time_ns() // 1_000_000,
            parallelism=graph.parallelism,
            max_parallelism=graph.max_parallelism,
            slots=slots,
            sources=[source],
            plan=plan_of(graph),
            next_batch=self.read.next_batch,
            note=f"batch {self.read.batch} of a query on Spark's own engine",
        )

    def _subtask(
        self, vertex: Vertex, index: int, states: Mapping[tuple[int, int], list[StateEntry]]
    ) -> SubtaskManifest:
        closed_us = self.read.closed_ms * _MICROS_PER_MILLI
        scalars = {spec.operator_id: self._scalars(spec, index) for spec in vertex.operators}
        channels = [
            f"{edge.id}:{producer}"
            for edge in self.graph.inputs(vertex.id)
            for producer in edge.producers(index, self.graph.parallelism)
        ]
        return SubtaskManifest(
            vertex.id,
            index,
            states=states.get((vertex.id, index), []),
            scalars={operator_id: content for operator_id, content in scalars.items() if content},
            channel_watermarks=dict.fromkeys(channels, closed_us) if closed_us else {},
        )

    def _scalars(self, spec: OperatorSpec, index: int) -> dict[str, Plain]:
        """Return the scalars of an operator at the event time of Spark's query; empty if Spark's watermark is 0.

        Spark's next batch would still accept rows of all groups that are not closed. Then it would close groups up to
        its own watermark. Penstock does the same: the restored watermark is that of the closed groups, and it rises to
        Spark's watermark when there is nothing to read.
        """
        closed_us, reached_us = (ms * _MICROS_PER_MILLI for ms in (self.read.closed_ms, self.read.watermark_ms))
        if isinstance(spec, WatermarkSpec) and reached_us:
            operator = WatermarkOperator(spec)
            if closed_us:
                operator.advance_generated(closed_us)
            operator.hold_watermark(True)
            operator.advance_generated(reached_us)
            operator.hold_watermark(False)
            return dict(operator.snapshot().scalars)
        mapping = next((state.mapping for state in self.states if state.spec is spec), None)
        return {} if mapping is None else mapping.scalars(index, self.graph, closed_us)
