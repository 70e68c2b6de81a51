"""``verify``: every file that the snapshots of a location need, byte for byte, and the files that nobody needs.

A section is read once, however many snapshots refer to it, and in pieces, so that a reference that declares any length
costs no memory. Damage never ends the check: all of it is reported.
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
from penstock.snapshots.commands.opened import store_to_read
from penstock.snapshots.format.names import find_record
from penstock.snapshots.format.sections import check_reference, sizes_of_files
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import LogView, SnapshotRecord
from penstock.snapshots.log.snapshot_log import FOLDER as LOG_FOLDER
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import collectable, orphans
from penstock.snapshots.store.parallel_reads import together
from penstock.snapshots.store.store import Store, is_clean
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.transfer import kept_files

READ_AT_ONCE = 4 << 20
"""Bytes of a section in memory."""
Progress = Callable[[int, int], None]
"""Called with the bytes that were verified, and all that will be."""


class Damage(msgspec.Struct, frozen=True):
    """``snapshots``: those that cannot be restored because of it, by id; none for what no snapshot needs."""

    path: str
    problem: str
    snapshots: list[str]


class UnusedFile(msgspec.Struct, frozen=True):
    """``certain``: an older Generation's, whose checkpoints have ended. Otherwise a checkpoint that is in flight may
    need it still, if the query runs."""

    path: str
    bytes: int
    certain: bool


class Verification(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        sections, bytes: that were read, each once.
        orphans: files that no snapshot refers to and a collection removes. No damage: a crash leaves them.
        unused_known: whether they could be told: not where the metadata of a snapshot cannot be read, nor if only one
            was verified.
        unsettled: files newer than the newest snapshot, of checkpoints in flight or of an end in the middle of one.
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
class _Found:
    """``problems``: path -> problem -> the snapshots that need it."""

    problems: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    sections: int = 0
    bytes: int = 0

    def note(self, path: str, problem: str, snapshots: Sequence[str] = ()) -> None:
        named = self.problems.setdefault(path, {}).setdefault(problem.removeprefix(path).strip(": "), [])
        named += [name for name in snapshots if name not in named]


def verify_location(
    location: str, snapshot: str = "", progress: Progress | None = None, access: StoreAccess | None = None
) -> Verification:
    """Verify the log and all snapshots, or the one that is called so; then nothing is said about unused files.

    Args:
        access: to an object store; None: as the environment says.

    Raises:
        LocationError: there is no location of a query, or no such snapshot.
    """
    store = store_to_read(location, access)
    found = _Found()
    # Listed before the log is read: a file that appears later is not judged.
    files = [] if snapshot else collectable(store)
    _check_identity(store, found)
    log = check_log(store)
    for path, problem in log.problems.items():
        found.note(path, problem)
    records = _chosen(store.root, log, snapshot, found)
    metadata = _read_all(store, records, found)
    _check_all(store, metadata, found, progress)
    now = _still_there(store, found, records)
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


def _chosen(path: str, log: CheckedLog, snapshot: str, found: _Found) -> list[SnapshotRecord]:
    if not snapshot:
        return list(log.view.snapshots)
    try:
        return [find_record(path, log.view, snapshot)]
    except LocationError as error:
        if not log.problems:
            raise
        found.note(f"{LOG_FOLDER}/", f"{error} (as far as the log can be read)")
        return []


def _check_identity(store: Store, found: _Found) -> None:
    try:
        read_identity(store)
    except (LocationError, OSError) as error:
        found.note(IDENTITY_PATH, str(error))


def _read_all(store: Store, records: Sequence[SnapshotRecord], found: _Found) -> dict[int, SnapshotMetadata]:
    """By checkpoint, without those that cannot be read."""
    catalog = Catalog(store)
    metadata: dict[int, SnapshotMetadata] = {}

    def read_one(record: SnapshotRecord) -> SnapshotMetadata | str:
        try:
            return catalog.read(record)
        except (LocationError, OSError, ValueError) as error:
            return str(error)

    for record, read in zip(records, together(store, read_one, records), strict=True):
        if isinstance(read, str):
            found.note(record.metadata.path, read, [snapshot_id(record.checkpoint)])
        else:
            metadata[record.checkpoint] = read
    return metadata


def _check_all(store: Store, metadata: dict[int, SnapshotMetadata], found: _Found, progress: Progress | None) -> None:
    users: dict[SectionRef, list[str]] = {}
    for one in metadata.values():
        for section in dict.fromkeys(sections_of(one)):
            users.setdefault(section, []).append(one.id)
        for path in sorted(kept_files(one)):
            if not (is_clean(path) and store.size(path)):
                found.note(path, "is missing", [one.id])
    whole: list[SectionRef] = []
    sizes: dict[str, int] | None = None
    with suppress(OSError):  # then each is asked for by itself, and noted
        sizes = sizes_of_files(store, users)
    for section in sorted(users, key=lambda section: (section.path, section.offset)):
        try:
            check_reference(store, section, sizes)
            whole.append(section)
        except (CorruptSnapshot, OSError) as error:
            found.note(section.path, str(error), users[section])
    total = sum(section.length for section in whole)
    counting = Lock()

    def problem_of(section: SectionRef) -> str:
        try:
            for length in _verified_pieces(store, section):
                with counting:
                    found.bytes += length
                    if progress is not None:
                        progress(found.bytes, total)
        except (CorruptSnapshot, OSError) as error:
            return str(error)
        return ""

    for section, problem in zip(whole, together(store, problem_of, whole), strict=True):
        if problem:
            found.note(section.path, problem, users[section])
        else:
            found.sections += 1


def _verified_pieces(store: Store, ref: SectionRef) -> Iterator[int]:
    """The lengths of the pieces of a section as they are read. Raises CorruptSnapshot at the end, if it was changed."""
    where = f"section {ref.identity!r} at offset {ref.offset} (+{ref.length})"
    actual = xxhash.xxh3_128(ref.identity.encode() + b"\0")
    done = 0
    while done < ref.length:
        data = store.read_range(ref.path, ref.offset + done, min(READ_AT_ONCE, ref.length - done))
        if not data:
            raise CorruptSnapshot(f"{where}: {done} bytes instead of {ref.length}")
        actual.update(data)
        done += len(data)
        yield len(data)
    if actual.hexdigest() != ref.checksum:
        raise CorruptSnapshot(f"{where}: the checksum is {actual.hexdigest()} instead of {ref.checksum}")


def _still_there(store: Store, found: _Found, records: Sequence[SnapshotRecord]) -> LogView | None:
    """Take back what was found about snapshots that the owner has deleted meanwhile: their files are gone rightly."""
    try:
        now = SnapshotLog(store).refresh()
    except (LocationError, OSError):
        return None
    gone = {snapshot_id(r.checkpoint) for r in records if now.snapshot(r.checkpoint) is None}
    for path, problems in list(found.problems.items()):
        for problem, snapshots in list(problems.items()):
            if snapshots and not set(snapshots) - gone:
                del problems[problem]
            else:
                snapshots[:] = [name for name in snapshots if name not in gone]
        if not problems:
            del found.problems[path]
    return now


def _unused(
    store: Store, view: LogView, files: Sequence[str], metadata: dict[int, SnapshotMetadata]
) -> tuple[list[UnusedFile], list[UnusedFile]]:
    """Files that go with a collection, and files that nobody can tell of yet."""
    referenced = {section.path for one in metadata.values() for section in sections_of(one)}
    known = referenced | {record.metadata.path for record in view.snapshots}
    dead = set(orphans(view, files, referenced, ()))
    orphaned, unsettled = [], []
    for path, size in store.sizes([path for path in files if path not in known]).items():  # others are gone meanwhile
        if path in dead:
            orphaned.append(UnusedFile(path, size, _older(path, view)))
        elif not path.startswith(f"{PORTABLE_FOLDER}/"):  # which goes with its snapshot
            unsettled.append(UnusedFile(path, size, False))
    return orphaned, unsettled


def _older(path: str, view: LogView) -> bool:
    """Whether its Generation has ended, or, of metadata, its checkpoint was of one that has."""
    number = path.rpartition("/")[2].partition("-")[0]
    if number.isdigit():
        return int(number) < view.owner
    checkpoint = path.split("/")[1].removeprefix("chk-") if path.startswith(f"{SNAPSHOTS_FOLDER}/chk-") else ""
    return checkpoint.isdigit() and int(checkpoint) < view.first_checkpoint
