"""Operations of the REST service that take, delete, label, export, fork and copy snapshots."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import snapshot_id
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Operation, Outcome, ProgressCounter, Verb
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.commands import copying, forking, ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.deleting import Deletion
from penstock.snapshots.commands.location_cache import CachedLocation, LogCache
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read
from penstock.snapshots.location import open_location, read_identity
from penstock.snapshots.store.stores import store_at

PLAN_ATTEMPTS = 5
"""Attempts to plan a deletion while snapshots are collected at the same time."""

LABELS_AT_ONCE = 8
"""Limit of label requests at a time. Each waits about a second for the location's owner, on a thread of the service."""
_LABELS = threading.BoundedSemaphore(LABELS_AT_ONCE)
_LOGS = LogCache()
LABEL_ANSWER_S = 30.0
"""Time to wait after the owner has accepted a request. The label is one log entry, after those being written."""


@dataclass(frozen=True)
class SnapshotOrder:
    """The arguments of ``StreamingQuery.snapshot``."""

    label: str
    note: str
    alignment: str | None
    timeout_s: float | None
    format: str | None


def take_snapshot(query: StreamingQuery, order: SnapshotOrder, key: str) -> Operation | None:
    """Begin ``query.snapshot``.

    If an operation with the same non-empty key is running or remembered, return that one, even if its order differs;
    see ``Operation.request``. Return None if too many operations are running.
    """

    def take() -> Outcome:
        # No waiting ``snapshot`` call: it has its own time-out, after which the snapshot could still be completed.
        label, note = order.label or None, order.note or None
        promised = query.snapshot(label, order.alignment, order.timeout_s, note, wait=False, format=order.format)
        return Outcome(promised.result().id)

    return OPERATIONS.begin_snapshots(Verb.SNAPSHOT, query.id, query.runId, take, key=key, request=order, once=True)


def delete_snapshots(facts: QueryFacts, checkpoints: Sequence[int]) -> Operation | None:
    """Begin to delete snapshots, all or none, like ``penstock snapshot delete``.

    The request goes to the owner of the location, in whatever process it runs. If the query has ended normally, this
    process takes the location over for a moment. Return the running deletion of the same snapshots, if there is one.
    Return None if too many operations are running.

    Args:
        checkpoints: ids of checkpoints, at most ``rq.MAX_IDS``.
    """
    ids = [snapshot_id(checkpoint) for checkpoint in checkpoints]

    def delete() -> Outcome:
        opened = opened_location(facts)
        answer = ownership.request_change(opened.store, rq.DeleteSnapshots(list(checkpoints)), known=_known(opened))
        return Outcome(ids[0] if len(ids) == 1 else None, answer.files, answer.bytes)

    key = " ".join(ids)
    return OPERATIONS.begin_snapshots(Verb.DELETE_SNAPSHOT, facts.id, facts.run_id, delete, key=key)


def label_snapshot(opened: OpenedLocation, request: rq.LabelSnapshot) -> bool:
    """Label a snapshot through the location's owner, and return when it is done.

    Return False, with nothing done, if ``LABELS_AT_ONCE`` other requests are waiting.

    Raises:
        LocationError: the request is refused, or the store fails. The message says what to do.
    """
    if not _LABELS.acquire(blocking=False):
        return False
    try:
        ownership.request_change(
            opened.store, request, ask=partial(rq.ask, answer_timeout_s=LABEL_ANSWER_S), known=_known(opened)
        )
    except OSError as error:
        raise LocationError(f"{opened.path} cannot be used: {error}; check its permissions") from error
    finally:
        _LABELS.release()
    return True


def export_snapshot(facts: QueryFacts, checkpoint: int, target: str) -> Operation | None:
    """Begin to write a snapshot in portable form to ``target``, in this process.

    If an operation with the same target runs, return that one; ``Operation.request`` is its snapshot's id. Return None
    if too many operations are running.
    """
    name, counter = snapshot_id(checkpoint), ProgressCounter()

    def export() -> Outcome:
        from penstock.snapshots.portable.export import export_snapshot as export_to  # the import takes a moment

        export_to(facts.location, name, target, access=facts.access, progress=counter.update)
        return Outcome(name, location=target)

    verb = Verb.EXPORT_SNAPSHOT
    return OPERATIONS.begin_snapshots(verb, facts.id, facts.run_id, export, key=target, request=name, counter=counter)


def fork_snapshot(facts: QueryFacts, checkpoint: int, target: str) -> Operation | None:
    """Begin to create a location at ``target`` where another query starts from the snapshot.

    Returns as ``export_snapshot``.
    """
    name = snapshot_id(checkpoint)

    def fork() -> Outcome:
        source = opened_location(facts).store
        try:
            forking.fork_snapshot(source, name, open_location(target, facts.access))
        except OSError as error:
            raise LocationError(f"{target} cannot be used: {error}; check its permissions") from error
        return Outcome(name, location=target)

    return OPERATIONS.begin_snapshots(Verb.FORK_SNAPSHOT, facts.id, facts.run_id, fork, key=target, request=name)


def copy_snapshot(facts: QueryFacts, checkpoint: int, target: str) -> Operation | None:
    """Begin to copy a snapshot into an archive at ``target``. Returns as ``export_snapshot``.

    Nothing else may write to the archive. Files that it already has are not copied again.
    """
    name, counter = snapshot_id(checkpoint), ProgressCounter()

    def copy() -> Outcome:
        source = opened_location(facts).store
        try:
            destination = open_location(target, facts.access)
            copying.copy_snapshots(source, destination, [name], progress=counter.update).check([name])
        except OSError as error:
            raise LocationError(f"{target} cannot be used: {error}; check its permissions") from error
        return Outcome(name, location=target)

    verb = Verb.COPY_SNAPSHOT
    return OPERATIONS.begin_snapshots(verb, facts.id, facts.run_id, copy, key=target, request=name, counter=counter)


def accepts_copies(facts: QueryFacts, target: str) -> bool:
    """Return True if ``target`` is empty or an archive of this query's snapshots. Raises as ``has_files``."""
    if not has_files(facts, target):
        return True
    try:
        stored = read_identity(store_at(target, facts.access))
    except (LocationError, OSError):
        return False
    return stored.archive and stored.query_id == opened_location(facts).identity.query_id


def collect_files(facts: QueryFacts) -> Operation | None:
    """Begin to remove the files that no snapshot refers to, through the same process as ``delete_snapshots``.

    Return the running collection, if there is one. Return None if too many operations are running.
    """

    def collect() -> Outcome:
        opened = opened_location(facts)
        answer = ownership.request_change(opened.store, rq.CollectOrphans(), known=_known(opened))
        return Outcome(None, answer.files, answer.bytes)

    return OPERATIONS.begin_snapshots(Verb.COLLECT_FILES, facts.id, facts.run_id, collect, key="all")


def has_files(facts: QueryFacts, target: str) -> bool:
    """Return True if ``target`` has files. Raise LocationError if it cannot be listed."""
    try:
        return bool(store_at(target, facts.access).top_names())
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return True
    except OSError as error:
        raise LocationError(f"{target} cannot be looked at: {error}; check its permissions") from error


def preview_deletion(opened: OpenedLocation, checkpoint: int) -> Deletion:
    """Return what deleting a snapshot would remove now.

    The driver that owns the location may collect other snapshots meanwhile; then the location is read again.

    Raises:
        LocationError: the snapshot does not exist any more, or the location cannot be read.
        CorruptSnapshot: what another snapshot refers to cannot be read.
    """
    for _ in range(PLAN_ATTEMPTS):
        opened.record(snapshot_id(checkpoint))
        try:
            return ownership.preview_deletion(opened.store, [checkpoint], _known(opened))
        except OSError as error:
            raise LocationError(f"{opened.path} cannot be read: {error}; check its permissions") from error
        except CorruptSnapshot:
            now = opened.refreshed()
            if all(now.snapshot(record.checkpoint) for record in opened.view.snapshots):
                raise
            opened = replace(opened, view=now)
    raise LocationError(f"{opened.path}: snapshots come and go while this looks at them; ask again")


def opened_location(facts: QueryFacts) -> OpenedLocation:
    """Open the query's location for reading. Raise LocationError if it cannot be opened."""
    return open_location_to_read(facts.location, facts.access, cached=True, logs=_LOGS)


def _known(opened: OpenedLocation) -> CachedLocation:
    return msgspec.structs.replace(opened.known, log=opened.view)
