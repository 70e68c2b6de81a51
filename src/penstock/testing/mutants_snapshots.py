"""Broken snapshots: acknowledgements, the log that is the fence, and which files may go."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock.errors import CheckpointFailed, Fenced
from penstock.ids import CheckpointId
from penstock.protocol import coordinator_types as ct
from penstock.protocol.coordinator import Coordinator
from penstock.snapshot import collect as collect_module
from penstock.snapshot import work as w
from penstock.snapshot.catalog import metadata_path
from penstock.snapshot.driver import DriverCore
from penstock.snapshot.effects import DriverEffects
from penstock.snapshot.log import GenerationOpened, SnapshotDeleted, SnapshotLog, fold
from penstock.snapshot.sections import SectionWriter
from penstock.testing.mutation import mutant


def _any_generation(original: Any) -> Any:
    """What slots of an older Generation say is heard as if the current one said it."""

    def handle(self: DriverCore, event: w.DriverEvent, now_ms: float) -> Any:
        if isinstance(event, w.SplitRequested | w.ReaderProgressed | ct.Decline | ct.Ack | w.SlotRunning):
            event = dataclasses.replace(event, generation=self.generation)
        return original(self, event, now_ms)

    return handle


def _count_acknowledgements(original: Any) -> Any:
    """A repeated acknowledgement is taken for that of a slot that has not acknowledged."""

    def on_ack(self: Coordinator, event: ct.Ack, now_ms: float) -> Any:
        pending = self._pending.get(event.checkpoint)
        if pending is not None and event.manifest.slot in pending.acks and len(pending.acks) < self._parallelism:
            missing = next(slot for slot in range(self._parallelism) if slot not in pending.acks)
            manifest = msgspec.structs.replace(event.manifest, slot=missing)
            event = dataclasses.replace(event, manifest=manifest)
        return original(self, event, now_ms)

    return on_ack


def _nothing_told(original: Any) -> Any:
    def abort(self: Coordinator, *arguments: Any) -> list[ct.Command]:
        commands = original(self, *arguments)
        return [dataclasses.replace(c, tell_slots=False) if isinstance(c, ct.Abort) else c for c in commands]

    return abort


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
    def pinned(self: Coordinator) -> tuple[CheckpointId, ...]:
        return ()

    return pinned


def _in_flight_ignored(original: Any) -> Any:
    def orphans(view: Any, files: Any, referenced: Any, in_flight: Any) -> Any:
        return original(view, files, referenced, ())

    return orphans


def _metadata_first(original: Any) -> Any:
    def delete_snapshot(store: Any, log: Any, catalog: Any, checkpoint: int) -> None:
        store.delete(metadata_path(checkpoint))
        log.append(SnapshotDeleted(log.view.owner, checkpoint))
        catalog.forget(checkpoint)

    return delete_snapshot


def _ids_after_the_restored(original: Any) -> Any:
    def opening_entry(self: DriverEffects, work: Any, view: Any, metadata: Any) -> GenerationOpened:
        entry = original(self, work, view, metadata)
        first = entry.restored + 1
        return msgspec.structs.replace(  # type: ignore[no-any-return]
            entry, first_checkpoint=first, reserved_until=first + entry.reserved_until - entry.first_checkpoint
        )

    return opening_entry


SNAPSHOTS = {
    "stale-generation-accepted": mutant(
        "the driver hears slots of an older Generation",
        (DriverCore, "handle", _any_generation),
    ),
    "duplicate-acknowledgement-counted": mutant(
        "a slot that acknowledges twice counts as two slots",
        (Coordinator, "_on_ack", _count_acknowledgements),
    ),
    "abort-not-told": mutant(
        "slots are not told of an aborted checkpoint",
        (Coordinator, "_abort", _nothing_told),
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
    "base-not-pinned": mutant(
        "the base of a checkpoint in flight may be collected",
        (Coordinator, "_pinned", _nothing_pinned),
    ),
    "files-in-flight-collected": mutant(
        "files of checkpoints that are still in flight count as orphans",
        (collect_module, "orphans", _in_flight_ignored),
    ),
    "metadata-deleted-before-its-entry": mutant(
        "a snapshot's metadata goes before the log says that it does not exist any more",
        (collect_module, "delete_snapshot", _metadata_first),
    ),
    "ids-used-again": mutant(
        "a new Generation counts on from the checkpoint that it restores",
        (DriverEffects, "_opening_entry", _ids_after_the_restored),
    ),
}
