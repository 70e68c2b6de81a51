"""Location bootstrap: make a location that begins with a converted, imported or user-written snapshot.

An attempt may be interrupted at any moment, and several attempts may run at once:

1. ``founding.json`` marks the folder, so that files of an interrupted attempt are recognized and no query starts there.
2. Data files have names that no other attempt uses. No attempt replaces or removes files of another one.
3. The snapshot's metadata is created exclusively. An attempt that finds metadata of the same snapshot uses it.
4. The log's first entry, ``Forked``, is created exclusively and decides which attempt wins. All files that it refers to
   are durable before. An attempt that lost removes only files that no other attempt can refer to.
5. ``query.json`` makes the folder a location. Any attempt may write it, because its content follows from the log.
6. Files of other attempts and the mark are removed.
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
from penstock.snapshots.location import BOOTSTRAP_MARK_PATH, IDENTITY_PATH, SOURCE_FOLDER, open_location
from penstock.snapshots.log.entries import Forked, MetadataRef, PlannedBatch, SnapshotRecord
from penstock.snapshots.log.snapshot_log import FOLDER as LOG_FOLDER
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import checkpoints_in_names, slot_in_name
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess

FILE_NUMBERS_PER_ATTEMPT = 1 << 30
"""Size of the range of data file numbers of one attempt. Slots use lower numbers."""


def forked_identity(metadata: SnapshotMetadata, plan: PlanManifest, origin: str) -> QueryIdentity:
    """Return the identity of a new query that starts from a snapshot of query ``origin`` taken under this plan."""
    return QueryIdentity(
        operators=plan.operators,
        edges=plan.edges,
        format_version=FORMAT_VERSION,
        query_id=str(uuid.uuid4()),
        max_parallelism=metadata.max_parallelism,
        parallelism=metadata.parallelism,
        origin=origin,
    )


def without_data_references(metadata: SnapshotMetadata) -> SnapshotMetadata:
    """Return the metadata without the references to state, in-flight and source data."""
    slots = [
        msgspec.structs.replace(
            slot, subtasks=[msgspec.structs.replace(manifest, states=[], inflight=[]) for manifest in slot.subtasks]
        )
        for slot in metadata.slots
    ]
    sources = [msgspec.structs.replace(source, sections=[]) for source in metadata.sources]
    return msgspec.structs.replace(metadata, slots=slots, sources=sources)


def with_renamed_files(metadata: SnapshotMetadata, names: Mapping[str, str]) -> SnapshotMetadata:
    """Return the metadata with the paths of its data files replaced."""

    def moved(ref: SectionRef) -> SectionRef:
        return msgspec.structs.replace(ref, path=names[ref.path])

    def subtask(manifest: SubtaskManifest) -> SubtaskManifest:
        states = [msgspec.structs.replace(entry, section=moved(entry.section)) for entry in manifest.states]
        inflight = [msgspec.structs.replace(entry, section=moved(entry.section)) for entry in manifest.inflight]
        return msgspec.structs.replace(manifest, states=states, inflight=inflight)

    slots = [msgspec.structs.replace(slot, subtasks=list(map(subtask, slot.subtasks))) for slot in metadata.slots]
    sources = [
        msgspec.structs.replace(manifest, sections=list(map(moved, manifest.sections))) for manifest in metadata.sources
    ]
    return msgspec.structs.replace(metadata, slots=slots, sources=sources)


class LocationBootstrap:
    """One attempt to make a location.

    Args:
        store: the location. It is empty or holds files of other attempts.
        first_file: the lowest data file number of this attempt; 0 if there is no other attempt.

    Attributes:
        found: the snapshot that the location begins with, if an earlier attempt has already made the location. The
            caller must not write anything then.
    """

    def __init__(self, store: Store, first_file: int = 0, found: SnapshotMetadata | None = None) -> None:
        self.store = store
        self.first_file = first_file
        self.found = found
        self._published = False

    def with_free_number(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """Return the metadata under a checkpoint number that no other snapshot of the location has."""
        number = max(
            [metadata.checkpoint, *(1 + one for one in checkpoints_in_names(self.store.list(SNAPSHOTS_FOLDER)))]
        )
        return msgspec.structs.replace(metadata, checkpoint=number, id=snapshot_id(number))

    def attempt_files(self) -> list[str]:
        """Return the data files of this attempt."""
        mine = range(self.first_file, self.first_file + FILE_NUMBERS_PER_ATTEMPT)
        return [path for path in self.store.list(DATA_FOLDER) if slot_in_name(path) in mine]

    def complete(
        self, metadata: SnapshotMetadata, *, continues: bool = False, planned: PlannedBatch | None = None
    ) -> SnapshotMetadata:
        """Publish the snapshot and make the location. All data of the snapshot must be durable.

        A query that starts there continues after the snapshot and commits none of its epochs.

        Args:
            continues, planned: see ``Forked``.

        Returns:
            The metadata stored in the location. Another attempt may have written the same snapshot.

        Raises:
            CorruptSnapshot: a referenced section is missing or short.
            LocationError: another process has made a location here or is making one.
            OSError: the store is full or fails.
        """
        store = self.store
        if store.list(LOG_FOLDER):
            raise _lost_error(store)  # The entries may be old, and a query may already use their numbers.
        ref, metadata = self.write_metadata(metadata)
        files = [path for folder in (DATA_FOLDER, SNAPSHOTS_FOLDER) for path in store.list(folder)]
        used = {ref.path, *(section.path for section in sections_of(metadata))}
        record = SnapshotRecord(
            metadata.checkpoint, metadata.generation, metadata.requested, ref, metadata.label, note=metadata.note
        )
        targets = targets_of(metadata.plan) if metadata.plan else {}
        sinks = sorted({target for targets_of_sink in targets.values() for target in targets_of_sink})
        ids = [
            metadata.checkpoint,
            next_batch_after(metadata),
            *checkpoints_in_names(files),
        ]  # Epochs are numbered above all batch ids.
        entry = Forked(metadata.query_id, record, 1 + max(ids), sinks, metadata.next_batch, continues, planned)
        try:
            SnapshotLog(store, lambda: secrets.token_hex(16)).append(entry)
        except Fenced:
            first_entry = SnapshotLog(store).fork_entry()
            if first_entry is None or first_entry.snapshot.metadata != ref:
                if self._published:
                    self._published = False  # No other attempt can refer to the metadata after this point.
                    store.delete(ref.path)
                raise _lost_error(store) from None
        _finish_bootstrap(store)
        with suppress(OSError):  # A later garbage collection removes the remaining files.
            # Remove only files listed before the entry was written: a query may write its own files after that.
            store.delete_all([path for path in files if path not in used])
        return metadata

    def discard(self) -> None:
        """Remove the files of this attempt, as far as the store permits."""
        with suppress(OSError):
            if not self._published:
                self.store.delete_all(self.attempt_files())
            folders = (LOG_FOLDER, DATA_FOLDER, SNAPSHOTS_FOLDER, SOURCE_FOLDER)
            if self.store.exists(IDENTITY_PATH) or not any(self.store.list(folder) for folder in folders):
                self.store.delete(BOOTSTRAP_MARK_PATH)

    def write_metadata(self, metadata: SnapshotMetadata) -> tuple[MetadataRef, SnapshotMetadata]:
        """Write the snapshot's metadata and return the stored metadata, which another attempt may have written.

        Raises errors as ``complete``.
        """
        catalog, path = Catalog(self.store), metadata_path(metadata.checkpoint)
        if not self.store.exists(path):
            self._published = True  # Other attempts may refer to the metadata from now on.
            try:
                return catalog.write(metadata), metadata
            except CorruptSnapshot:
                self._published = False
                if self.store.list(LOG_FOLDER):
                    raise _lost_error(self.store) from None  # The winner has removed this attempt's files.
                raise
            except LocationError:
                self._published = False  # Another attempt was faster.
        data = self.store.read(path)
        ref = MetadataRef(path, len(data), digest(data))
        theirs = catalog.read(SnapshotRecord(metadata.checkpoint, metadata.generation, metadata.requested, ref))
        if without_data_references(theirs) != without_data_references(metadata):
            raise LocationError(
                f"{self.store.root}: another snapshot with this number is being written there, or was and is not "
                "complete; repeat the command that began it, or give another location"
            )
        catalog.check(theirs, checksums=True)
        return ref, theirs


def new_attempt(store: Store) -> LocationBootstrap:
    """Return a new attempt. Several attempts may run in the same location at once."""
    return LocationBootstrap(store, FILE_NUMBERS_PER_ATTEMPT * (1 + secrets.randbits(32)))


@contextmanager
def bootstrap_location(location: str, access: StoreAccess | None = None) -> Iterator[LocationBootstrap]:
    """Make a location in place. If the block fails, the files that it wrote are removed.

    Args:
        access: access to an object store; None takes it from the environment.

    Raises:
        LocationError: the folder holds a location, or files that an interrupted attempt did not leave.
        OSError: the store is full or fails.
    """
    store = open_location(location, access, allow_incomplete=True)
    has_mark = store.exists(BOOTSTRAP_MARK_PATH)
    if not has_mark and store.exists(IDENTITY_PATH):
        raise location_in_use_error(store)
    if has_mark and (entries := store.list(LOG_FOLDER)):
        found = _finish_bootstrap(store) if len(entries) == 1 else None
        if found is None:
            raise location_in_use_error(store)
        yield LocationBootstrap(store, found=found)
        return
    store.create_if_absent(BOOTSTRAP_MARK_PATH, seal_envelope({}))
    attempt = new_attempt(store)
    try:
        yield attempt
    except BaseException:
        attempt.discard()
        raise


def _lost_error(store: Store) -> LocationError:
    return LocationError(f"{store.root}: another process has made a location there in the meantime")


def location_in_use_error(store: Store) -> LocationError:
    """Return the error for a folder that already holds a location."""
    return LocationError(f"{store.root} is in use: a location is there already; give an empty one")


def _finish_bootstrap(store: Store) -> SnapshotMetadata | None:
    """Complete a location whose log has begun. Return its first snapshot; None if its log does not begin with one."""
    entry = SnapshotLog(store).fork_entry()
    if entry is None:
        return None
    metadata = Catalog(store).read(entry.snapshot)
    if metadata.plan is None:
        raise CorruptSnapshot(f"{metadata_path(metadata.checkpoint)} has no plan")
    identity = forked_identity(metadata, metadata.plan, entry.origin)
    store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity)))
    with suppress(OSError):
        store.delete(BOOTSTRAP_MARK_PATH)  # The mark has no meaning once query.json exists.
    return metadata
