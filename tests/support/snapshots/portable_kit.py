"""Snapshots worth exporting, and what restoring one gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.coordinator.machines.checkpoint_events import CheckpointPolicy, SnapshotRequested, Tick
from penstock.coordinator.machines.job import JobCoordinator
from penstock.model.elements import Alignment, Captured, Side
from penstock.model.ids import ChannelId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import AcknowledgeCheckpoint, FromSlot, TriggerCheckpoint
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.base import OperatorState
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.format.blobs import Blob, BlobStore
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.location import claim_identity, identity_of, open_location
from penstock.snapshots.log.entries import SnapshotComplete
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.rescaling.rescale import rescale
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import LocalStore
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.state.hashing import groups_of
from penstock.state.stored_form import BatchCapture
from simulator.jobs.count_table import CountTable, merged
from tests.support.snapshots.snapshot_kit import (
    COUNT,
    STATE,
    CountSpec,
    Driver,
    NoSource,
    Target,
    capture,
    captured,
    graph,
    rows,
)

LABEL = "für später"
KEPT = "lane/source-1/kept.parquet"


def stream_bytes(*batches: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


class BlobSource(NoSource):
    """Remembers something large, and has a split that is a file at the location."""

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        if state is not None:
            return Discovery([], state)
        blob = Blob(stream_bytes(pa.record_batch({"file_hash": [b"0123456789abcdef"], "modified_ms": [7]})))
        return Discovery([Split("kept", {"path": KEPT}), Split("s1", {"n": 1})], {"segments": [blob], "newest_ms": 7})


class Scene:
    """A location of a query at parallelism 2 whose newest snapshot has everything: chains of deltas, rows in flight in
    several layers and sections, splits, watermarks, messages, scalars, a blob and a kept file."""

    def __init__(self, directory: Path, rounds: int = 4) -> None:
        self.location = directory / "native"
        self.store = open_location(str(self.location))
        self.graph = graph(2)
        self.player = Driver(self.store, Target(), source=BlobSource(), parallelism=2)
        claim_identity(self.store, identity_of(self.graph, "query-1"))
        kept = self.location / KEPT
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"rows that a split names")
        self.player.start()
        self.slots = [SlotWriter(self.store, self.graph, 1, slot, whole_bytes=0) for slot in range(2)]
        self.tables = [CountTable(STATE, 128) for _ in range(2)]
        for key in range(800):
            group = int(groups_of([pa.array([key])], 1, 128)[0])
            self.tables[group // 64][key,] = 0
        for round_ in range(1, rounds + 1):
            self.checkpoint = self.round(round_, label=LABEL if round_ == rounds else "")

    def round(self, number: int, label: str = "") -> int:
        for table in self.tables:
            keys = sorted(key for (key,), _ in table.items())
            for key in keys[number :: 7 + number]:
                table[key,] = number
            table.pop((keys[number],), None)
        player, before = self.player, len(self.player.others)
        player.now += 1000
        player.feed(SnapshotRequested(Alignment.UNALIGNED, label, ticket=number) if label else Tick())
        trigger = next(o for o in player.others[before:] if isinstance(o, TriggerCheckpoint))
        for slot, writer in enumerate(self.slots):
            # Which splits a reader has is of no importance here; that they come back is.
            splits = [Split("kept", {"path": KEPT}, {"row": 3}), Split("here", {"n": 9}, home=slot)]
            flying = [one for consumer in range(2) for one in self.inflight(consumer, number)]
            out = [one for one in flying if one.side is Side.PRODUCER and one.channel.producer == slot]
            queued = [one for one in flying if one.side is Side.CONSUMER and one.channel.consumer == slot]
            writer.begin(trigger.checkpoint, trigger.base)
            writer.write(capture(0, slot, trigger.checkpoint, splits=splits, inflight=out))
            writer.write(
                capture(
                    1,
                    slot,
                    trigger.checkpoint,
                    operators={
                        COUNT: OperatorState({"counts": self.tables[slot].capture()}, {"seen": 1.5, "a": [None]})
                    },
                    inflight=queued,
                    messages={trigger.checkpoint: b"\0\xff staged"},
                    watermarks={ChannelId(0, producer, slot): 1000 + producer for producer in range(2)},
                )
            )
            manifest = writer.finish(trigger.checkpoint)
            writer.confirm(trigger.checkpoint)
            player.feed(FromSlot(1, AcknowledgeCheckpoint(trigger.checkpoint, manifest)))
        player.work()
        return trigger.checkpoint

    def inflight(self, slot: int, number: int) -> list[Captured]:
        """A consumer's rows, of two channels: in its own queues, and in those of its producers."""
        own = [key for key in range(60) if int(groups_of([pa.array([key])], 1, 128)[0]) // 64 == slot]
        first, second = ChannelId(0, 0, slot), ChannelId(0, 1, slot)
        return [
            captured(first, Side.CONSUMER, 10 + number, rows(*own[:9]), offset=2),
            captured(second, Side.CONSUMER, 20 + number, rows(*own[9:12])),
            captured(first, Side.PRODUCER, 30, rows(*own[12:20]), offset=number),
            captured(second, Side.PRODUCER, 40 + number, rows(own[3]), layer=1),
        ]


def restored(location: Path, job: JobGraph, keys: int = 1) -> list[Any]:
    """Everything that each subtask would start from, as plain values."""
    store = LocalStore(location)
    view = SnapshotLog(store).refresh()
    metadata = BlobStore(store).restore_blobs(Catalog(store).read(view.lineage[-1]))
    Catalog(store).check(metadata, checksums=True)
    found: list[Any] = [
        (source.operator_id, source.vertex, source.state, source.pending) for source in metadata.sources
    ]
    for slot in plan_restore(metadata, job):
        for manifest in slot:
            one = load_restore(manifest, store)
            tables = {
                (operator_id, name): sorted(merged(list(pieces), keys), key=repr)
                for operator_id, state in one.operators.items()
                for name, pieces in state.tables.items()
            }
            parts = {operator_id: state.parts for operator_id, state in one.operators.items()}
            found.append((tables, parts, one.splits, one.channel_watermarks, one.pending_messages, one.rows_in))
            found.append((one.inherited_messages, [_flying(store, entry, job) for entry in one.inflight]))
    return found


def _flying(store: LocalStore, entry: Any, job: JobGraph) -> Any:
    content = load_consumer_rows(store, entry, job)
    described = (entry.layer, entry.edge, entry.producer, entry.consumer, entry.side, entry.narrowed)
    groups = (entry.key_group_first, entry.key_group_last)
    reached = [places.tolist() for places in content.reached]
    return described, groups, [row for batch in content.batches for row in batch.to_pylist()], reached


def at(job: JobGraph, parallelism: int) -> JobGraph:
    return replace(job, parallelism=parallelism)


def one_table(directory: Path, batch: pa.RecordBatch, table: str = "counts") -> tuple[Path, JobGraph]:
    """A location whose snapshot has nothing but this table, written whole."""
    location = directory / "native"
    store = open_location(str(location))
    job = graph(1, CountSpec(states={table: batch.schema}))
    player = Driver(store, Target())
    player.graph = job
    player.core = JobCoordinator(job, plan_of(job), "query-1", CheckpointPolicy(1000, 60_000, Alignment.UNALIGNED))
    claim_identity(store, identity_of(player.graph, "query-1"))
    player.start()
    checkpoint = player.trigger()
    player.acknowledge(checkpoint, operators={COUNT: OperatorState({table: BatchCapture(batch)}, {})})
    player.work()
    return location, player.graph


def rewritten(location: Path, change: Callable[[SnapshotMetadata], SnapshotMetadata]) -> str:
    """A snapshot more at a location, with the newest one's metadata changed; returns its id."""
    store = LocalStore(location)
    log = SnapshotLog(store, lambda: "rewritten")
    view = log.refresh()
    metadata = change(Catalog(store).read(view.lineage[-1]))
    number = view.reserved_until
    metadata = msgspec.structs.replace(metadata, checkpoint=number, id=f"chk-{number}")
    ref = Catalog(store).write(metadata)
    log.append(SnapshotComplete(view.owner, number, False, ref, number, number + 1))
    return metadata.id


def taken_at(metadata: SnapshotMetadata, job: JobGraph) -> SnapshotMetadata:
    """Return a snapshot by a query that was restored from this one at another parallelism and has read nothing."""
    slots = [
        msgspec.structs.replace(
            slot,
            subtasks=[msgspec.structs.replace(one, shares=[], scalars=one.shares[0].scalars) for one in slot.subtasks],
        )
        for slot in rescale(metadata, job).slots
    ]
    return msgspec.structs.replace(metadata, slots=slots, parallelism=job.parallelism)


def names(directory: Path) -> Sequence[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
