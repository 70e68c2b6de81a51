"""Ownership of a location: the owning driver carries out a change, or the command does if there is no driver.

A driver records in the log that it has ended normally. After that, or with ``force`` if no driver answers, the command
takes the location over as a driver does: its ``generation-opened`` entry fences a driver that still runs. The entry
names the newest snapshot of the lineage, so the lineage does not change. The command takes no checkpoint and ends
normally.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

from penstock.errors import Fenced, LocationError
from penstock.model.ids import CheckpointId
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.changes import apply_change, collect_orphans
from penstock.snapshots.commands.deleting import Deletion, plan_files_of_deletion
from penstock.snapshots.commands.location_cache import EMPTY_CACHE, CachedLocation
from penstock.snapshots.commands.owned_location import OwnedLocation
from penstock.snapshots.location import refuse_moved
from penstock.snapshots.log.entries import EpochCommitted, GenerationOpened, LogView, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store

MAX_ATTEMPTS = 16
"""Maximum number of attempts if drivers append to the log at the same time."""
UNREACHABLE = (
    "no driver answers at this location, and the last one did not say that it ended. If none runs, use --force: a "
    "driver that still runs is stopped by it"
)
OWNERS_KEEP_CHANGING = "drivers come and go at this location without pause; ask again"
Ask = Callable[[Store, rq.Command, str], rq.Answer | None]
Token = Callable[[], str]
"""Returns a new token for each call: 32 random hex digits."""

T = TypeVar("T")


def new_token() -> str:
    return secrets.token_hex(16)


def read_query_log(store: Store, known: CachedLocation = EMPTY_CACHE) -> LogView:
    """Return the log of a location where a query has run.

    Raises:
        LocationError: no query has run there, or the log is damaged.
    """
    view = SnapshotLog(store, view=known.log).refresh()
    refuse_moved(view)
    if not view.owner:
        raise LocationError("no query has run at this location yet")
    return view


def request_snapshot(store: Store, command: rq.TakeSnapshot, ask: Ask = rq.ask, token: Token = new_token) -> str:
    """Request a snapshot from the running query. Return the snapshot's id.

    Raises:
        LocationError: no query runs there, or the query refuses.
    """
    not_running = "no query runs at this location: only a running one can take a snapshot"
    if read_query_log(store).ended:
        raise LocationError(not_running)
    answer = ask(store, command, token())
    if answer is None:
        raise LocationError(f"{not_running}, and no driver answers here")
    return _check_accepted(answer).snapshot


def request_change(
    store: Store,
    command: rq.Change,
    *,
    force: bool = False,
    ask: Ask = rq.ask,
    token: Token = new_token,
    known: CachedLocation = EMPTY_CACHE,
) -> rq.Answer:
    """Request a deletion, collection or label from the owner, or carry it out here if there is no owner.

    Args:
        force: fence a driver that does not answer.

    Raises:
        LocationError: the change is refused. The message says what to do.
        OSError: the store fails.
    """
    unanswered = False
    for _ in range(MAX_ATTEMPTS):
        view = read_query_log(store, known)
        if not view.ended and not unanswered:
            answer = ask(store, command, token())
            if answer is not None:
                return _check_accepted(answer)
            unanswered = True
            continue  # The driver may have ended meanwhile.
        if not (view.ended or force):
            raise LocationError(UNREACHABLE)
        try:
            with take_over(store, view, token=token, known=known) as owned:
                return apply_change(owned, command)
        except Fenced:
            # The driver that has appended may answer, so ask it. With ``force``, a silent driver is not asked again.
            unanswered = unanswered and force
    raise LocationError(OWNERS_KEEP_CHANGING)


def require_stopped(store: Store, *, force: bool, ask: Ask = rq.ask) -> LogView:
    """Return the log of a location where no query runs, for ``take_over``.

    Args:
        force: permit a takeover if no driver answers.

    Raises:
        LocationError: a query runs there, or may run there.
    """
    view = read_query_log(store)
    if view.ended:
        return view
    if ask(store, rq.CollectOrphans(dry_run=True), new_token()) is not None:
        raise LocationError(f"{store.root}: a query runs at this location; stop it first")
    view = read_query_log(store)
    if not (view.ended or force):
        raise LocationError(UNREACHABLE)
    return view


def retry_when_fenced(action: Callable[[], T]) -> T:
    """Return ``action()``. Repeat the call while another driver takes over the location.

    Raises:
        LocationError: ``action`` has raised it, or the owner keeps changing.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(Fenced):
            return action()
    raise LocationError(OWNERS_KEEP_CHANGING)


@contextmanager
def take_over(
    store: Store,
    seen: LogView,
    make_opened_entry: Callable[[LogView], GenerationOpened] | None = None,
    token: Token = new_token,
    known: CachedLocation = EMPTY_CACHE,
) -> Iterator[OwnedLocation]:
    """Own the location within the block. At the end record a normal end, unless the query was moved away.

    Args:
        seen: the view of the log on which the decision was based.
        make_opened_entry: makes the entry that takes over; by default the lineage does not change.

    Raises:
        Fenced: a driver has appended an entry meanwhile. Changes made before are kept.
    """
    log = SnapshotLog(store, token, seen)
    view = log.refresh()
    if view.next_seq != seen.next_seq:
        raise Fenced("a driver has begun to write here meanwhile")
    opened = (make_opened_entry or _opened_entry)(view)
    log.append(opened)
    try:
        yield OwnedLocation(store, log, Catalog(store, known.files()))
    finally:
        if not log.view.moved:
            log.summarise()
            log.append(ended_entry(log.view))
            with suppress(OSError):  # A later owner removes the remaining covered entries.
                log.remove_covered(at_most=None)


def _opened_entry(view: LogView) -> GenerationOpened:
    """Return the entry that takes the location over without reserving checkpoint ids. It keeps a pending retraction."""
    restored = view.lineage[-1].checkpoint if view.lineage else 0
    return GenerationOpened(
        view.next_generation,
        restored,
        view.next_checkpoint,
        view.next_checkpoint,
        view.committed_epoch,
        retract=view.retract,
        over=list(view.over),
    )


def ended_entry(view: LogView) -> EpochCommitted:
    """Return the entry that records that the owner has ended. The owner must not have committed anything."""
    return EpochCommitted(view.owner, view.committed_epoch, view.reserved_until, ended=True)


def preview_collection(store: Store, ask: Ask = rq.ask, known: CachedLocation = EMPTY_CACHE) -> rq.Answer:
    """Return what ``gc`` would remove. Change nothing.

    Raises:
        LocationError: as ``request_change``.
    """
    view = read_query_log(store, known)
    answer = None if view.ended else ask(store, rq.CollectOrphans(dry_run=True), new_token())
    if answer is not None:
        return _check_accepted(answer)
    return collect_orphans(plan_takeover(store, known), dry_run=True)


def preview_deletion(
    store: Store, checkpoints: Sequence[CheckpointId], known: CachedLocation = EMPTY_CACHE
) -> Deletion:
    """Return what ``delete`` would remove. Change nothing. A checkpoint in progress may still need some of the files.

    Raises:
        LocationError: as ``request_change``.
    """
    return plan_files_of_deletion(plan_takeover(store, known), checkpoints)


def plan_takeover(store: Store, known: CachedLocation = EMPTY_CACHE) -> OwnedLocation:
    """Return the location as it would be after a takeover. It is only for previews: its log cannot be appended to."""
    view = read_query_log(store, known)
    return OwnedLocation(
        store, SnapshotLog(store), Catalog(store, known.files()), planned_view=fold(view, _opened_entry(view))
    )


def _check_accepted(answer: rq.Answer) -> rq.Answer:
    if answer.refusal:
        raise LocationError(answer.refusal)
    return answer
