"""A location that begins with one snapshot that no query took there: converted, imported, or written by a user.

In place it is made so that it may be interrupted at any moment, and begun by several at once:

1. ``founding.json`` says that a location is being made here, so that what an interrupted one has left is not taken for
   somebody else's files, and no query starts.
2. Data files have names that no other attempt has; nobody replaces or removes another's.
3. The snapshot's metadata is created exclusively. Who finds that of the very same snapshot goes on with it.
4. The log's first entry, ``Forked``, is created exclusively: it decides. All that it refers to was there before, and
   stays: whoever has lost takes back nothing but files that only it knows of.
5. ``query.json`` makes it a location. Whoever comes by may write it, from what the log says.
6. What the others have left is removed, and the mark.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from penstock.errors import CorruptSnapshot, Fenced, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import (
    FORMAT_VERSION,
    PlanManifest,
    QueryIdentity,
    SectionRef,
    SnapshotMetadata,
    SubtaskManifest,
    next_batch_after,
)
from penstock.snapshots.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshots.catalog import Catalog, metadata_path, sections_of
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.format.plan import targets_of
from penstock.snapshots.format.sections import FOLDER as DATA_FOLDER
from penstock.snapshots.location import FOUNDING_PATH, IDENTITY_PATH, KEPT_FOLDER, open_location
from penstock.snapshots.log.entries import Forked, MetadataRef, PlannedBatch, SnapshotRecord
from penstock.snapshots.log.snapshot_log import FOLDER as LOG_FOLDER
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import ids_named, slot_named
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess

SPAN = 1 << 30
"""Numbers of data files that one attempt has; those of slots are lower."""


def identity_for(metadata: SnapshotMetadata, plan: PlanManifest, origin: str) -> QueryIdentity:
    """Of a new query that goes on from a snapshot of the query ``origin``, taken under this plan."""
    return QueryIdentity(
        operators=plan.operators,
        edges=plan.edges,
        format_version=FORMAT_VERSION,
        query_id=str(uuid.uuid4()),
        max_parallelism=metadata.max_parallelism,
        parallelism=metadata.parallelism,
        origin=origin,
    )


def without_data(metadata: SnapshotMetadata) -> SnapshotMetadata:
    """All that it says but where its data lies."""
    slots = [
        msgspec.structs.replace(
            slot, subtasks=[msgspec.structs.replace(one, states=[], inflight=[]) for one in slot.subtasks]
        )
        for slot in metadata.slots
    ]
    sources = [msgspec.structs.replace(source, sections=[]) for source in metadata.sources]
    return msgspec.structs.replace(metadata, slots=slots, sources=sources)


def in_files(metadata: SnapshotMetadata, names: Mapping[str, str]) -> SnapshotMetadata:
    """The metadata of a snapshot whose data files have other names now."""

    def moved(ref: SectionRef) -> SectionRef:
        return msgspec.structs.replace(ref, path=names[ref.path])

    def subtask(one: SubtaskManifest) -> SubtaskManifest:
        states = [msgspec.structs.replace(entry, section=moved(entry.section)) for entry in one.states]
        inflight = [msgspec.structs.replace(entry, section=moved(entry.section)) for entry in one.inflight]
        return msgspec.structs.replace(one, states=states, inflight=inflight)

    slots = [msgspec.structs.replace(slot, subtasks=list(map(subtask, slot.subtasks))) for slot in metadata.slots]
    sources = [msgspec.structs.replace(one, sections=list(map(moved, one.sections))) for one in metadata.sources]
    return msgspec.structs.replace(metadata, slots=slots, sources=sources)


class LocationBootstrap:
    """One attempt to make a location.

    Args:
        store: where; nothing is there, or what others have left.
        first_file: the lowest of this attempt's numbers of data files: where there are no others, 0.

    Attributes:
        found: the snapshot that the location begins with, if an attempt before this one had come so far that it is a
            location now. Then nothing is to be written.
    """

    def __init__(self, store: Store, first_file: int = 0, found: SnapshotMetadata | None = None) -> None:
        self.store = store
        self.first_file = first_file
        self.found = found
        self._published = False

    def numbered(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """The same under a number that no metadata here has; for a snapshot that may have any."""
        number = max([metadata.checkpoint, *(1 + one for one in ids_named(self.store.list(SNAPSHOTS_FOLDER)))])
        return msgspec.structs.replace(metadata, checkpoint=number, id=snapshot_id(number))

    def own_files(self) -> list[str]:
        """Data files of this attempt."""
        mine = range(self.first_file, self.first_file + SPAN)
        return [path for path in self.store.list(DATA_FOLDER) if slot_named(path) in mine]

    def completed(
        self, metadata: SnapshotMetadata, *, continues: bool = False, planned: PlannedBatch | None = None
    ) -> SnapshotMetadata:
        """All that the snapshot refers to is durable: it exists from here on, and the location with it. Whoever starts
        a query there goes on behind it, and commits none of its epochs.

        Args:
            continues, planned: see ``Forked``.

        Returns:
            What is there: another attempt may have written the same snapshot.

        Raises:
            CorruptSnapshot: a referenced section is missing or short.
            LocationError: somebody else has made a location here meanwhile, or is about to.
            OSError: the store is full or fails.
        """
        store = self.store
        if store.list(LOG_FOLDER):
            raise _lost(store)  # long ago, perhaps: its numbers may be a query's by now
        ref, metadata = self.described(metadata)
        files = [path for folder in (DATA_FOLDER, SNAPSHOTS_FOLDER) for path in store.list(folder)]
        used = {ref.path, *(section.path for section in sections_of(metadata))}
        record = SnapshotRecord(
            metadata.checkpoint, metadata.generation, metadata.requested, ref, metadata.label, note=metadata.note
        )
        targets = targets_of(metadata.plan) if metadata.plan else {}
        sinks = sorted({target for some in targets.values() for target in some})
        ids = [
            metadata.checkpoint,
            next_batch_after(metadata),
            *ids_named(files),
        ]  # epochs are numbered above all batch ids
        entry = Forked(metadata.query_id, record, 1 + max(ids), sinks, metadata.next_batch, continues, planned)
        try:
            SnapshotLog(store, lambda: secrets.token_hex(16)).append(entry)
        except Fenced:
            begun = SnapshotLog(store).forked()
            if begun is None or begun.snapshot.metadata != ref:
                if self._published:
                    self._published = False  # nobody can come to refer to it any more
                    store.delete(ref.path)
                raise _lost(store) from None
        _founded(store)
        with suppress(OSError):  # a collection finds them, too
            # Of those that were there before the entry: a query has names of its own from then on.
            store.delete_all([path for path in files if path not in used])
        return metadata

    def take_back(self) -> None:
        """Remove what is only this attempt's, as far as the store lets it."""
        with suppress(OSError):
            if not self._published:
                self.store.delete_all(self.own_files())
            folders = (LOG_FOLDER, DATA_FOLDER, SNAPSHOTS_FOLDER, KEPT_FOLDER)
            if self.store.exists(IDENTITY_PATH) or not any(self.store.list(folder) for folder in folders):
                self.store.delete(FOUNDING_PATH)

    def described(self, metadata: SnapshotMetadata) -> tuple[MetadataRef, SnapshotMetadata]:
        """Write the snapshot's metadata. Return what is there: another attempt may have written it.

        Raises: as ``completed``.
        """
        catalog, path = Catalog(self.store), metadata_path(metadata.checkpoint)
        if not self.store.exists(path):
            self._published = True  # from here on others may refer to what is there
            try:
                return catalog.write(metadata), metadata
            except CorruptSnapshot:
                self._published = False
                if self.store.list(LOG_FOLDER):
                    raise _lost(self.store) from None  # and whoever has won has removed this attempt's files
                raise
            except LocationError:
                self._published = False  # another one was quicker
        data = self.store.read(path)
        ref = MetadataRef(path, len(data), digest(data))
        theirs = catalog.read(SnapshotRecord(metadata.checkpoint, metadata.generation, metadata.requested, ref))
        if without_data(theirs) != without_data(metadata):
            raise LocationError(
                f"{self.store.root}: another snapshot with this number is being written there, or was and is not "
                "complete; repeat the command that began it, or give another location"
            )
        catalog.check(theirs, checksums=True)
        return ref, theirs


def attempt_at(store: Store) -> LocationBootstrap:
    """Return one of several attempts that may be made at this place at the same time."""
    return LocationBootstrap(store, SPAN * (1 + secrets.randbits(32)))


@contextmanager
def founding(location: str, access: StoreAccess | None = None) -> Iterator[LocationBootstrap]:
    """Make a location in place; if the block fails, what it has written is taken back.

    Args:
        access: to an object store; None: as the environment says.

    Raises:
        LocationError: there is something that no interrupted attempt has left.
        OSError: the store is full or fails.
    """
    store = open_location(location, access, begun=True)
    begun = store.exists(FOUNDING_PATH)
    if not begun and store.exists(IDENTITY_PATH):
        raise in_use(store)
    if begun and (entries := store.list(LOG_FOLDER)):
        found = _founded(store) if len(entries) == 1 else None
        if found is None:
            raise in_use(store)
        yield LocationBootstrap(store, found=found)
        return
    store.create_if_absent(FOUNDING_PATH, seal_envelope({}))
    attempt = attempt_at(store)
    try:
        yield attempt
    except BaseException:
        attempt.take_back()
        raise


def _lost(store: Store) -> LocationError:
    return LocationError(f"{store.root}: somebody else has made a location there meanwhile")


def in_use(store: Store) -> LocationError:
    """What to raise where a location is already."""
    return LocationError(f"{store.root} is in use: a location is there already; give an empty one")


def _founded(store: Store) -> SnapshotMetadata | None:
    """The log has begun: make it a location, if it begins as one of these."""
    begun = SnapshotLog(store).forked()
    if begun is None:
        return None
    metadata = Catalog(store).read(begun.snapshot)
    if metadata.plan is None:
        raise CorruptSnapshot(f"{metadata_path(metadata.checkpoint)} has no plan")
    identity = identity_for(metadata, metadata.plan, begun.origin)
    store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity)))
    with suppress(OSError):
        store.delete(FOUNDING_PATH)  # beside query.json it means nothing any more
    return metadata
