"""Broken snapshots: acknowledgements, the log that is the fence, and which files may go."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.machines.checkpoint_events import MetadataFailed
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.errors import CheckpointFailed, Fenced
from penstock.model.ids import CheckpointId
from penstock.model.manifest import SnapshotMetadata, StateEntry
from penstock.model.messages import AcknowledgeCheckpoint
from penstock.snapshots import catalog as catalog_module
from penstock.snapshots import retention as collect_module
from penstock.snapshots.format.sections import SectionWriter
from penstock.snapshots.log import snapshot_log as log_module
from penstock.snapshots.log.entries import GenerationOpened, LogView, Summary, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.writing import state_sections
from penstock.snapshots.writing.base_index import NO_BASE, BaseIndex, BaseIndexes
from penstock.snapshots.writing.inflight_index import DurableRange, InflightIndex
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.snapshots.writing.state_index import BASE, DELTA, TableBase
from penstock.snapshots.writing.state_sections import StateWriter
from penstock.state.table import TableCapture
from simulator.mutants.mutation import mutant


def _append_anew(original: Any) -> Any:
    def append(self: SnapshotLog, entry: Any) -> Any:
        try:
            return original(self, entry)
        except Fenced:
            if isinstance(entry, GenerationOpened):
                raise
            self.refresh()
            return original(self, entry)

    return append


def _of_any_generation(original: Any) -> Any:
    def fold_any(view: LogView, entry: Any) -> Any:
        if not isinstance(entry, GenerationOpened | Summary):
            entry = msgspec.structs.replace(entry, generation=view.owner)
        return original(view, entry)

    return fold_any


def _damage_ignored(original: Any) -> Any:
    def on_metadata_failed(self: CheckpointCoordinator, event: MetadataFailed, now_ms: float) -> Any:
        return original(self, dataclasses.replace(event, damaged=False), now_ms)

    return on_metadata_failed


def _count_acknowledgements(original: Any) -> Any:
    """A repeated acknowledgement is taken for that of a slot that has not acknowledged."""

    def on_ack(self: CheckpointCoordinator, event: AcknowledgeCheckpoint, now_ms: float) -> Any:
        pending = self._pending.get(event.checkpoint)
        if pending is not None and event.manifest.slot in pending.acks and len(pending.acks) < self._parallelism:
            missing = next(slot for slot in range(self._parallelism) if slot not in pending.acks)
            manifest = msgspec.structs.replace(event.manifest, slot=missing)
            event = msgspec.structs.replace(event, manifest=manifest)
        return original(self, event, now_ms)

    return on_ack


def _whatever_it_says(original: Any) -> Any:
    """Else the metadata, which lacks a slot, would be refused before it is written."""

    def checked_metadata(metadata: SnapshotMetadata, what: str) -> SnapshotMetadata:
        return metadata

    return checked_metadata


def _failed_write_ignored(original: Any) -> Any:
    def close(self: SectionWriter) -> None:
        try:
            original(self)
        except CheckpointFailed:
            return

    return close


def _lost_entry_counts(original: Any) -> Any:
    def append(self: SnapshotLog, entry: Any) -> Any:
        if isinstance(entry, GenerationOpened):
            return original(self, entry)
        try:
            return original(self, entry)
        except Fenced:
            self._view = fold(self._view, entry)
            return self._view

    return append


def _never_fenced(original: Any) -> Any:
    def check_owned(self: SnapshotLog) -> None:
        return

    return check_owned


def _nothing_pinned(original: Any) -> Any:
    def pinned(self: CheckpointCoordinator) -> tuple[CheckpointId, ...]:
        return ()

    return pinned


def _in_flight_ignored(original: Any) -> Any:
    def orphans(view: Any, files: Any, referenced: Any, in_flight: Any) -> Any:
        return original(view, files, referenced, ())

    return orphans


def _ids_after_the_restored(original: Any) -> Any:
    def opening_entry(self: CommandExecutor, work: Any, view: Any, metadata: Any) -> GenerationOpened:
        entry = original(self, work, view, metadata)
        if work.next_checkpoint is None:
            return entry  # type: ignore[no-any-return]
        first = entry.restored + 1
        return msgspec.structs.replace(  # type: ignore[no-any-return]
            entry, first_checkpoint=first, reserved_until=first + entry.reserved_until - entry.first_checkpoint
        )

    return opening_entry


def _from_its_first_row(original: Any) -> Any:
    def part(self: DurableRange, offset: int, rows: int) -> DurableRange:
        found: DurableRange = original(self, offset, rows)
        return found._replace(row_start=self.row_start)

    return part


def _newest_index(original: Any) -> Any:
    def for_base(self: BaseIndexes, base: CheckpointId) -> BaseIndex:
        return self._indexes[max(self._indexes)] if self._indexes else NO_BASE

    return for_base


def _index_of_the_abandoned(original: Any) -> Any:
    def abandon(self: SlotWriter, checkpoint: CheckpointId) -> None:
        writer, index = self._writers.get(checkpoint), self._indexes._indexes.get(checkpoint)
        parts = [] if writer is None else list(writer._parts.values())
        pieces = [piece for part in parts for layer in part.layers.values() for piece in layer]
        original(self, checkpoint)
        if pieces or index is not None:
            self._indexes.add(checkpoint, index or BaseIndex(InflightIndex(pieces)))

    return abandon


def _since_the_last_capture(original: Any) -> Any:
    def written(self: StateWriter, table: Any, captured: TableCapture, base: TableBase | None) -> TableBase:
        if base is not None:
            base = dataclasses.replace(base, serial=max(base.serial, captured.serial - 1))
        return original(self, table, captured, base)  # type: ignore[no-any-return]

    return written


def _deltas_in_all_their_groups(original: Any) -> Any:
    def narrowed(entries: Iterable[StateEntry], dropped: Any) -> Iterator[StateEntry]:
        everything = list(entries)
        yield from original([entry for entry in everything if entry.kind == BASE], dropped)
        yield from (entry for entry in everything if entry.kind == DELTA)

    return narrowed


SNAPSHOTS = {
    "stale-generation-accepted": mutant(
        "a driver that is fenced goes on appending to the log, and its entries count",
        (SnapshotLog, "append", _append_anew),
        (SnapshotLog, "check_owned", _never_fenced),
        (log_module, "fold", _of_any_generation),
    ),
    "duplicate-acknowledgement-counted": mutant(
        "a slot that acknowledges twice counts as two slots",
        (CheckpointCoordinator, "_on_ack", _count_acknowledgements),
        (catalog_module, "checked_metadata", _whatever_it_says),
    ),
    "failed-write-acknowledged": mutant(
        "a capture is acknowledged although its file could not be made durable",
        (SectionWriter, "close", _failed_write_ignored),
    ),
    "lost-log-entry-counts": mutant(
        "a driver that loses an entry of the log to another goes on as if it had written it",
        (SnapshotLog, "append", _lost_entry_counts),
        (SnapshotLog, "check_owned", _never_fenced),
    ),
    "reference-from-the-first-row": mutant(
        "the rest of a half-read buffer is referred to from the buffer's first durable row",
        (DurableRange, "part", _from_its_first_row),
    ),
    "reference-into-an-aborted-checkpoint": mutant(
        "rows are referred to in the newest checkpoint of which anything was written, be it in flight or aborted",
        (BaseIndexes, "for_base", _newest_index),
        (SlotWriter, "abandon", _index_of_the_abandoned),
    ),
    "delta-since-the-last-capture": mutant(
        "what changed is written since the last capture of the table, although that one's checkpoint was aborted",
        (StateWriter, "_written", _since_the_last_capture),
    ),
    "superseded-deltas-apply": mutant(
        "deltas count in key groups that were given a new base since",
        (state_sections, "without_groups", _deltas_in_all_their_groups),
    ),
    "damaged-base-used-again": mutant(
        "a checkpoint whose base turned out to be damaged is followed by others with that base",
        (CheckpointCoordinator, "_on_metadata_failed", _damage_ignored),
    ),
    "base-not-pinned": mutant(
        "the base of a checkpoint in flight may be collected",
        (CheckpointCoordinator, "_pinned", _nothing_pinned),
    ),
    "files-in-flight-collected": mutant(
        "files of checkpoints that are still in flight count as orphans",
        (collect_module, "orphans", _in_flight_ignored),
    ),
    "ids-used-again": mutant(
        "a driver that restarts its job counts on from the checkpoint that it restores",
        (CommandExecutor, "_opening_entry", _ids_after_the_restored),
    ),
}
