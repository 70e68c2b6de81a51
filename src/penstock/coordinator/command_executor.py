"""Command executor: performs all I/O that ``JobCoordinator`` commands. It blocks; each command has one method.

Commands for the log are executed on one thread, those for sinks on another, those for a source on a thread of that
source (``commands.executor_of``). The executor decides nothing: a failure becomes an event for the job coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import assert_never

import msgspec

from penstock.connectors.base import Committing, FenceOpener, SinkCommitter, Source
from penstock.coordinator.commands import (
    AbandonStagedData,
    AnswerRequestFiles,
    AnswerTake,
    CheckLocation,
    CollectionFailed,
    Command,
    GenerationReady,
    JobEvent,
    LocationChecked,
    NotifySourceCommitted,
    OpenGeneration,
    TakesRequested,
    WriteSnapshot,
)
from penstock.coordinator.machines.checkpoint_events import (
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    EpochCommitted,
    GenerationOpened,
    IdsReserved,
    LogFailed,
    LogSnapshot,
    MetadataFailed,
    MetadataWritten,
    ReserveFailed,
    ReserveIds,
    SnapshotLogged,
)
from penstock.coordinator.machines.checkpoints import ID_BLOCK
from penstock.coordinator.machines.splits import Discover, FreezeSource, SplitsFound
from penstock.coordinator.opening_refusals import pending_and_foreign, refuse_drained, refuse_missing_input
from penstock.coordinator.pending_epochs import batch_ids, check_pending_epochs, pending_epochs
from penstock.coordinator.retraction import check_retraction, take_back
from penstock.errors import (
    CheckpointFailed,
    CommitUnknown,
    CorruptSnapshot,
    Fenced,
    LocationError,
    SinkError,
    SinkFenced,
)
from penstock.model.commits import EpochCommit, LogPosition
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import LARGEST, SnapshotMetadata, SubtaskManifest
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.commands.owned_location import OwnedLocation
from penstock.snapshots.commands.request_handler import RequestHandler
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.location import refuse_moved
from penstock.snapshots.log import entries
from penstock.snapshots.log.entries import Forked, LogView, MetadataRef
from penstock.snapshots.log.snapshot_log import SUMMARY_EVERY, SnapshotLog
from penstock.snapshots.rescaling.relocate import relocate
from penstock.snapshots.restoring.narrowing import rows_to_replay
from penstock.snapshots.retention import collect
from penstock.snapshots.store.store import Store

OPEN_ATTEMPTS = 16
"""Number of times that a new driver retries when a running driver appends to the log at the same moment."""


class CommandExecutor:
    """Executes the commands of the job coordinator. It is the only part of the driver that performs I/O.

    Args:
        graph: the job.
        query_id: id of the query at this location.
        store: the location.
        committers: by sink operator id.
        sources: by source vertex id.
        token: returns a new random string per call (for log entries).
        wall_ms: returns the wall-clock time in milliseconds, for ``created_ms``.
        retained: number of periodic snapshots to keep.
        allow_older: recovery may skip a corrupt snapshot.
        allow_dropped: the state of operators that no longer exist may be dropped.
        forked: the first log entry of a fork whose files are here; None for any other location.
        refuse_copy_of: takes a path; raises LocationError if this location is a copy of an existing one at that path.
        committing: context in which each commit runs.
        summary_every: see ``SnapshotLog``.
    """

    def __init__(
        self,
        graph: JobGraph,
        query_id: str,
        store: Store,
        *,
        committers: Mapping[str, SinkCommitter],
        sources: Mapping[int, Source],
        token: Callable[[], str],
        wall_ms: Callable[[], int],
        retained: int,
        allow_older: bool = False,
        allow_dropped: bool = False,
        forked: Forked | None = None,
        refuse_copy_of: Callable[[str], None] = lambda origin: None,
        committing: Committing = nullcontext,
        summary_every: int = SUMMARY_EVERY,
    ) -> None:
        self._refuse_copy_of = refuse_copy_of
        self._graph = graph
        self._query_id = query_id
        self._store = store
        self._committers = dict(committers)
        self._sources = dict(sources)
        self._wall_ms = wall_ms
        self._retained = retained
        self._allow_older = allow_older
        self._allow_dropped = allow_dropped
        self._forked = forked
        self._committing = committing
        self._log = SnapshotLog(store, token, summary_every=summary_every)
        self._token = token
        self._catalog = Catalog(store)
        self._blobs = BlobStore(store)
        self._requests = RequestHandler(store, wall_ms)
        self._generation: GenerationId = 0
        self._adopted: GenerationId = 0
        self._ids_from: CheckpointId = 1
        self._batches_from = 0
        self._passed_over: CheckpointId | None = None
        self._fences: dict[str, str] = {}
        self._written: dict[CheckpointId, tuple[SnapshotMetadata, MetadataRef]] = {}
        self._settled_epoch = 0
        self._committers_open = False

    @property
    def view(self) -> LogView:
        """The log as this driver last read or wrote it."""
        return self._log.view

    def execute(self, command: Command) -> JobEvent | None:
        """Execute a command; return the event for the job coordinator, if it awaits one.

        Raises:
            Fenced: another driver took over; this one stops.
            SinkFenced: another driver took over an output. The next generation takes it over again or is refused.
            LocationError: (OpenGeneration) the location or its snapshots cannot be used.
            PlanChanged: (OpenGeneration) an epoch that awaits its commit cannot be delivered.
            SinkError: (OpenGeneration) output that a rollback left cannot be retracted, or has rows that are unknown to
                this location.
            Exception: any exception that a source's ``discover`` or a committer raised outside its contract.
        """
        match command:
            case OpenGeneration():
                return self._open(command)
            case WriteSnapshot():
                return self._write(command.metadata)
            case LogSnapshot():
                return self._log_complete(command)
            case ReserveIds():
                return self._reserve(command)
            case CollectGarbage():
                return self._collect(command)
            case AnswerRequestFiles():
                return self._answer_requests(command.spared)
            case AnswerTake():
                return self._answer_take(command)
            case CheckLocation():
                return self._check_location()
            case CommitEpoch():
                return self._commit(command)
            case AbandonStagedData():
                for committer in self._committers.values():
                    committer.abandon(command.generation)
            case Discover():
                discovery = self._sources[command.vertex].discover(command.state, self._graph.parallelism)
                return SplitsFound(command.generation, command.vertex, discovery)
            case FreezeSource():
                self._sources[command.vertex].freeze()
            case NotifySourceCommitted():
                self._notify_source(command)
            case _:
                assert_never(command)
        return None

    def close(self, committed_epoch: int, next_checkpoint: CheckpointId) -> None:
        """End orderly, after the last command: log the committed epoch, and return the unused ids.

        Raises:
            Fenced, OSError: the entry could not be logged. The next driver commits the last epochs again, which is
                harmless.
        """
        if self._generation:
            self._log.append(entries.EpochCommitted(self._generation, committed_epoch, next_checkpoint, ended=True))
            self._settle()

    # -- the log ------------------------------------------------------------------------------------------------------

    def _open(self, command: OpenGeneration) -> GenerationReady:
        if command.parallelism is not None:
            self._graph = replace(self._graph, parallelism=command.parallelism)
        for _ in range(OPEN_ATTEMPTS):
            view = self._begun()
            if self._generation and view.owner != self._generation:
                raise Fenced(f"Generation {view.owner} of another driver has taken over this checkpoint location")
            try:
                chosen = self._catalog.choose_newest(view, checksums=command.checksums, allow_older=self._allow_older)
            except CorruptSnapshot:
                # Until this driver owns the log, the owner may delete files that are being read here.
                if self._log.refresh() == view:
                    raise
                continue
            refuse_missing_input(chosen)
            entry = self._opening_entry(command, view, chosen.metadata)
            if not self._generation:
                refuse_drained(chosen.metadata, entry.committed_epoch)
            restored = chosen.metadata
            if restored is not None:
                restored = relocate(restored, self._graph, entry.committed_epoch, allow_dropped=self._allow_dropped)
            if not self._generation:
                self._open_committers(view, chosen.metadata, restored, entry.committed_epoch)
            self._passed_over = chosen.metadata.checkpoint if chosen.metadata is not None and chosen.skipped else None
            foreign = not self._check_fences()
            if (view.over or view.retract is not None) and self._adopted != view.owner:
                with suppress(Fenced):  # another driver appended first: read the log again
                    self._adopt(view, foreign)
                continue
            try:
                self._log.append(entry)
            except Fenced:
                if self._generation:
                    raise
                continue  # not an owner yet, and another driver appended first: read the log again
            if self._generation:
                self._generation = entry.generation  # the log has it, even if the fences cannot be opened now
            try:
                self._open_fences()
            except SinkFenced:
                if self._generation:
                    raise
                continue  # at a start, another driver opens them at the same time: check what it has written
            return self._opened(entry, restored, chosen.skipped)
        raise LocationError("another driver is writing to this checkpoint location without pause; stop it first")

    def _open_committers(
        self, view: LogView, stored: SnapshotMetadata | None, restored: SnapshotMetadata | None, committed_epoch: int
    ) -> None:
        """Open each committer once, after all of them have accepted their pending epochs."""
        if stored is not None and restored is not None:
            batches = batch_ids(restored, view.counted)
            pending = pending_epochs(self._graph, restored, committed_epoch, batches)
            before = [record for record in view.lineage if record.checkpoint < restored.checkpoint]
            check_pending_epochs(self._graph, pending, stored.plan, before, self._committers, self._query_id)
        if not self._committers_open:
            for committer in self._committers.values():
                committer.open(self._query_id)
            self._committers_open = True

    def _adopt(self, view: LogView, foreign: bool) -> None:
        """Apply a rollback's instructions about the output, in a generation that runs nothing.

        Until the next generation is in the log, another start repeats this.

        Args:
            foreign: an output has epochs of another copy of this location. Their numbers may equal those of epochs that
                are pending here, so this location must have no pending epochs.
        """
        retract = view.retract
        if retract is not None and foreign:
            retract = msgspec.structs.replace(retract, below=LARGEST)  # another copy may have had any epoch
        if retract is not None:
            check_retraction(retract, self._graph, self._committers)
        restored = view.lineage[-1].checkpoint if view.lineage else 0
        first, committed_epoch = view.next_checkpoint, view.committed_epoch
        if foreign and restored > committed_epoch:
            raise pending_and_foreign(view)
        entry = entries.GenerationOpened(
            view.next_generation, restored, first, first, committed_epoch, retract=retract, over=list(view.over)
        )
        self._log.append(entry)
        # If no check has found epochs of another copy, there can be none now. Pending epochs may then continue.
        self._open_fences(view.over if foreign else ())
        if retract is not None:
            take_back(retract, self._graph, self._committers)
            self._check_held()
        self._ids_from = 1 + max((committer.newest_epoch() for committer in self._committers.values()), default=0)
        self._batches_from = max((committer.next_batch() for committer in self._committers.values()), default=0)
        self._adopted = entry.generation

    def _check_fences(self) -> bool:
        """Return True if this location knows all of the output. Raise if an output refuses this driver.

        Call it before writing to the log.
        """
        opener = self._opener(self._log.view.over)
        # Read before the check: the error must not name a location that writes after the check.
        origins = [committer.written_from() for committer in self._committers.values()]
        are_known = [committer.check_fence(opener) for committer in self._committers.values()]
        for origin in origins:  # from before the check: none of them has written since the checked state
            self._refuse_copy_of(origin)
        return all(are_known)

    def _opener(self, over: Collection[str] = ()) -> FenceOpener:
        """Return the description of this driver for outputs."""
        log, view = self._log, self._log.view
        return FenceOpener(
            self._query_id,
            log.position,
            self._store.root,
            self._goes_on_from,
            log.check_owned,
            self._token,
            over,
            bool(view.lineage),
            max(view.left_at, view.recent_from),
        )

    def _goes_on_from(self, position: LogPosition) -> bool:
        """Return True if this location continues from a log position.

        A location that was copied while its query ran may have the log entry but not the files of its snapshot.
        """
        if not self._log.contains(position):
            return False
        return self._passed_over is None or not self._log.may_be_later(position, self._passed_over)

    def _open_fences(self, over: Collection[str] = ()) -> None:
        opener = self._opener(over)
        self._fences = {operator_id: one.fence(opener) for operator_id, one in self._committers.items()}

    def _begun(self) -> LogView:
        """Return the current log. For a fork, append its first entry if that is missing."""
        view = self._log.refresh()
        if deletion := self._log.deletion_text():
            raise FileNotFoundError(deletion)  # a mount may return: the snapshots are absent but not damaged
        refuse_moved(view)
        if view.next_seq > 1 or self._forked is None:
            return view
        try:
            return self._log.append(self._forked)
        except Fenced:
            view = self._log.refresh()
            if self._log.fork_entry() != self._forked:
                raise LocationError(
                    "another driver has begun another query at this checkpointLocation; give an empty one"
                ) from None
            return view

    def _opening_entry(
        self, command: OpenGeneration, view: LogView, metadata: SnapshotMetadata | None
    ) -> entries.GenerationOpened:
        first = (
            max(view.next_checkpoint, self._ids_from) if command.next_checkpoint is None else command.next_checkpoint
        )
        return entries.GenerationOpened(
            generation=view.next_generation,
            restored=0 if metadata is None else metadata.checkpoint,
            first_checkpoint=first,
            reserved_until=first + ID_BLOCK,
            committed_epoch=max(view.committed_epoch, command.committed_epoch),
            next_batch=self._batches_from,
        )

    def _opened(
        self, entry: entries.GenerationOpened, metadata: SnapshotMetadata | None, skipped: tuple[str, ...]
    ) -> GenerationReady:
        begins, self._generation = not self._generation, entry.generation
        self._written.clear()
        self._log.summarise()
        slots: list[list[SubtaskManifest]] = [[] for _ in range(self._graph.parallelism)]
        pending = []
        if metadata is not None:
            metadata = self._of_this_query(self._blobs.restore_blobs(metadata))
            slots = plan_restore(metadata, self._graph, entry.committed_epoch)
            batches = batch_ids(metadata, self._log.view.counted)
            pending = pending_epochs(self._graph, metadata, entry.committed_epoch, batches)
        planned = self._log.view.planned
        opened = GenerationOpened(
            entry.generation,
            entry.restored,
            entry.first_checkpoint,
            entry.reserved_until,
            entry.committed_epoch,
            tuple(pending),
            self._graph.parallelism,
            self._log.view.next_batch,
            planned.batch if planned is not None and planned.pending else None,
        )
        inflight_rows = rows_to_replay(self._store, slots, self._graph, exactly=begins)
        return GenerationReady(opened, metadata, slots, skipped, self._fences, inflight_rows)

    def _of_this_query(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """Return the snapshot with states of sources that belong to this query.

        The first snapshot of a fork or of an imported location belongs to another query.
        """
        if metadata.query_id == self._query_id:
            return metadata
        sources = [
            msgspec.structs.replace(one, state=self._sources[one.vertex].adopt_state(one.state))
            for one in metadata.sources
        ]
        return msgspec.structs.replace(metadata, sources=sources)

    def _write(self, metadata: SnapshotMetadata) -> JobEvent:
        metadata = msgspec.structs.replace(metadata, created_ms=self._wall_ms())
        try:
            # A new owner may have collected this driver's files. That ends this driver; it is no failed checkpoint.
            self._log.check_owned()
            self._check_held()
            metadata = self._blobs.write_blobs(metadata)
            self._catalog.check_origins(metadata, self._log.view)
            ref = self._catalog.write(metadata)
        except (Fenced, SinkFenced):
            raise
        except CorruptSnapshot as error:
            self._blobs.forget()
            reason = f"a file that it refers to is damaged: {error}; the next checkpoint writes everything anew"
            return MetadataFailed(metadata.checkpoint, reason, damaged=True)
        except (OSError, LocationError, CheckpointFailed) as error:
            return MetadataFailed(metadata.checkpoint, f"its metadata cannot be written: {error}")
        self._written[metadata.checkpoint] = (metadata, ref)
        return MetadataWritten(metadata.checkpoint, metadata.created_ms)

    def _log_complete(self, command: LogSnapshot) -> JobEvent:
        metadata, ref = self._written.pop(command.checkpoint)
        entry = entries.SnapshotComplete(
            command.generation,
            command.checkpoint,
            metadata.requested,
            ref,
            command.committed_epoch,
            command.reserve,
            metadata.label,
            note=metadata.note,
            next_batch=metadata.next_batch,
        )
        try:
            self._log.append(entry)
        except OSError as error:
            return LogFailed(command.checkpoint, f"it cannot be logged: {error}")
        self._blobs.snapshot_completed(metadata)
        return SnapshotLogged(command.checkpoint, command.reserve)

    def _reserve(self, command: ReserveIds) -> JobEvent:
        try:
            self._log.append(entries.EpochCommitted(command.generation, command.committed_epoch, command.reserve))
        except OSError as error:
            return ReserveFailed(f"ids cannot be reserved: {error}")
        return IdsReserved(command.reserve)

    def _collect(self, command: CollectGarbage) -> JobEvent | None:
        for checkpoint in [written for written in self._written if written not in command.in_flight]:
            del self._written[checkpoint]  # aborted after it was written, so it is never logged
            self._catalog.forget(checkpoint)
        try:
            collect(
                self._store,
                self._log,
                self._catalog,
                retained=self._retained,
                pinned=command.pinned,
                in_flight=command.in_flight,
                unlogged=self._files_not_logged(),
            )
            self._log.summarise()
            self._log.remove_covered()
        except Fenced:
            raise
        except (OSError, LocationError) as error:
            return CollectionFailed(str(error))
        return None

    def _files_not_logged(self) -> list[str]:
        return [path for checkpoint in self._written for path in self._catalog.known_files(checkpoint)]

    def _answer_requests(self, spared: CollectGarbage) -> JobEvent | None:
        if not self._generation:
            return None  # no generation owns the location yet
        owned = OwnedLocation(
            self._store, self._log, self._catalog, spared.pinned, spared.in_flight, tuple(self._files_not_logged())
        )
        try:
            takes = self._requests.handle_requests(owned)
        except Fenced:
            raise
        except (OSError, LocationError) as error:
            return CollectionFailed(str(error))
        return TakesRequested(takes) if takes else None

    def _answer_take(self, command: AnswerTake) -> JobEvent | None:
        try:
            self._requests.answer_snapshot_request(command.token, command.snapshot, command.refusal)
        except OSError as error:
            return CollectionFailed(f"who asked for {command.snapshot or 'a snapshot'} cannot be told: {error}")
        return None

    def _check_location(self) -> JobEvent:
        try:
            return LocationChecked(self._log.deletion_text())
        except OSError:
            return LocationChecked("")  # a store that fails may recover; the location is not known to be deleted

    def refuse_takes(self, reason: str) -> None:
        """Answer the open requests for snapshots after the query has ended and its last command has run."""
        refusal = f"{reason}; `penstock snapshot list` tells whether it was taken before that"
        for token in self._requests.pending_tokens:
            self._answer_take(AnswerTake(token, "", refusal))

    # -- sinks --------------------------------------------------------------------------------------------------------

    def _commit(self, command: CommitEpoch) -> JobEvent:
        self._settle()
        position = self._log.position_of(command.epoch)
        writer_id = self._writer_id(command.operator_id, command.batch)
        permit = EpochCommit(
            self._query_id, command.epoch, command.messages, command.batch, position=position, writer_id=writer_id
        )
        try:
            self._hold(position, command.batch + 1)
            with self._committing(permit):
                self._committers[command.operator_id].commit(permit)
        except SinkFenced:
            raise
        except CommitUnknown as error:
            return CommitFailed(command.epoch, command.operator_id, str(error), unknown=True)
        except SinkError as error:
            return CommitFailed(command.epoch, command.operator_id, str(error))
        return EpochCommitted(command.epoch, command.operator_id)

    def _check_held(self) -> None:
        for committer in self._committers.values():
            committer.check_held()

    def _hold(self, position: LogPosition, next_batch: int = 0) -> None:
        """Hold a log position in all outputs, so that a copy that one fenced output refuses is refused by all.

        The input of the copy is then still there.
        """
        for committer in self._committers.values():
            committer.hold(position, next_batch)

    def _notify_source(self, command: NotifySourceCommitted) -> None:
        source = self._sources[command.vertex]
        self._check_held()
        if source.removes_input():
            self._hold(self._log.position_of(self._log.view.lineage[-1].checkpoint))
        source.committed(command.state)

    def _writer_id(self, operator_id: str, batch: int) -> str:
        """Return the id by which an external sink distinguishes writers.

        Each output after the first has an id of its own, because it has other rows with the same batch id.
        """
        planned = self._log.view.planned
        query_id = planned.query_id if planned is not None and planned.batch == batch else self._query_id
        first = next(v.sink.operator_id for v in self._graph.vertices if v.sink is not None)
        return query_id if operator_id == first else f"{query_id}/{operator_id}"

    def _settle(self) -> None:
        """Notify the committers of logged commits. The view is a value that the log's thread replaces as a whole."""
        epoch = self._log.view.committed_epoch
        if epoch > self._settled_epoch:
            self._settled_epoch = epoch
            for committer in self._committers.values():
                committer.commits_logged(epoch)
