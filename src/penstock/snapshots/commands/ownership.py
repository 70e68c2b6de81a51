"""Who carries a change out: the driver that owns the location, or, where none does any more, the verb itself.

A driver that ended orderly has said so in the log. Then, or where the user says ``force`` and no driver answers, the
verb takes the location over as a driver does, by ``generation-opened``: whoever still runs there is fenced by it. It
restores the newest snapshot of the lineage, so the lineage stays what it was, takes no checkpoint, and ends orderly.
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
from penstock.snapshots.commands.changing import carry_out
from penstock.snapshots.commands.collecting import collect_orphans
from penstock.snapshots.commands.deleting import Deletion, planned
from penstock.snapshots.commands.location_cache import NOTHING, Known
from penstock.snapshots.commands.owned import Owned
from penstock.snapshots.location import refuse_moved
from penstock.snapshots.log.entries import EpochCommitted, GenerationOpened, LogView, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store

ATTEMPTS = 16
"""How often a verb tries to get past a driver that appends to the log at the same moment."""
UNREACHABLE = (
    "no driver answers at this location, and the last one did not say that it ended. If none runs, use --force: a "
    "driver that still runs is stopped by it"
)
COME_AND_GO = "drivers come and go at this location without pause; ask again"
Ask = Callable[[Store, rq.Verb, str], rq.Answer | None]
Token = Callable[[], str]
"""A fresh one per call: 32 random hex digits."""

T = TypeVar("T")


def new_token() -> str:
    return secrets.token_hex(16)


def view_of(store: Store, known: Known = NOTHING) -> LogView:
    """The log of a location where a query has run.

    Raises:
        LocationError: none has, or the log is damaged.
    """
    view = SnapshotLog(store, view=known.log).refresh()
    refuse_moved(view)
    if not view.owner:
        raise LocationError("no query has run at this location yet")
    return view


def take_snapshot(store: Store, verb: rq.Take, ask: Ask = rq.ask, token: Token = new_token) -> str:
    """Have the running query take a snapshot; its id.

    Raises:
        LocationError: no query runs there, or it refuses.
    """
    nobody = "no query runs at this location: only a running one can take a snapshot"
    if view_of(store).ended:
        raise LocationError(nobody)
    answer = ask(store, verb, token())
    if answer is None:
        raise LocationError(f"{nobody}, and no driver answers here")
    return _accepted(answer).snapshot


def change(
    store: Store,
    verb: rq.Change,
    *,
    force: bool = False,
    ask: Ask = rq.ask,
    token: Token = new_token,
    known: Known = NOTHING,
) -> rq.Answer:
    """Have the owner delete, collect or label, or do it here if there is none.

    Args:
        force: if no driver answers, fence it.

    Raises:
        LocationError: refused; the way out is said.
        OSError: the store fails.
    """
    unanswered = False
    for _ in range(ATTEMPTS):
        view = view_of(store, known)
        if not view.ended and not unanswered:
            answer = ask(store, verb, token())
            if answer is not None:
                return _accepted(answer)
            unanswered = True
            continue  # it may have ended meanwhile
        if not (view.ended or force):
            raise LocationError(UNREACHABLE)
        try:
            with taken_over(store, view, token=token, known=known) as owned:
                return carry_out(owned, verb)
        except Fenced:
            unanswered = unanswered and force  # whoever has appended may answer, unless it was asked already
    raise LocationError(COME_AND_GO)


def stopped(store: Store, *, force: bool, ask: Ask = rq.ask) -> LogView:
    """The log of a location where no query runs, for ``taken_over``.

    Args:
        force: it may be taken over if no driver answers.

    Raises:
        LocationError: one runs; or it is not known whether one does.
    """
    view = view_of(store)
    if view.ended:
        return view
    if ask(store, rq.Collect(dry_run=True), new_token()) is not None:
        raise LocationError(f"{store.root}: a query runs at this location; stop it first")
    view = view_of(store)
    if not (view.ended or force):
        raise LocationError(UNREACHABLE)
    return view


def unless_fenced(work: Callable[[], T]) -> T:
    """Do it again while drivers begin to write at the location before this is done: the next time they are asked.

    Raises:
        LocationError: what ``work`` raises, or they come and go.
    """
    for _ in range(ATTEMPTS):
        with suppress(Fenced):
            return work()
    raise LocationError(COME_AND_GO)


@contextmanager
def taken_over(
    store: Store,
    seen: LogView,
    opening: Callable[[LogView], GenerationOpened] | None = None,
    token: Token = new_token,
    known: Known = NOTHING,
) -> Iterator[Owned]:
    """Own the location for as long as this lasts, and, if it was not moved away then, say at the end that it is over.

    Args:
        seen: the log as it was when the decision was made.
        opening: how; by default the lineage stays what it was.

    Raises:
        Fenced: a driver has appended since, or does while this lasts: what is done up to then stays done.
    """
    log = SnapshotLog(store, token, seen)
    view = log.refresh()
    if view.next_seq != seen.next_seq:
        raise Fenced("a driver has begun to write here meanwhile")
    opened = (opening or _opening)(view)
    log.append(opened)
    try:
        yield Owned(store, log, Catalog(store, known.files()))
    finally:
        if not log.view.moved:
            log.summarise()
            log.append(ending(log.view))
            with suppress(OSError):  # what is left of the log is removed by a later owner
                log.remove_covered(at_most=None)


def _opening(view: LogView) -> GenerationOpened:
    """No checkpoint will be taken, so no ids are reserved. What a rollback demands is still to be done."""
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


def ending(view: LogView) -> EpochCommitted:
    """The owner, who has committed nothing, is gone."""
    return EpochCommitted(view.owner, view.committed_epoch, view.reserved_until, ended=True)


def would_collect(store: Store, ask: Ask = rq.ask, known: Known = NOTHING) -> rq.Answer:
    """What ``gc`` would remove. Nothing is changed.

    Raises:
        LocationError: as ``change``.
    """
    view = view_of(store, known)
    answer = None if view.ended else ask(store, rq.Collect(dry_run=True), new_token())
    if answer is not None:
        return _accepted(answer)
    return collect_orphans(foreseen(store, known), dry_run=True)


def would_delete(store: Store, checkpoints: Sequence[CheckpointId], known: Known = NOTHING) -> Deletion:
    """What ``delete`` would remove; nothing is changed. A checkpoint that is being taken may need some of it yet.

    Raises:
        LocationError: as ``change``.
    """
    return planned(foreseen(store, known), checkpoints)


def foreseen(store: Store, known: Known = NOTHING) -> Owned:
    """A location as it would be if it was taken over now; for plans, its log cannot be appended to."""
    view = view_of(store, known)
    return Owned(store, SnapshotLog(store), Catalog(store, known.files()), foreseen=fold(view, _opening(view)))


def _accepted(answer: rq.Answer) -> rq.Answer:
    if answer.refusal:
        raise LocationError(answer.refusal)
    return answer
