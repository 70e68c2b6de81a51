"""Snapshot catalog: read, write and verify snapshot metadata, and plan what each slot restores."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from penstock.decoding import decode_json
from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.elements import Side
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import (
    FORMAT_VERSION,
    READ_VERSIONS,
    InflightEntry,
    SectionRef,
    SnapshotMetadata,
    SubtaskManifest,
)
from penstock.snapshots.format.envelope import check_values, digest
from penstock.snapshots.format.metadata_checks import checked_metadata
from penstock.snapshots.format.sections import check_reference, data_path, read_verified, sizes_of_files, state_path
from penstock.snapshots.log.entries import LogView, MetadataRef, SnapshotRecord
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.rescaling.rescale import rescale
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import MAX_READ_BYTES, Store

FOLDER = "snapshots"
NO_KNOWN_FILES: Mapping[str, Collection[str]] = MappingProxyType({})
PORTABLE_FOLDER = "portable"
"""Folder of the portable forms. Each portable form is a subfolder named like its snapshot."""


def metadata_path(checkpoint: CheckpointId) -> str:
    return f"{FOLDER}/{snapshot_id(checkpoint)}/metadata.json"


def portable_folder(checkpoint: CheckpointId) -> str:
    return f"{PORTABLE_FOLDER}/{snapshot_id(checkpoint)}"


def sections_of(metadata: SnapshotMetadata) -> Iterator[SectionRef]:
    """Yield every section that a snapshot refers to."""
    for slot in metadata.slots:
        for subtask in slot.subtasks:
            for state in subtask.states:
                yield state.section
            for entry in subtask.inflight:
                yield entry.section
    for source in metadata.sources:
        yield from source.sections


@dataclass(frozen=True)
class ChosenSnapshot:
    """Snapshot that recovery starts from.

    ``metadata`` is None for a first start. ``skipped`` holds the reasons why newer snapshots were not used.
    """

    metadata: SnapshotMetadata | None
    skipped: tuple[str, ...] = ()


class Catalog:
    """Reader and writer of the metadata of the snapshots in one location. The log decides which snapshots exist.

    Args:
        store: the location.
        known: results of ``referenced_files`` from earlier reads, by the checksum of the metadata.
    """

    def __init__(self, store: Store, known: Mapping[str, Collection[str]] = NO_KNOWN_FILES) -> None:
        self._store = store
        self._known = known
        self._files: dict[CheckpointId, frozenset[str]] = {}

    def write(self, metadata: SnapshotMetadata) -> MetadataRef:
        """Check that all referenced sections exist, then write ``metadata.json`` durably.

        Raises:
            CorruptSnapshot: a referenced section is missing or short, or the metadata contains impossible values.
            LocationError: a file of this name exists with other content.
            OSError: the store is full or fails, or the metadata is larger than ``MAX_READ_BYTES``.
        """
        refs = dict.fromkeys(sections_of(metadata))
        sizes = sizes_of_files(self._store, refs)
        for ref in refs:
            check_reference(self._store, ref, sizes)
        data = msgspec.json.encode(metadata)
        path = metadata_path(metadata.checkpoint)
        if len(data) > MAX_READ_BYTES:
            raise OSError(errno.EFBIG, f"the metadata has {len(data)} bytes, more than {MAX_READ_BYTES}", path)
        checked_metadata(_decoded(data, path), path)  # Metadata that cannot be read must not count as a snapshot.
        if not self._store.create_if_absent(path, data) and self._store.read(path) != data:
            raise LocationError(f"{path} exists already with other content")
        self._files[metadata.checkpoint] = _files_of(metadata)
        return MetadataRef(path, len(data), digest(data))

    def check_origins(self, metadata: SnapshotMetadata, view: LogView) -> None:
        """Check that every section belongs to this snapshot or to a snapshot of its lineage.

        Files of an aborted checkpoint may never have been durable and will be removed by a garbage collection.
        Snapshots outside the lineage are not read, because recovery may have skipped them as corrupt.

        Raises:
            CorruptSnapshot: a section belongs to no such snapshot. The message names its file.
        """
        slots = range(metadata.parallelism + 1)  # The last number is the driver's.
        own = {
            path(metadata.generation, metadata.checkpoint, slot) for slot in slots for path in (data_path, state_path)
        }
        foreign = {ref.path for ref in sections_of(metadata)} - own
        for record in reversed(view.lineage):
            if not foreign:
                return
            foreign -= self.referenced_files(record)
        if foreign:
            raise CorruptSnapshot(f"{metadata.id} refers to {min(foreign)}, which belongs to no complete snapshot")

    def read(self, record: SnapshotRecord) -> SnapshotMetadata:
        """Return the verified metadata of an existing snapshot.

        Raises:
            CorruptSnapshot: the file is missing or changed. The message names it.
            LocationError: a later release wrote the format.
        """
        return checked_metadata(self._read_unchecked(record), record.metadata.path)

    def _read_unchecked(self, record: SnapshotRecord) -> SnapshotMetadata:
        """Return the metadata whose bytes match the log. The values in it are not checked."""
        ref = record.metadata
        if ref.path != metadata_path(record.checkpoint):
            raise CorruptSnapshot(f"{ref.path!r:.100} is not where {snapshot_id(record.checkpoint)} is described")
        try:
            data = self._store.read(ref.path)
        except FileNotFoundError:
            raise CorruptSnapshot(f"{ref.path} is missing, but the log says that the snapshot is complete") from None
        if len(data) != ref.length or digest(data) != ref.checksum:
            raise CorruptSnapshot(f"{ref.path} does not match its checksum in the log")
        metadata = _decoded(data, ref.path)
        if metadata.format_version not in READ_VERSIONS:
            raise LocationError(
                f"{ref.path} has format version {metadata.format_version}; this release reads up to {FORMAT_VERSION}"
            )
        stored, logged = (metadata.checkpoint, metadata.generation), (record.checkpoint, record.generation)
        if stored != logged:
            raise CorruptSnapshot(
                f"{ref.path} belongs to {metadata.id} of Generation {metadata.generation}; the log has "
                f"{snapshot_id(record.checkpoint)} of {record.generation} there"
            )
        return metadata

    def check(self, metadata: SnapshotMetadata, *, checksums: bool) -> None:
        """Check that every section exists with its length; with ``checksums``, read and verify all bytes.

        Raises:
            CorruptSnapshot: a section is missing, short or changed. The message names the first one.
        """
        # Several in-flight entries may refer to one section, so each section is read once.
        refs = dict.fromkeys(sections_of(metadata))
        sizes = {} if checksums else sizes_of_files(self._store, refs)
        for ref in refs:
            if checksums:
                read_verified(self._store, ref)
            else:
                check_reference(self._store, ref, sizes)

    def referenced_files(self, record: SnapshotRecord) -> frozenset[str]:
        """Return the paths of the data files that a snapshot refers to. The files are not read."""
        files = self._files.get(record.checkpoint)
        if files is None:
            known = self._known.get(record.metadata.checksum)
            files = _files_of(self._read_unchecked(record)) if known is None else frozenset(known)
            self._files[record.checkpoint] = files
        return files

    def referenced_files_of_all(self, records: Iterable[SnapshotRecord]) -> set[str]:
        """Return the data files that any of the snapshots refers to."""
        return {path for files in read_in_parallel(self._store, self.referenced_files, list(records)) for path in files}

    def unreadable(self, records: Iterable[SnapshotRecord]) -> set[CheckpointId]:
        """Return the snapshots whose metadata cannot be read, so that their data files are unknown."""

        def is_readable(record: SnapshotRecord) -> bool:
            try:
                self.referenced_files(record)
            except CorruptSnapshot:
                return False
            return True

        found = list(records)
        readable = read_in_parallel(self._store, is_readable, found)
        return {record.checkpoint for record, known in zip(found, readable, strict=True) if not known}

    def known_files(self, checkpoint: CheckpointId) -> frozenset[str]:
        """Return the data files of a snapshot whose metadata this catalog has read or written; otherwise none."""
        return self._files.get(checkpoint, frozenset())

    def forget(self, checkpoint: CheckpointId) -> None:
        """Forget the files of a deleted snapshot."""
        self._files.pop(checkpoint, None)

    def choose_newest(self, view: LogView, *, checksums: bool = True, allow_older: bool = False) -> ChosenSnapshot:
        """Return the newest intact snapshot of the lineage.

        A caller that does not own the log must refresh the log after an error and try again: the owner may have deleted
        the snapshot.

        Args:
            checksums: verify every byte (see ``check``).
            allow_older: skip corrupt snapshots and use an older one. Output committed since then is produced again.

        Raises:
            CorruptSnapshot: the newest snapshot is not intact; with ``allow_older``, no snapshot is.
        """
        skipped: list[str] = []
        portable = ""
        lineage = view.lineage
        for record in reversed(lineage):
            try:
                metadata = self.read(record)
                self.check(metadata, checksums=checksums)
            except CorruptSnapshot as error:
                skipped.append(f"{snapshot_id(record.checkpoint)}: {error}")
                portable = portable or self._portable_form(record.checkpoint)
                if not allow_older:
                    break
                continue
            # Later snapshots may refer to these files even if this metadata is damaged later.
            self._files[record.checkpoint] = _files_of(metadata)
            return ChosenSnapshot(metadata, tuple(skipped))
        if not lineage:
            return ChosenSnapshot(None)
        way_out = "; restore the files from a copy, or start anew with an empty checkpointLocation"
        if not allow_older and len(lineage) > 1:
            way_out = (
                "; spark.penstock.snapshots.allowOlder=true starts from an older snapshot instead"
                " (output committed since then is produced again)"
            )
        raise CorruptSnapshot("; ".join(skipped) + way_out + portable)

    def _portable_form(self, checkpoint: CheckpointId) -> str:
        """Return the message part that names the portable form of a damaged snapshot; empty if there is none."""
        folder = portable_folder(checkpoint)
        if not self._store.exists(f"{folder}/{MANIFEST}"):
            return ""
        return (
            f"; a new query with an empty checkpointLocation can start from the portable form of"
            f" {snapshot_id(checkpoint)}: startFrom={self._store.root}/{folder}"
        )


def operators_with_state(metadata: SnapshotMetadata) -> set[str]:
    """Return the ids of the operators that a snapshot holds state of. ``Operator.restore`` is called on them."""
    subtasks = [subtask for slot in metadata.slots for subtask in slot.subtasks]
    with_tables = {state.operator_id for subtask in subtasks for state in subtask.states}
    return with_tables.union(*(subtask.scalars for subtask in subtasks))


def _files_of(metadata: SnapshotMetadata) -> frozenset[str]:
    return frozenset(ref.path for ref in sections_of(metadata))


def _decoded(data: bytes, path: str) -> SnapshotMetadata:
    check_values(data, path)
    try:
        return decode_json(data, SnapshotMetadata)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CorruptSnapshot(f"{path} cannot be read: {error!s:.300}") from error


def plan_restore(metadata: SnapshotMetadata, graph: JobGraph, committed_epoch: int = 0) -> list[list[SubtaskManifest]]:
    """Return what each slot restores: its subtask manifests, with every in-flight entry assigned to its consumer.

    In-flight entries are in restore order: by layer, then consumer side before producer side, then list order. Sink
    messages of epochs up to ``committed_epoch`` are left out.

    Raises:
        LocationError: the snapshot was taken with another number of key groups.
        CorruptSnapshot: in-flight rows belong to a subtask without a manifest.
    """
    if metadata.max_parallelism != graph.max_parallelism:
        raise LocationError(
            f"{metadata.id} was taken with maxParallelism {metadata.max_parallelism}, which cannot be changed; the "
            f"query has {graph.max_parallelism}: set spark.penstock.maxParallelism={metadata.max_parallelism}"
        )
    metadata = rescale(metadata, graph)
    manifests = [subtask for slot in sorted(metadata.slots, key=lambda s: s.slot) for subtask in slot.subtasks]
    by_consumer: dict[tuple[int, int], list[InflightEntry]] = {}
    for manifest in manifests:
        for entry in manifest.inflight:
            by_consumer.setdefault((graph.edge(entry.edge).consumer, entry.consumer), []).append(entry)
    plan: list[list[SubtaskManifest]] = [[] for _ in range(graph.parallelism)]
    for manifest in manifests:
        entries = by_consumer.pop((manifest.vertex, manifest.index), [])
        plan[manifest.index].append(
            msgspec.structs.replace(
                manifest,
                inflight=sorted(entries, key=_restore_order),
                pending_messages={
                    epoch: m for epoch, m in manifest.pending_messages.items() if epoch > committed_epoch
                },
                inherited_messages=[kept for kept in manifest.inherited_messages if kept.epoch > committed_epoch],
            )
        )
    if by_consumer:
        raise CorruptSnapshot(f"{metadata.id} holds in-flight rows for {sorted(by_consumer)}, which have no manifest")
    return plan


def _restore_order(entry: InflightEntry) -> tuple[int, bool]:
    return entry.layer, entry.side != Side.CONSUMER.value
