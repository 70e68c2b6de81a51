"""The one log: the fence between drivers and the only truth about which snapshots exist.

Entry n is the file ``log/<n, 20 digits>.json``, created exclusively. A driver that loses its next number to another
one stops (``Fenced``): no lease, no clock. Each entry carries a random token, so that a driver that cannot tell
whether its own write succeeded reads the entry back and knows. Entries are never removed: a paused driver could
otherwise create a removed number anew and believe itself the owner. Readers start from the last ``summary`` entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from penstock.errors import CorruptSnapshot, Fenced
from penstock.ids import CheckpointId, GenerationId
from penstock.snapshot.envelope import open_envelope, seal_envelope
from penstock.snapshot.model import NOTHING_COMMITTED, CommitPoint
from penstock.snapshot.store import Store

FOLDER = "log"
SUMMARY_EVERY = 64
"""A reader reads at most about this many entries."""


class MetadataRef(msgspec.Struct, frozen=True):
    """A snapshot's metadata file; ``checksum`` is the xxh3-128 hex digest of its bytes."""

    path: str
    length: int
    checksum: str


class GenerationOpened(msgspec.Struct, frozen=True, tag="generation-opened"):
    """``generation`` owns the log from here on. ``restored``: the checkpoint it starts from, 0 for none; complete
    snapshots above it leave the lineage. Its checkpoints have ids in ``[first_checkpoint, reserved_until)``."""

    generation: int
    restored: int
    first_checkpoint: int
    reserved_until: int
    committed_epoch: int
    batches: dict[str, int] = {}


class SnapshotComplete(msgspec.Struct, frozen=True, tag="snapshot-complete"):
    """The snapshot exists. ``committed_epoch`` and ``batches`` ride along; more ids are reserved up to
    ``reserved_until``."""

    generation: int
    checkpoint: int
    requested: bool
    metadata: MetadataRef
    committed_epoch: int
    reserved_until: int
    label: str = ""
    batches: dict[str, int] = {}


class SnapshotDeleted(msgspec.Struct, frozen=True, tag="snapshot-deleted"):
    """The snapshot does not exist any more; its files may be gone."""

    generation: int
    checkpoint: int


class EpochCommitted(msgspec.Struct, frozen=True, tag="epoch-committed"):
    """Epochs up to ``epoch`` are visible. Also written to reserve ids and to end a driver's life orderly: then
    ``reserved_until`` may be lower than before."""

    generation: int
    epoch: int
    reserved_until: int
    batches: dict[str, int] = {}


class SnapshotRecord(msgspec.Struct, frozen=True):
    """One existing snapshot. ``in_lineage``: the current Generation descends from it."""

    checkpoint: int
    generation: int
    requested: bool
    metadata: MetadataRef
    label: str = ""
    in_lineage: bool = True


class Summary(msgspec.Struct, frozen=True, tag="summary"):
    """All that the entries before it say. Written by the owner; changes nothing."""

    generation: int
    first_checkpoint: int
    restored: int
    committed_epoch: int
    reserved_until: int
    snapshots: list[SnapshotRecord]
    batches: dict[str, int] = {}


Entry = GenerationOpened | SnapshotComplete | SnapshotDeleted | EpochCommitted | Summary


class _Body(msgspec.Struct, frozen=True):
    seq: int
    token: str
    entry: Entry


@dataclass(frozen=True)
class LogView:
    """The log folded up to ``next_seq``.

    Attributes:
        owner: the Generation that owns the location; 0 before the first.
        first_checkpoint: the lowest id the owner may use.
        restored: what the owner was restored from; 0 for nothing.
        committed: every epoch up to this one is committed or abandoned, with what each sink had committed by then.
        reserved_until: the next Generation's ids start here (if the owner's driver is gone).
        snapshots: those that exist, by ascending checkpoint.
    """

    next_seq: int = 1
    last_summary: int = 0
    owner: GenerationId = 0
    first_checkpoint: CheckpointId = 1
    restored: CheckpointId = 0
    committed: CommitPoint = NOTHING_COMMITTED
    reserved_until: CheckpointId = 1
    snapshots: tuple[SnapshotRecord, ...] = ()

    @property
    def committed_epoch(self) -> int:
        return self.committed.epoch

    @property
    def lineage(self) -> tuple[SnapshotRecord, ...]:
        """The snapshots from which recovery may choose, by ascending checkpoint."""
        return tuple(record for record in self.snapshots if record.in_lineage)

    @property
    def next_generation(self) -> GenerationId:
        return self.owner + 1

    @property
    def next_checkpoint(self) -> CheckpointId:
        """The lowest id that no Generation up to now can use or have used."""
        return self.reserved_until

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotRecord | None:
        return next((record for record in self.snapshots if record.checkpoint == checkpoint), None)


def fold(view: LogView, entry: Entry) -> LogView:
    """The view after one more entry.

    Raises:
        ValueError: the entry contradicts the view: the log was tampered with.
    """
    after = replace(view, next_seq=view.next_seq + 1)
    if isinstance(entry, Summary):
        return replace(
            after,
            last_summary=view.next_seq,
            owner=entry.generation,
            first_checkpoint=entry.first_checkpoint,
            restored=entry.restored,
            committed=CommitPoint(entry.committed_epoch, entry.batches),
            reserved_until=entry.reserved_until,
            snapshots=tuple(entry.snapshots),
        )
    if isinstance(entry, GenerationOpened):
        if entry.generation <= view.owner:
            raise ValueError(f"Generation {entry.generation} opened after {view.owner}")
        return replace(
            after,
            owner=entry.generation,
            first_checkpoint=entry.first_checkpoint,
            restored=entry.restored,
            committed=later(view.committed, CommitPoint(entry.committed_epoch, entry.batches)),
            reserved_until=entry.reserved_until,
            snapshots=tuple(
                record if record.checkpoint <= entry.restored else msgspec.structs.replace(record, in_lineage=False)
                for record in view.snapshots
            ),
        )
    if entry.generation != view.owner:
        raise ValueError(f"an entry of Generation {entry.generation} while {view.owner} owns the log")
    if isinstance(entry, SnapshotComplete):
        return _with_snapshot(view, after, entry)
    if isinstance(entry, SnapshotDeleted):
        rest = tuple(record for record in view.snapshots if record.checkpoint != entry.checkpoint)
        return replace(after, snapshots=rest)
    committed = later(view.committed, CommitPoint(entry.epoch, entry.batches))
    return replace(after, committed=committed, reserved_until=entry.reserved_until)


def later(one: CommitPoint, other: CommitPoint) -> CommitPoint:
    """The one with the higher epoch: the pair is never taken apart."""
    return other if other.epoch > one.epoch else one


def _with_snapshot(view: LogView, after: LogView, entry: SnapshotComplete) -> LogView:
    if view.snapshot(entry.checkpoint) is not None or entry.checkpoint < view.first_checkpoint:
        raise ValueError(f"snapshot {entry.checkpoint} was completed twice")
    record = SnapshotRecord(entry.checkpoint, entry.generation, entry.requested, entry.metadata, entry.label)
    return replace(
        after,
        committed=later(view.committed, CommitPoint(entry.committed_epoch, entry.batches)),
        reserved_until=max(view.reserved_until, entry.reserved_until),
        snapshots=tuple(sorted((*view.snapshots, record), key=lambda r: r.checkpoint)),
    )


def entry_path(seq: int) -> str:
    return f"{FOLDER}/{seq:020d}.json"


class SnapshotLog:
    """One process's view of the log of one location, and its way to append.

    Args:
        store: the location.
        token: a fresh random string per call.
    """

    def __init__(self, store: Store, token: Callable[[], str]) -> None:
        self._store = store
        self._token = token
        self._view = LogView()

    @property
    def view(self) -> LogView:
        """The log as last read or appended to by this object."""
        return self._view

    def refresh(self) -> LogView:
        """Read what was appended since. Raises CorruptSnapshot naming the entry."""
        paths = self._store.list(FOLDER)
        newest = self._number(paths[-1]) if paths else 0
        if newest < self._view.next_seq:
            return self._view
        bodies = self._read_back_to_summary(newest)
        view = replace(self._view, next_seq=bodies[0].seq) if isinstance(bodies[0].entry, Summary) else self._view
        for body in bodies:
            try:
                view = fold(view, body.entry)
            except ValueError as error:
                raise CorruptSnapshot(f"{entry_path(body.seq)}: {error}") from error
        self._view = view
        return view

    def append(self, entry: Entry) -> LogView:
        """Append at the next number this object knows of, durably.

        Raises:
            Fenced: another driver has that number: this one must stop.
            OSError: the entry is not in the log, or the store cannot tell: then the next append may meet it there and
                take it for another driver's. This driver ends then; its successor reads what is true.
        """
        seq = self._view.next_seq
        body = _Body(seq, self._token(), entry)
        after = fold(self._view, entry)
        path = entry_path(seq)
        try:
            created = self._store.create_if_absent(path, seal_envelope(msgspec.to_builtins(body)))
        except OSError:
            # Unknown outcome: the entry itself tells. If it is absent now, a later append of ours meets it or not.
            if not self._store.exists(path):
                raise
            created = False
        if not created and self._read(seq).token != body.token:
            raise self._fenced(seq)
        self._view = after
        return after

    def check_owned(self) -> None:
        """Nobody has appended behind this object's back.

        Raises:
            Fenced: another driver has: this one must stop.
        """
        if self._store.exists(entry_path(self._view.next_seq)):
            raise self._fenced(self._view.next_seq)

    def summarise(self) -> LogView:
        """Append a summary if the last one is far behind; the caller owns the log."""
        view = self._view
        if view.next_seq - view.last_summary <= SUMMARY_EVERY:
            return view
        return self.append(
            Summary(
                view.owner,
                view.first_checkpoint,
                view.restored,
                view.committed.epoch,
                view.reserved_until,
                list(view.snapshots),
                view.committed.batches,
            )
        )

    def _read_back_to_summary(self, newest: int) -> list[_Body]:
        bodies: list[_Body] = []
        for seq in range(newest, self._view.next_seq - 1, -1):
            body = self._read(seq)
            bodies.append(body)
            if isinstance(body.entry, Summary):
                break
        return bodies[::-1]

    def _read(self, seq: int) -> _Body:
        path = entry_path(seq)
        try:
            body = msgspec.convert(open_envelope(self._store.read(path), path), _Body)
        except FileNotFoundError:
            raise CorruptSnapshot(f"{path} is missing, though later log entries exist") from None
        except msgspec.ValidationError as error:
            raise CorruptSnapshot(f"{path} is not a log entry: {error}") from error
        if body.seq != seq:
            raise CorruptSnapshot(f"{path} holds entry {body.seq}: it was copied or renamed")
        return body

    @staticmethod
    def _fenced(seq: int) -> Fenced:
        return Fenced(f"another driver has taken over this checkpoint location (log entry {seq} is not ours)")

    @staticmethod
    def _number(path: str) -> int:
        name = path.removeprefix(f"{FOLDER}/").removesuffix(".json")
        if not (name.isdigit() and len(name) == 20):
            raise CorruptSnapshot(f"{path} does not belong into a log")
        return int(name)
