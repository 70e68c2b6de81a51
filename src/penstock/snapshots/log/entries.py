"""Entries of the snapshot log, and ``LogView``, the result of folding them. Pure.

``fold`` alone defines the meaning of each entry. Releases before format version 2, which counted batches by sink, wrote
the field ``batches`` of entries; it is only read. Earlier releases refuse the newest kind of summary by its tag.
``docs/log-compaction.md`` explains which entries may be removed from a log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from penstock.grammar import FreeText, MarkToken, OperatorName, PositionName, QueryId, TokenStem
from penstock.model.commits import LogPosition
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import Count, Ordinal

STEM_DIGITS = 16
"""Hex digits at the start of a token that are equal in all entries of one writer."""
WRITERS_AT_MOST = 4096
"""Maximum number of writers that a summary lists. It lists the newest ones."""


class MetadataRef(msgspec.Struct, frozen=True):
    """Metadata file of a snapshot. ``checksum`` is the xxh3-128 hex digest of its bytes, ``length`` their number."""

    path: str
    length: Count
    checksum: FreeText


class Retraction(msgspec.Struct, frozen=True):
    """Output of rolled-back epochs. It must be retracted before a query runs again.

    Attributes:
        above, below: bounds of the epochs, both exclusive.
        sinks: targets by operator id of the sinks that wrote the output, see ``plan.target_of``; "" for an unknown
            target.
    """

    above: Count
    below: Count
    sinks: dict[OperatorName, list[FreeText]]


class PlannedBatch(msgspec.Struct, frozen=True):
    """Batch that Spark had planned but not committed. It is processed first, with its own identity.

    Its rows are exactly those of the splits in the location's first snapshot.

    Attributes:
        query_id: id of the query in Spark.
        batch: id of the batch in Spark.
        pending: True as long as no snapshot covers the batch.
    """

    query_id: QueryId
    batch: Count
    pending: bool = True


class GenerationOpened(msgspec.Struct, frozen=True, tag="generation-opened"):
    """A generation has become the owner of the log.

    Attributes:
        generation: the new owner. Its checkpoints have ids in ``[first_checkpoint, reserved_until)``.
        restored: the checkpoint that the generation starts from; 0 for none. Later complete snapshots leave the
            lineage.
        retract: output to retract before a query runs. A generation that runs a query has none.
        over: names of positions in logs of copies. The next driver takes over outputs that have recorded one of them
            (``docs/fencing.md``).
        next_batch: lowest batch id that a new epoch may get.
    """

    generation: Count
    restored: Count
    first_checkpoint: Count
    reserved_until: Count
    committed_epoch: Count
    batches: dict[OperatorName, Count] = {}
    retract: Retraction | None = None
    over: list[PositionName] = []
    next_batch: Count = 0


class SnapshotComplete(msgspec.Struct, frozen=True, tag="snapshot-complete"):
    """A snapshot is complete.

    Attributes:
        committed_epoch: the committed epoch when the snapshot was completed.
        reserved_until: checkpoint ids below this number are reserved.
        next_batch: ``next_batch`` of the snapshot's metadata; None if an earlier release wrote the entry.
    """

    generation: Count
    checkpoint: Ordinal
    requested: bool
    metadata: MetadataRef
    committed_epoch: Count
    reserved_until: Count
    label: FreeText = ""
    batches: dict[OperatorName, Count] = {}
    note: FreeText = ""
    next_batch: Count | None = None


class SnapshotDeleted(msgspec.Struct, frozen=True, tag="snapshot-deleted"):
    """A snapshot was deleted. Its files may no longer exist."""

    generation: Count
    checkpoint: Ordinal


class SnapshotLabelled(msgspec.Struct, frozen=True, tag="snapshot-labelled"):
    """A user has changed the label, the note or both of a snapshot. None keeps the current value. See ``relabeled``."""

    generation: Count
    checkpoint: Ordinal
    label: FreeText | None = None
    note: FreeText | None = None


class EpochCommitted(msgspec.Struct, frozen=True, tag="epoch-committed"):
    """Epochs up to ``epoch`` are committed. The entry is also written to reserve checkpoint ids.

    Attributes:
        reserved_until: checkpoint ids below this number are reserved.
        ended: the driver has stopped normally. ``reserved_until`` may then be lower than before.
    """

    generation: Count
    epoch: Count
    reserved_until: Count
    batches: dict[OperatorName, Count] = {}
    ended: bool = False


class SnapshotRecord(msgspec.Struct, frozen=True):
    """One existing snapshot.

    Attributes:
        requested: retention never removes the snapshot.
        in_lineage: the current generation descends from the snapshot.
        kept_by_label: the snapshot counts as requested only because a user has labeled it.
        logged_at: number of the entry that completed the snapshot; 0 if a later snapshot was completed earlier, and in
            entries of earlier releases.
    """

    checkpoint: Ordinal
    generation: Count
    requested: bool
    metadata: MetadataRef
    label: FreeText = ""
    in_lineage: bool = True
    note: FreeText = ""
    kept_by_label: bool = False
    logged_at: Count = 0


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """First entry of a fork, whose location begins with one snapshot of another query.

    The origin still commits the epochs that it had not committed yet. So in the fork all epochs up to the snapshot
    count as committed.

    Attributes:
        origin: id of the other query.
        first_checkpoint: lowest checkpoint id of the fork.
        sinks: targets of the origin's sinks, see ``plan.target_of``.
        next_batch: lowest batch id that an epoch may get; None if an earlier release wrote the entry or the snapshot.
        continues: this query replaces its origin, which ran in Spark or never ran.
    """

    origin: QueryId
    snapshot: SnapshotRecord
    first_checkpoint: Count
    sinks: list[FreeText] = []
    next_batch: Count | None = None
    continues: bool = False
    planned: PlannedBatch | None = None


class SnapshotCopied(msgspec.Struct, frozen=True, tag="snapshot-copied"):
    """A snapshot was copied into an archive.

    A generation of the query took the snapshot at another location. No generation of an archive runs a query, so the
    snapshot is in no lineage.
    """

    generation: Count
    snapshot: SnapshotRecord


class Moved(msgspec.Struct, frozen=True, tag="moved"):
    """Last entry of a log: the query was moved to the location whose mark has this ``token``."""

    generation: Count
    token: MarkToken


class SummaryOfVersion1(msgspec.Struct, frozen=True, tag="summary"):
    """Summary that a release before format version 2 wrote. ``batches`` belong to ``committed_epoch``."""

    generation: Count
    first_checkpoint: Count
    restored: Count
    committed_epoch: Count
    reserved_until: Count
    snapshots: list[SnapshotRecord]
    batches: dict[OperatorName, Count] = {}
    retract: Retraction | None = None


class SummaryOfVersion2(msgspec.Struct, frozen=True, tag="summary (format version 2)"):
    """Summary of releases without log compaction. See ``LogView.counted`` for ``counted`` and ``counted_epoch``."""

    generation: Count
    first_checkpoint: Count
    restored: Count
    committed_epoch: Count
    next_batch: Count
    reserved_until: Count
    snapshots: list[SnapshotRecord]
    retract: Retraction | None = None
    counted: dict[OperatorName, Count] = {}
    counted_epoch: Count = 0
    planned: PlannedBatch | None = None
    over: list[PositionName] = []
    left_at: Count = 0


class LogWriter(msgspec.Struct, frozen=True):
    """One driver or command that appended to a log.

    Attributes:
        first: number of its first entry. It wrote all entries from there up to the first entry of the next writer.
        stem: start of the tokens of its entries.
    """

    first: Ordinal
    stem: TokenStem


class Summary(SummaryOfVersion2, frozen=True, kw_only=True, tag="summary (format version 3)"):
    """The view after all entries before this one. The owner writes it; it does not change the view.

    Entries above ``head`` and below ``kept_from`` may be missing or removed later.

    Attributes:
        head: number of the first summary of this version.
        kept_from: number of the previous summary. So entries that a slow reader or copier has listed remain for a
            while.
        writers: see ``LogView.writers``.
    """

    head: Ordinal
    kept_from: Ordinal
    writers: list[LogWriter]


Entry = (
    GenerationOpened
    | SnapshotComplete
    | SnapshotDeleted
    | SnapshotLabelled
    | EpochCommitted
    | Forked
    | SnapshotCopied
    | Moved
    | SummaryOfVersion1
    | SummaryOfVersion2
    | Summary
)
ANY_SUMMARY = SummaryOfVersion1 | SummaryOfVersion2
"""Summary of any version. ``Summary`` is a subclass of version 2."""


@dataclass(frozen=True)
class BatchCounts:
    """Batch counts that releases before format version 2 kept instead of batch ids.

    Attributes:
        batches: number of epochs up to ``epoch`` with output, by operator id of the sink.
    """

    epoch: int = 0
    batches: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LogView:
    """The log folded up to ``next_seq``.

    Attributes:
        next_seq: number of the next entry.
        last_summary: number of the newest summary; 0 if there is none.
        owner: the generation that owns the location; 0 before the first one. In a fork that has not run yet, the
            generation that took the first snapshot.
        first_checkpoint: lowest checkpoint id that the owner may use.
        restored: checkpoint from which the owner was restored; 0 for none.
        committed_epoch: every epoch up to this one is committed or abandoned.
        next_batch: lowest batch id that a new epoch may get. It never decreases.
        counted: newest batch counts of earlier releases; empty if no earlier release used this location.
        planned: the planned batch with which the location began; see ``PlannedBatch``.
        reserved_until: lowest checkpoint id of the next generation, once the owner has stopped.
        snapshots: existing snapshots, by ascending checkpoint.
        ended: the owner has stopped normally: it no longer writes, deletes or commits anything. False after a crash.
        retract: output to retract before a query runs here.
        moved: token of the location to which the query was moved; empty if it was not moved.
        over: see ``GenerationOpened``.
        left_at: number of the last entry that made the query continue from a snapshot older than its newest; 0 if there
            is none.
        head: number of the first summary of format version 3; 0 if there is none, so an earlier release may continue.
        kept_from: entries above ``head`` and below this number may be missing.
        writers: writers of the entries above ``head``, in order; at most the newest ``WRITERS_AT_MOST``.
    """

    next_seq: int = 1
    last_summary: int = 0
    owner: GenerationId = 0
    first_checkpoint: CheckpointId = 1
    restored: CheckpointId = 0
    committed_epoch: int = 0
    next_batch: int = 0
    counted: BatchCounts = BatchCounts()
    planned: PlannedBatch | None = None
    reserved_until: CheckpointId = 1
    snapshots: tuple[SnapshotRecord, ...] = ()
    ended: bool = False
    retract: Retraction | None = None
    moved: str = ""
    over: tuple[str, ...] = ()
    left_at: int = 0
    head: int = 0
    kept_from: int = 0
    writers: tuple[LogWriter, ...] = ()

    @property
    def lineage(self) -> tuple[SnapshotRecord, ...]:
        """The snapshots from which recovery may choose, by ascending checkpoint."""
        return tuple(record for record in self.snapshots if record.in_lineage)

    @property
    def next_generation(self) -> GenerationId:
        return self.owner + 1

    @property
    def next_checkpoint(self) -> CheckpointId:
        """Lowest checkpoint id that no generation can have used."""
        return self.reserved_until

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotRecord | None:
        index = bisect_left(self.snapshots, checkpoint, key=_checkpoint)
        found = self.snapshots[index : index + 1]
        return found[0] if found and found[0].checkpoint == checkpoint else None

    def is_covered(self, seq: int) -> bool:
        """Return True if the last two summaries cover the entry, so that it may be removed."""
        return self.head < seq < self.kept_from

    def was_written(self, position: LogPosition) -> bool:
        """Return True if a covered entry had this position. Return False also if its writer is no longer known."""
        index = bisect_right(self.writers, position.seq, key=_first)
        return bool(index) and position.token[:STEM_DIGITS] == self.writers[index - 1].stem

    @property
    def recent_from(self) -> int:
        """Lowest entry number whose position stays known for long; 0 for all. See ``docs/log-compaction.md``."""
        newest = self.writers[-(WRITERS_AT_MOST // 2) :]
        return newest[0].first if len(newest) < len(self.writers) else 0


EMPTY_LOG = LogView()


def fold(view: LogView, entry: Entry) -> LogView:
    """Return the view after one more entry.

    Raises:
        ValueError: the entry contradicts the view, so the log was tampered with.
    """
    if view.moved:
        raise ValueError("an entry follows the last one: the query was moved away")
    after = replace(view, next_seq=view.next_seq + 1, ended=False)
    if isinstance(entry, ANY_SUMMARY):
        return _apply_summary(view, after, entry)
    if isinstance(entry, Forked):
        return _apply_fork(view, after, entry)
    if isinstance(entry, GenerationOpened):
        if entry.generation <= view.owner:
            raise ValueError(f"Generation {entry.generation} opened after {view.owner}")
        return replace(
            after,
            owner=entry.generation,
            first_checkpoint=entry.first_checkpoint,
            restored=entry.restored,
            committed_epoch=max(view.committed_epoch, entry.committed_epoch),
            counted=_newer_counts(view, entry.committed_epoch, entry.batches),
            reserved_until=entry.reserved_until,
            snapshots=tuple(
                record if record.checkpoint <= entry.restored else msgspec.structs.replace(record, in_lineage=False)
                for record in view.snapshots
            ),
            next_batch=max(view.next_batch, entry.next_batch),
            retract=entry.retract,
            over=tuple(entry.over),
            left_at=view.next_seq if any(r.checkpoint > entry.restored for r in view.lineage) else view.left_at,
        )
    if entry.generation != view.owner:
        raise ValueError(f"an entry of Generation {entry.generation} while {view.owner} owns the log")
    if isinstance(entry, SnapshotComplete):
        return _with_snapshot(view, after, entry)
    if isinstance(entry, SnapshotDeleted):
        rest = tuple(record for record in view.snapshots if record.checkpoint != entry.checkpoint)
        return replace(after, snapshots=rest)
    if isinstance(entry, SnapshotLabelled):
        return _with_label(view, after, entry)
    if isinstance(entry, SnapshotCopied):
        return _with_copy(view, after, entry.snapshot)
    if isinstance(entry, Moved):
        return replace(after, snapshots=(), ended=True, moved=entry.token)
    return replace(
        after,
        committed_epoch=max(view.committed_epoch, entry.epoch),
        counted=_newer_counts(view, entry.epoch, entry.batches),
        reserved_until=entry.reserved_until,
        ended=entry.ended,
    )


def with_writer(view: LogView, position: LogPosition) -> LogView:
    """Return the view with the writer of the newest entry. Must be called after ``fold``."""
    stem = position.token[:STEM_DIGITS]
    if not view.head or (view.writers and view.writers[-1].stem == stem):
        return view
    writers = (*view.writers, LogWriter(position.seq, stem))
    return replace(view, writers=writers[-WRITERS_AT_MOST:])


def summary_of(view: LogView) -> Summary:
    """Return the summary to append as the next entry."""
    return Summary(
        generation=view.owner,
        first_checkpoint=view.first_checkpoint,
        restored=view.restored,
        committed_epoch=view.committed_epoch,
        next_batch=view.next_batch,
        reserved_until=view.reserved_until,
        snapshots=list(view.snapshots),
        retract=view.retract,
        counted=dict(view.counted.batches),
        counted_epoch=view.counted.epoch,
        planned=view.planned,
        over=list(view.over),
        left_at=view.left_at,
        head=view.head or view.next_seq,
        kept_from=view.last_summary if view.head else view.next_seq,
        writers=list(view.writers),
    )


def _apply_summary(view: LogView, after: LogView, entry: SummaryOfVersion1 | SummaryOfVersion2) -> LogView:
    after = replace(
        after,
        last_summary=view.next_seq,
        owner=entry.generation,
        first_checkpoint=entry.first_checkpoint,
        restored=entry.restored,
        committed_epoch=entry.committed_epoch,
        reserved_until=entry.reserved_until,
        snapshots=tuple(_logged_at(view, record) for record in sorted(entry.snapshots, key=_checkpoint)),
        retract=entry.retract,
    )
    if isinstance(entry, SummaryOfVersion1):
        # No earlier release used more batch ids than it reserved checkpoint ids.
        counted = BatchCounts(entry.committed_epoch, entry.batches)
        return replace(after, next_batch=entry.reserved_until, counted=counted)
    after = replace(
        after,
        next_batch=entry.next_batch,
        counted=BatchCounts(entry.counted_epoch, entry.counted),
        planned=entry.planned,
        over=tuple(entry.over),
        left_at=entry.left_at,
    )
    return _apply_compaction(view, after, entry) if isinstance(entry, Summary) else after


def _apply_compaction(view: LogView, after: LogView, entry: Summary) -> LogView:
    if entry.head != (view.head or entry.head) or not entry.head <= entry.kept_from <= view.next_seq:
        raise ValueError(f"a summary with a head of {entry.head} entries and others from {entry.kept_from} on")
    firsts = [writer.first for writer in entry.writers]
    if firsts != sorted(set(firsts)) or not all(entry.head <= first < view.next_seq for first in firsts):
        raise ValueError("a summary that names the writers in no order")
    return replace(after, head=entry.head, kept_from=entry.kept_from, writers=tuple(entry.writers))


def _logged_at(view: LogView, record: SnapshotRecord) -> SnapshotRecord:
    """Return the record with ``logged_at`` of the view if an earlier release wrote the record without it."""
    known = None if record.logged_at else view.snapshot(record.checkpoint)
    return record if known is None else msgspec.structs.replace(record, logged_at=known.logged_at)


def relabeled(record: SnapshotRecord, label: FreeText | None, note: FreeText | None) -> SnapshotRecord:
    """Return the snapshot with another label or note; None keeps the current one.

    A labeled snapshot counts as requested, so retention keeps it. Without a label it counts again as it did before.
    """
    if note is not None:
        record = msgspec.structs.replace(record, note=note)
    if label is None:
        return record
    kept_by_label = bool(label) and (record.kept_by_label or not record.requested)
    requested = bool(label) or (record.requested and not record.kept_by_label)
    return msgspec.structs.replace(record, label=label, requested=requested, kept_by_label=kept_by_label)


def _newer_counts(view: LogView, epoch: int, batches: Mapping[str, int]) -> BatchCounts:
    """Return the counts of the later epoch. This release does not write counts."""
    return BatchCounts(epoch, batches) if batches and epoch > view.counted.epoch else view.counted


def _apply_fork(view: LogView, after: LogView, entry: Forked) -> LogView:
    """Return a fork's first view. Generations and checkpoint ids follow the origin's, so that no file name repeats."""
    if view.next_seq != 1:
        raise ValueError("a location that was in use cannot become a fork")
    record = msgspec.structs.replace(entry.snapshot, logged_at=view.next_seq)
    return replace(
        after,
        owner=record.generation,
        first_checkpoint=entry.first_checkpoint,
        restored=record.checkpoint,
        committed_epoch=record.checkpoint,
        next_batch=record.checkpoint if entry.next_batch is None else entry.next_batch,
        counted=BatchCounts(record.checkpoint),
        planned=entry.planned,
        reserved_until=entry.first_checkpoint,
        snapshots=(record,),
        ended=True,
    )


def _with_copy(view: LogView, after: LogView, record: SnapshotRecord) -> LogView:
    if view.snapshot(record.checkpoint) is not None or record.generation >= view.owner or record.in_lineage:
        raise ValueError(f"snapshot {record.checkpoint} cannot have been copied here")
    return replace(after, snapshots=_with_record(view.snapshots, msgspec.structs.replace(record, logged_at=0)))


def _with_label(view: LogView, after: LogView, entry: SnapshotLabelled) -> LogView:
    record = view.snapshot(entry.checkpoint)
    if record is None:
        raise ValueError(f"snapshot {entry.checkpoint} is labelled, and does not exist")
    named = relabeled(record, entry.label, entry.note)
    return replace(after, snapshots=tuple(named if one is record else one for one in view.snapshots))


def _with_record(records: tuple[SnapshotRecord, ...], record: SnapshotRecord) -> tuple[SnapshotRecord, ...]:
    """Insert a record in order. With ten thousand snapshots and hundreds of entries, sorting would be slow."""
    index = bisect_left(records, record.checkpoint, key=_checkpoint)
    return (*records[:index], record, *records[index:])


def _checkpoint(record: SnapshotRecord) -> CheckpointId:
    return record.checkpoint


def _first(writer: LogWriter) -> int:
    return writer.first


def _with_snapshot(view: LogView, after: LogView, entry: SnapshotComplete) -> LogView:
    if view.snapshot(entry.checkpoint) is not None or entry.checkpoint < view.first_checkpoint:
        raise ValueError(f"snapshot {entry.checkpoint} was completed twice")
    record = SnapshotRecord(
        entry.checkpoint,
        entry.generation,
        entry.requested,
        entry.metadata,
        entry.label,
        note=entry.note,
        logged_at=view.next_seq if all(one.checkpoint < entry.checkpoint for one in view.snapshots[-1:]) else 0,
    )
    # An earlier release did not number more batches than there are epochs up to the snapshot.
    next_batch = entry.checkpoint if entry.next_batch is None else entry.next_batch
    return replace(
        after,
        committed_epoch=max(view.committed_epoch, entry.committed_epoch),
        next_batch=max(view.next_batch, next_batch),
        planned=view.planned and msgspec.structs.replace(view.planned, pending=False),
        counted=_newer_counts(view, entry.committed_epoch, entry.batches),
        reserved_until=max(view.reserved_until, entry.reserved_until),
        snapshots=_with_record(view.snapshots, record),
    )
