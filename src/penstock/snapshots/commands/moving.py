"""``move`` command: move a whole query with its id, its log and its snapshots to another location.

The order of the steps ensures that the query can never run at both locations, and that the same command completes an
interrupted move:

1. The command becomes the owner of the origin's log, so no query runs there and nothing is deleted.
2. The target gets a mark with a random token. Without ``query.json`` it is not a location yet.
3. All files, including the log, are copied and verified.
4. ``Moved`` with the token becomes the last entry at the origin. No query starts there after that.
5. The target's log records that this owner has ended. Then ``query.json`` makes the target a location.
6. The origin's files are deleted, except its log and ``query.json``. A driver that was suspended meanwhile finds its
   next log entry taken and stops, as after any other change of owners.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

import msgspec

from penstock.decoding import convert
from penstock.errors import Fenced, LocationError
from penstock.grammar import MarkToken, QueryId
from penstock.snapshots.catalog import FOLDER as SNAPSHOTS_FOLDER
from penstock.snapshots.catalog import PORTABLE_FOLDER, Catalog
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.ownership import Ask, ended_entry, require_stopped, retry_when_fenced, take_over
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.format.sections import FOLDER as DATA_FOLDER
from penstock.snapshots.history.segments import FOLDER as HISTORY_FOLDER
from penstock.snapshots.location import IDENTITY_PATH, MOVING_PATH, SOURCE_FOLDER, STAGED_FOLDER, read_identity
from penstock.snapshots.log.entries import LogView, Moved
from penstock.snapshots.log.snapshot_log import SnapshotLog, entry_path
from penstock.snapshots.store.store import Store
from penstock.snapshots.transfer import SnapshotTransfer

Progress = Callable[[int, int], None]
"""Callback with the number of files and snapshots done and the total."""


class MoveMark(msgspec.Struct, frozen=True):
    """Content of ``moving.json``. ``token`` consists of 32 random hex digits and identifies this target."""

    query_id: QueryId
    token: MarkToken


def move_query(
    origin: Store,
    target: Store,
    *,
    force: bool = False,
    ask: Ask = rq.ask,
    progress: Progress = lambda done, total: None,
) -> LogView:
    """Move the query of a location, or complete an interrupted move. A complete move is left as it is.

    Args:
        origin: the query's location.
        target: the new location. It must be empty or left by an interrupted move.
        force: fence the driver at the origin if it does not answer.

    Returns:
        The log of the target.

    Raises:
        LocationError: the query runs; the target belongs to another query; or the query was moved to another target.
        CorruptSnapshot: a file of the origin is damaged; nothing was moved.
        OSError: a store fails.
    """
    query_id = read_identity(origin).query_id
    token = SnapshotLog(origin).refresh().moved
    if not token:
        token = retry_when_fenced(
            lambda: _leave_origin(origin, target, query_id, require_stopped(origin, force=force, ask=ask), progress)
        )
    _complete_target(origin, target, MoveMark(query_id, token))
    folders = (SNAPSHOTS_FOLDER, PORTABLE_FOLDER, DATA_FOLDER, STAGED_FOLDER, SOURCE_FOLDER, HISTORY_FOLDER, rq.FOLDER)
    for folder in folders:
        for path in origin.list(folder):
            origin.delete(path)
    target.delete(MOVING_PATH)
    return SnapshotLog(target).refresh()


def _leave_origin(origin: Store, target: Store, query_id: str, view_before: LogView, progress: Progress) -> str:
    """Copy all files to the target and end the origin's log. Return the target's token."""
    if view_before.moved:
        return view_before.moved
    token = _mark_target(target, query_id)
    with take_over(origin, view_before) as owned:
        _copy_all(origin, target, owned.view, progress)
        owned.log.append(Moved(owned.view.owner, token))
    return token


def _mark_target(target: Store, query_id: str) -> str:
    """Mark the target. Return its token."""
    if target.exists(IDENTITY_PATH):
        raise LocationError(f"{target.root} holds a query already; give an empty folder")
    mark = MoveMark(query_id, secrets.token_hex(16))
    if not target.create_if_absent(MOVING_PATH, seal_envelope(msgspec.to_builtins(mark))):
        mark = _read_mark(target)
        if mark.query_id != query_id:
            raise LocationError(f"{target.root}: query {mark.query_id} is being moved here; give an empty folder")
    return mark.token


def _read_mark(target: Store) -> MoveMark:
    try:
        return convert(open_envelope(target.read(MOVING_PATH), MOVING_PATH), MoveMark)
    except msgspec.ValidationError as error:
        raise LocationError(f"{target.root}: {MOVING_PATH} is not a mark: {error}; give an empty folder") from error


def _copy_all(origin: Store, target: Store, view: LogView, progress: Progress) -> None:
    """Copy all files of the origin that the query needs. The origin's log must not change meanwhile."""
    transfer, catalog = SnapshotTransfer(origin, target), Catalog(origin)
    paths = [
        *origin.list(STAGED_FOLDER),
        *origin.list(PORTABLE_FOLDER),
        *(entry_path(seq) for seq in range(1, view.next_seq) if not view.is_covered(seq)),
    ]
    total = len(view.snapshots) + len(paths)
    for done, record in enumerate(view.snapshots):
        progress(done, total)
        transfer.copy_snapshot(record, catalog.read(record))
    transfer.copy_source_folders()
    for path in origin.list(HISTORY_FOLDER):
        with suppress(FileNotFoundError):  # A driver that no longer owns the location may still merge segments.
            transfer.copy_files([path])
    for done, path in enumerate(paths, len(view.snapshots)):
        progress(done, total)
        transfer.copy_files([path])
    progress(total, total)
    if SnapshotLog(target).refresh() != view:
        raise LocationError(f"{target.root}: its log is not what came from {origin.root}; give an empty folder")


def _complete_target(origin: Store, target: Store, mark: MoveMark) -> None:
    """Make the target a location."""
    moved = SnapshotLog(origin).refresh()
    if target.exists(IDENTITY_PATH):
        if read_identity(target).query_id != mark.query_id or not _has_log_of_origin(origin, target, moved):
            raise LocationError(_other_target_message(origin, target))
        return
    if not target.exists(MOVING_PATH) or _read_mark(target) != mark:
        raise LocationError(_other_target_message(origin, target))
    log = SnapshotLog(target, lambda: secrets.token_hex(16))
    while not log.refresh().ended:
        try:
            log.append(ended_entry(log.view))
        except Fenced:
            continue  # Another command is completing the move at the same time.
    target.create_if_absent(IDENTITY_PATH, origin.read(IDENTITY_PATH))  # The file is created as a whole or not at all.


def _has_log_of_origin(origin: Store, target: Store, moved: LogView) -> bool:
    """Return True if the last log entry, which contains a random token, is the same at both locations."""
    last = entry_path(moved.next_seq - 2)
    return target.exists(last) and target.read(last) == origin.read(last)


def _other_target_message(origin: Store, target: Store) -> str:
    return (
        f"the query of {origin.root} was moved, or is being moved, to another place than {target.root}; name that one"
    )
