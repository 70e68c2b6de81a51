"""``verify`` command: check every file that the snapshots of a location need, and list unneeded files.

A section is read once even if many snapshots refer to it. It is read in pieces, so that a reference with a forged
length takes no memory. Damage does not end the check: all damage is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

import msgspec
import xxhash

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SectionRef, SnapshotMetadata
from penstock.snapshots.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshots.catalog import PORTABLE_FOLDER, Catalog, sections_of
from penstock.snapshots.commands.log_check import CheckedLog, check_log
from penstock.snapshots.commands.opened_location import store_to_read
from penstock.snapshots.format.names import find_record
from penstock.snapshots.format.sections import check_reference, sizes_of_files
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import LogView, SnapshotRecord
from penstock.snapshots.log.snapshot_log import FOLDER as LOG_FOLDER
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import list_collectable, orphans
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store, is_clean_path
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.transfer import source_files

PIECE_BYTES = 4 << 20
"""Number of bytes of a section that are read at a time."""
Progress = Callable[[int, int], None]
"""Callback with the number of verified bytes and the total."""


class Damage(msgspec.Struct, frozen=True):
    """Damaged file with the ids of the snapshots that cannot be restored because of it."""

    path: str
    problem: str
    snapshots: list[str]


class UnusedFile(msgspec.Struct, frozen=True):
    """File that no snapshot needs. ``certain`` is False if a checkpoint in flight may still need it."""

    path: str
    bytes: int
    certain: bool


class Verification(msgspec.Struct, frozen=True):
    """Result of a verification.

    Attributes:
        sections: number of intact sections.
        bytes: number of section bytes that were read.
        orphans: files that no snapshot refers to and that a collection removes. A crash leaves such files.
        unused_known: False if the metadata of a snapshot cannot be read or only one snapshot was verified.
        unsettled: files newer than the newest snapshot, of checkpoints in flight or of an interrupted checkpoint.
    """

    location: str
    log_entries: int
    snapshots: int
    sections: int
    bytes: int
    damage: list[Damage]
    orphans: list[UnusedFile]
    unsettled: list[UnusedFile]
    unused_known: bool


@dataclass
class _Findings:
    """Findings so far. ``problems`` maps path and problem to the snapshots that need the file."""

    problems: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    sections: int = 0
    bytes: int = 0

    def note(self, path: str, problem: str, snapshots: Sequence[str] = ()) -> None:
        named = self.problems.setdefault(path, {}).setdefault(problem.removeprefix(path).strip(": "), [])
        named += [name for name in snapshots if name not in named]


def verify_location(
    location: str, snapshot: str = "", progress: Progress | None = None, access: StoreAccess | None = None
) -> Verification:
    """Verify the log and all snapshots, or only the named snapshot. Unused files are listed only for all snapshots.

    Args:
        access: access to an object store; None takes it from the environment.

    Raises:
        LocationError: the location or the snapshot does not exist.
    """
    store = store_to_read(location, access)
    found = _Findings()
    # List the files before reading the log, so that newer files are not considered.
    files = [] if snapshot else list_collectable(store)
    _check_identity(store, found)
    log = check_log(store)
    for path, problem in log.problems.items():
        found.note(path, problem)
    records = _chosen(store.root, log, snapshot, found)
    metadata = _read_all(store, records, found)
    _check_all(store, metadata, found, progress)
    now = _drop_problems_of_deleted(store, found, records)
    unreadable = [record for record in records if record.checkpoint not in metadata]
    known = not snapshot and now is not None and not any(now.snapshot(record.checkpoint) for record in unreadable)
    orphaned, unsettled = _unused(store, log.view, files, metadata) if known else ([], [])
    return Verification(
        store.root,
        log.entries,
        len(records),
        found.sections,
        found.bytes,
        [
            Damage(path, problem, snapshots)
            for path, problems in sorted(found.problems.items())
            for problem, snapshots in problems.items()
        ],
        orphaned,
        unsettled,
        known,
    )


def _chosen(path: str, log: CheckedLog, snapshot: str, found: _Findings) -> list[SnapshotRecord]:
    if not snapshot:
        return list(log.view.snapshots)
    try:
        return [find_record(path, log.view, snapshot)]
    except LocationError as error:
        if not log.problems:
            raise
        found.note(f"{LOG_FOLDER}/", f"{error} (as far as the log can be read)")
        return []


def _check_identity(store: Store, found: _Findings) -> None:
    try:
        read_identity(store)
    except (LocationError, OSError) as error:
        found.note(IDENTITY_PATH, str(error))


def _read_all(store: Store, records: Sequence[SnapshotRecord], found: _Findings) -> dict[int, SnapshotMetadata]:
    """Return the metadata by checkpoint, without snapshots whose metadata is unreadable."""
    catalog = Catalog(store)
    metadata: dict[int, SnapshotMetadata] = {}

    def read_one(record: SnapshotRecord) -> SnapshotMetadata | str:
        try:
            return catalog.read(record)
        except (LocationError, OSError, ValueError) as error:
            return str(error)

    for record, read in zip(records, read_in_parallel(store, read_one, records), strict=True):
        if isinstance(read, str):
            found.note(record.metadata.path, read, [snapshot_id(record.checkpoint)])
        else:
            metadata[record.checkpoint] = read
    return metadata


def _check_all(
    store: Store, metadata: dict[int, SnapshotMetadata], found: _Findings, progress: Progress | None
) -> None:
    users: dict[SectionRef, list[str]] = {}
    for snapshot in metadata.values():
        for section in dict.fromkeys(sections_of(snapshot)):
            users.setdefault(section, []).append(snapshot.id)
        for path in sorted(source_files(snapshot)):
            if not (is_clean_path(path) and store.size(path)):
                found.note(path, "is missing", [snapshot.id])
    whole: list[SectionRef] = []
    sizes: dict[str, int] | None = None
    with suppress(OSError):  # If this fails, each size is requested separately, and errors are noted.
        sizes = sizes_of_files(store, users)
    for section in sorted(users, key=lambda section: (section.path, section.offset)):
        try:
            check_reference(store, section, sizes)
            whole.append(section)
        except (CorruptSnapshot, OSError) as error:
            found.note(section.path, str(error), users[section])
    total = sum(section.length for section in whole)
    progress_lock = Lock()

    def problem_of(section: SectionRef) -> str:
        try:
            for length in _verified_pieces(store, section):
                with progress_lock:
                    found.bytes += length
                    if progress is not None:
                        progress(found.bytes, total)
        except (CorruptSnapshot, OSError) as error:
            return str(error)
        return ""

    for section, problem in zip(whole, read_in_parallel(store, problem_of, whole), strict=True):
        if problem:
            found.note(section.path, problem, users[section])
        else:
            found.sections += 1


def _verified_pieces(store: Store, ref: SectionRef) -> Iterator[int]:
    """Yield the lengths of the pieces of a section as they are read.

    Raises CorruptSnapshot if the section is short, or at the end if it was changed.
    """
    where = f"section {ref.identity!r} at offset {ref.offset} (+{ref.length})"
    actual = xxhash.xxh3_128(ref.identity.encode() + b"\0")
    done = 0
    while done < ref.length:
        data = store.read_range(ref.path, ref.offset + done, min(PIECE_BYTES, ref.length - done))
        if not data:
            raise CorruptSnapshot(f"{where}: {done} bytes instead of {ref.length}")
        actual.update(data)
        done += len(data)
        yield len(data)
    if actual.hexdigest() != ref.checksum:
        raise CorruptSnapshot(f"{where}: the checksum is {actual.hexdigest()} instead of {ref.checksum}")


def _drop_problems_of_deleted(store: Store, found: _Findings, records: Sequence[SnapshotRecord]) -> LogView | None:
    """Drop problems of snapshots that were deleted meanwhile. Return the current log; None if it cannot be read."""
    try:
        now = SnapshotLog(store).refresh()
    except (LocationError, OSError):
        return None
    deleted = {snapshot_id(r.checkpoint) for r in records if now.snapshot(r.checkpoint) is None}
    for path, problems in list(found.problems.items()):
        for problem, snapshots in list(problems.items()):
            if snapshots and not set(snapshots) - deleted:
                del problems[problem]
            else:
                snapshots[:] = [name for name in snapshots if name not in deleted]
        if not problems:
            del found.problems[path]
    return now


def _unused(
    store: Store, view: LogView, files: Sequence[str], metadata: dict[int, SnapshotMetadata]
) -> tuple[list[UnusedFile], list[UnusedFile]]:
    """Return the orphans, and the files that may belong to checkpoints in flight."""
    referenced = {section.path for snapshot in metadata.values() for section in sections_of(snapshot)}
    known = referenced | {record.metadata.path for record in view.snapshots}
    dead = set(orphans(view, files, referenced, ()))
    orphaned, unsettled = [], []
    # Files without a size have been removed meanwhile.
    for path, size in store.sizes([path for path in files if path not in known]).items():
        if path in dead:
            orphaned.append(UnusedFile(path, size, _is_of_ended_generation(path, view)))
        elif not path.startswith(f"{PORTABLE_FOLDER}/"):  # A portable form is removed with its snapshot.
            unsettled.append(UnusedFile(path, size, False))
    return orphaned, unsettled


def _is_of_ended_generation(path: str, view: LogView) -> bool:
    """Return True if the generation of the file has ended. For metadata, this is the generation of its checkpoint."""
    number = path.rpartition("/")[2].partition("-")[0]
    if number.isdigit():
        return int(number) < view.owner
    checkpoint = path.split("/")[1].removeprefix("chk-") if path.startswith(f"{SNAPSHOTS_FOLDER}/chk-") else ""
    return checkpoint.isdigit() and int(checkpoint) < view.first_checkpoint
