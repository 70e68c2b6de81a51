"""A query with one StatefulProcessor at a location on disk: started, with whatever it declares, and started again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from penstock.model.job_graph import JobGraph
from penstock.model.key_groups import owner
from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.model.messages import AcknowledgeCheckpoint, FromSlot, TriggerCheckpoint
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.stateful.declaration import RowForm
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TimeMode
from penstock.planner.stateful import declared_state
from penstock.snapshots.fork import Origin, origin_query_id, start_fork
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.location import claim_identity, identity_of, open_location
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.restoring.state_tables import find_table
from penstock.snapshots.restoring.state_tables import read_rows as stored_rows
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.state.hashing import key_groups
from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from tests.support.snapshots.snapshot_kit import ROWS, Driver, Target, capture, graph

register_pickle_by_value(sys.modules[__name__])

STATEFUL = "transform-with-state-0"
GROUPS = 128
_TYPES: dict[str, DataType] = {
    "int": IntegerType(),
    "long": LongType(),
    "text": StringType(),
    "pair": StructType([StructField("a", IntegerType())]),
    "triple": StructType([StructField("b", StringType()), StructField("a", LongType())]),
}

Ops = list[list[Any]]


def struct(text: str) -> StructType:
    """``n long, s text``; a type may be one of Spark's, too."""
    fields = [part.split() for part in text.split(", ")]
    return StructType([StructField(name, _TYPES[kind]) for name, kind in fields])


class Keeper(StatefulProcessor):
    """Does what its rows say: ``[operation, variable, *arguments]``, each a JSON list.

    Args:
        variables: name -> ``value n long``, ``list n long``, or ``map k text -> n long``; ``ttl`` before it: it has a
            time to live.
        deleted: given to ``deleteIfExists`` behind them.
    """

    def __init__(self, variables: Mapping[str, str], deleted: tuple[str, ...] = ()) -> None:
        self.variables = dict(variables)
        self.deleted = deleted

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.states: dict[str, Any] = {}
        for name, text in self.variables.items():
            ttl_ms = 10**12 if text.startswith("ttl ") else None
            kind, _, schema = text.removeprefix("ttl ").partition(" ")
            parts = [struct(part) for part in schema.split(" -> ")]
            get = {"value": handle.getValueState, "list": handle.getListState, "map": handle.getMapState}[kind]
            self.states[name] = get(name, *parts, ttl_ms)
        for name in self.deleted:
            handle.deleteIfExists(name)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            for operation, name, *arguments in json.loads(row.value):
                yield Row(key=key[0], value=json.dumps(self.done(operation, name, *arguments)))

    def done(self, operation: str, name: str, *arguments: Any) -> Any:
        if operation == "timer":
            return self.handle.registerTimer(int(name))
        state = self.states[name]
        match operation:
            case "get" if self.variables[name].removeprefix("ttl ").startswith("map"):
                return sorted([list(key), list(value)] for key, value in state.iterator())
            case "get" if self.variables[name].removeprefix("ttl ").startswith("list"):
                return [list(value) for value in state.get()]
            case "get":
                return state.get()
            case "update":
                return state.update(tuple(arguments))
            case "append":
                return state.appendValue(tuple(arguments))
            case "put":
                return state.updateValue((arguments[0],), tuple(arguments[1:]))
            case "clear":
                return state.clear()
        raise AssertionError(operation)


def spec_of(processor: Keeper, time_mode: TimeMode = TimeMode.NONE, rows: pa.Schema = ROWS) -> TransformWithStateSpec:
    wrapper = TransformWithStateInPandasUdfUtils(processor, "none")
    declared = declared_state(None, processor, time_mode, STATEFUL)
    return TransformWithStateSpec(
        operator_id=STATEFUL,
        name="TransformWithState (Keeper)",
        output_schema=ROWS,
        input_schema=rows,
        keys=(0,),
        data=(0, 1),
        pickled=CloudPickleSerializer().dumps((wrapper.transformWithStateUDF, None)),
        form=RowForm.ROWS,
        time_mode=time_mode,
        variables=declared.variables,
        deleted=declared.deleted,
    )


def job_of(
    variables: Mapping[str, str],
    deleted: tuple[str, ...] = (),
    time_mode: TimeMode = TimeMode.NONE,
    parallelism: int = 1,
    rows: pa.Schema = ROWS,
) -> JobGraph:
    return graph(parallelism, spec_of(Keeper(variables, deleted), time_mode, rows))


class Run:
    """Run from a start at the location to a sudden end, as with a kill.

    Raises:
        PlanChanged: (the constructor) as a start does.
    """

    def __init__(
        self,
        location: Path,
        variables: Mapping[str, str],
        deleted: tuple[str, ...] = (),
        *,
        time_mode: TimeMode = TimeMode.NONE,
        parallelism: int = 1,
        backend: str = "memory",
        allow_dropped: bool = False,
        origin: Origin | None = None,
    ) -> None:
        self.store = open_location(str(location))
        self.graph = job_of(variables, deleted, time_mode, parallelism)
        proposed = identity_of(
            self.graph, "query-2" if origin else "query-1", origin_query_id(origin) if origin else ""
        )
        identity = claim_identity(self.store, proposed, allow_dropped=allow_dropped)
        self.driver = Driver(
            self.store,
            Target(),
            retained=100,
            query_id=identity.query_id,
            forked=start_fork(origin, self.store, identity, self.graph, allow_dropped=allow_dropped),
            job=self.graph,
            allow_dropped=allow_dropped,
        )
        ready = self.driver.start()
        self.backends = [MemoryBackend() if backend == "memory" else RocksDBBackend(8 << 20) for _ in ready.slots]
        self.operators: list[Operator] = []
        self.slots: list[SlotWriter] = []
        for index, manifests in enumerate(ready.slots):
            [spec] = self.graph.vertex(1).operators
            operator = spec.create()
            operator.open(OperatorContext(STATEFUL, index, parallelism, GROUPS, self.backends[index]))
            writer = SlotWriter(self.store, self.graph, ready.opened.generation, index, whole_bytes=0)
            if ready.restored is not None:
                restore = load_restore(manifests[1], self.store, [spec])
                operator.restore(restore.operators[STATEFUL])
                writer.restored(ready.restored.checkpoint, manifests)
            self.operators.append(operator)
            self.slots.append(writer)

    def do(self, *ops: list[Any], keys: range = range(1)) -> dict[int, list[Any]]:
        """All of these operations on every one of the keys; what they gave, by key."""
        batch = pa.record_batch([pa.array(keys, pa.int64()), [json.dumps(ops)] * len(keys)], schema=ROWS)
        owners = [owner(int(group), len(self.operators), GROUPS) for group in key_groups(batch, (0,), GROUPS)]
        said: dict[int, list[Any]] = {}
        for index, operator in enumerate(self.operators):
            mine = batch.filter(pa.array([one == index for one in owners]))
            found = list(operator.process(mine)) if mine.num_rows else []
            while operator.has_pending_rows():
                found += operator.collect()
            for row in (row for rows in found for row in rows.to_pylist()):
                said.setdefault(row["key"], []).append(json.loads(row["value"]))
        return said

    def snapshot(self) -> SnapshotMetadata:
        checkpoint = self.driver.trigger()
        trigger = next(o for o in reversed(self.driver.others) if isinstance(o, TriggerCheckpoint))
        for index, slot in enumerate(self.slots):
            slot.begin(checkpoint, trigger.base)
            slot.write(capture(0, index, checkpoint))
            slot.write(capture(1, index, checkpoint, operators={STATEFUL: self.operators[index].snapshot()}))
            manifest = slot.finish(checkpoint)
            slot.confirm(checkpoint)
            self.driver.feed(FromSlot(self.driver.core.generation, AcknowledgeCheckpoint(checkpoint, manifest)))
        self.driver.work()
        return self.driver.effects._catalog.read(self.driver.effects.view.lineage[-1])

    def stored(self, metadata: SnapshotMetadata, table: str) -> list[dict[str, Any]]:
        """Return the stored rows as readers see them, in the order of keys."""
        assert metadata.plan is not None
        found = find_table(self.store, metadata, metadata.plan, f"{STATEFUL}/{table}")
        rows: list[dict[str, Any]] = []
        for slot in metadata.slots:
            own = [one for subtask in slot.subtasks for one in subtask.states if one.table == table]
            for batch in stored_rows(self.store, own, found.schema, found.key_count):
                rows += batch.to_pylist()
        return sorted(({k: v for k, v in row.items() if k != "__key_group"} for row in rows), key=lambda r: r["key"])

    def entries(self, metadata: SnapshotMetadata, table: str) -> list[StateEntry]:
        return table_entries(metadata)[STATEFUL, table]

    def end(self) -> None:
        """Orderly, so that others may own the location."""
        coordinator = self.driver.core.coordinator
        self.driver.effects.close(coordinator.committed_epoch, coordinator.next_checkpoint)

    def close(self) -> None:
        for operator, backend in zip(self.operators, self.backends, strict=True):
            operator.close()
            backend.close()
