"""``move``: a whole query to another location, which keeps its id, its log and its snapshots.

In this order, so that at no moment two locations could go on as this query, and whatever a crash leaves is completed by
the same command:

1. The log of the origin is owned: no query runs there, and nothing is deleted.
2. The target gets its mark, with a random token. It is no location yet: without ``query.json`` it is refused.
3. Everything comes, the log too, and is verified.
4. ``Moved``, with the token, is the last entry at the origin. From now on no query starts there.
5. The target's log says that this owner is gone; then its ``query.json`` makes it a location.
6. The origin's files go, but its log and ``query.json``: a driver that slept all the while finds its next entry taken,
   and stops, as after any other change of owners.
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
from penstock.snapshots.commands.ownership import Ask, ending, stopped, taken_over, unless_fenced
from penstock.snapshots.format.envelope import open_envelope, seal_envelope
from penstock.snapshots.format.sections import FOLDER as DATA_FOLDER
from penstock.snapshots.history.segments import FOLDER as HISTORY_FOLDER
from penstock.snapshots.location import IDENTITY_PATH, KEPT_FOLDER, MOVING_PATH, STAGED_FOLDER, read_identity
from penstock.snapshots.log.entries import LogView, Moved
from penstock.snapshots.log.snapshot_log import SnapshotLog, entry_path
from penstock.snapshots.store.store import Store
from penstock.snapshots.transfer import SnapshotTransfer

Progress = Callable[[int, int], None]
"""Called with what is done, and all that is to be done."""


class Mark(msgspec.Struct, frozen=True):
    """``moving.json``: which query comes. ``token``: 32 random hex digits, of this target alone."""

    query_id: QueryId
    token: MarkToken


def move_query(
    there: Store,
    here: Store,
    *,
    force: bool = False,
    ask: Ask = rq.ask,
    progress: Progress = lambda done, total: None,
) -> LogView:
    """Move the query at a location, or complete what was interrupted. Done already, nothing happens.

    Args:
        there: where it is.
        here: where it is to be: nothing is there, or what an interrupted move to it has left.
        force: if no driver answers at the origin, fence it.

    Returns:
        The log where it is now.

    Raises:
        LocationError: a query runs; the target is another one's; the query was moved to another target before.
        CorruptSnapshot: something is damaged at the origin; it stays where it is.
        OSError: a store fails.
    """
    query_id = read_identity(there).query_id
    token = SnapshotLog(there).refresh().moved
    if not token:
        token = unless_fenced(lambda: _left(there, here, query_id, stopped(there, force=force, ask=ask), progress))
    _begin(there, here, Mark(query_id, token))
    folders = (SNAPSHOTS_FOLDER, PORTABLE_FOLDER, DATA_FOLDER, STAGED_FOLDER, KEPT_FOLDER, HISTORY_FOLDER, rq.FOLDER)
    for folder in folders:
        for path in there.list(folder):
            there.delete(path)
    here.delete(MOVING_PATH)
    return SnapshotLog(here).refresh()


def _left(there: Store, here: Store, query_id: str, seen: LogView, progress: Progress) -> str:
    """No query starts at the origin any more, and everything is at the target, whose token this is."""
    if seen.moved:
        return seen.moved
    token = _marked(here, query_id)
    with taken_over(there, seen) as owned:
        _bring(there, here, owned.view, progress)
        owned.log.append(Moved(owned.view.owner, token))
    return token


def _marked(here: Store, query_id: str) -> str:
    """The token of this target, which is marked on return."""
    if here.exists(IDENTITY_PATH):
        raise LocationError(f"{here.root} holds a query already; give an empty folder")
    mark = Mark(query_id, secrets.token_hex(16))
    if not here.create_if_absent(MOVING_PATH, seal_envelope(msgspec.to_builtins(mark))):
        mark = _mark_at(here)
        if mark.query_id != query_id:
            raise LocationError(f"{here.root}: query {mark.query_id} is being moved here; give an empty folder")
    return mark.token


def _mark_at(here: Store) -> Mark:
    try:
        return convert(open_envelope(here.read(MOVING_PATH), MOVING_PATH), Mark)
    except msgspec.ValidationError as error:
        raise LocationError(f"{here.root}: {MOVING_PATH} is not a mark: {error}; give an empty folder") from error


def _bring(there: Store, here: Store, view: LogView, progress: Progress) -> None:
    """Everything that the origin has and that means something. Its log is as the view says, and stays so."""
    bringer, catalog = SnapshotTransfer(there, here), Catalog(there)
    paths = [
        *there.list(STAGED_FOLDER),
        *there.list(PORTABLE_FOLDER),
        *(entry_path(seq) for seq in range(1, view.next_seq) if not view.is_covered(seq)),
    ]
    total = len(view.snapshots) + len(paths)
    for done, record in enumerate(view.snapshots):
        progress(done, total)
        bringer.bring(record, catalog.read(record))
    bringer.memories()
    for path in there.list(HISTORY_FOLDER):
        with suppress(FileNotFoundError):  # a driver that has lost the location may merge segments yet
            bringer.files([path])
    for done, path in enumerate(paths, len(view.snapshots)):
        progress(done, total)
        bringer.files([path])
    progress(total, total)
    if SnapshotLog(here).refresh() != view:
        raise LocationError(f"{here.root}: its log is not what came from {there.root}; give an empty folder")


def _begin(there: Store, here: Store, mark: Mark) -> None:
    """The target is a location on return."""
    moved = SnapshotLog(there).refresh()
    if here.exists(IDENTITY_PATH):
        if read_identity(here).query_id != mark.query_id or not _has_its_log(there, here, moved):
            raise LocationError(_elsewhere(there, here))
        return
    if not here.exists(MOVING_PATH) or _mark_at(here) != mark:
        raise LocationError(_elsewhere(there, here))
    log = SnapshotLog(here, lambda: secrets.token_hex(16))
    while not log.refresh().ended:
        try:
            log.append(ending(log.view))
        except Fenced:
            continue  # another one completes it, too
    here.create_if_absent(IDENTITY_PATH, there.read(IDENTITY_PATH))  # as a whole or not at all


def _has_its_log(there: Store, here: Store, moved: LogView) -> bool:
    """The last entry that went along has a random token of its own."""
    last = entry_path(moved.next_seq - 2)
    return here.exists(last) and here.read(last) == there.read(last)


def _elsewhere(there: Store, here: Store) -> str:
    return f"the query of {there.root} was moved, or is being moved, to another place than {here.root}; name that one"
