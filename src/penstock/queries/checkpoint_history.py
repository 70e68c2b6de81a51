"""Checkpoints of a query over all its runs, from the driver's memory and the history at its location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from penstock.coordinator.view import CheckpointView
from penstock.errors import LocationError
from penstock.queries.facts import QueryFacts
from penstock.snapshots.history.reading import History
from penstock.snapshots.history.records import CheckpointDetails, CheckpointRecord
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import store_at

FIRST = 1
"""The first checkpoint id. Ids increase, and none is used twice."""
AnyCheckpoint = CheckpointView | CheckpointRecord
"""Checkpoint in memory or in the history. They differ only in the metrics of subtasks."""
Page = tuple[Sequence[AnyCheckpoint], bool]
"""Checkpoints, newest first, and True if there are older ones."""


def remembered_page(facts: QueryFacts, before: int | None, limit: int) -> Page | None:
    """Return the page from memory alone, or None if storage would have to be read."""
    known = _remembered(facts, before)
    enough = len(known) > limit or _remembers_all(facts)
    # If the run is active, the newest checkpoints are in memory.
    return _page(known, limit) if facts.active and enough else None


def _remembers_all(facts: QueryFacts) -> bool:
    """Return True if memory reaches back to the first checkpoint that was ever triggered at the location."""
    return any(known.checkpoint == FIRST for known in facts.view.checkpoints[:1])


def checkpoint_page(facts: QueryFacts, before: int | None, limit: int) -> Page:
    """Return the newest checkpoints with ids below ``before``, newest first, and True if there are older ones.

    Storage is not read if the driver's memory has all of them.

    Args:
        before: None for no bound.
        limit: the largest number of checkpoints to return.

    Raises:
        LocationError: the location cannot be read.
    """
    page = remembered_page(facts, before, limit)
    if page is not None:
        return page
    try:
        recorded = _history(facts.location, facts.access).page(before, limit + 1)
    except OSError as error:
        raise _unreadable(facts, error) from error
    return _page({**{one.checkpoint: one for one in recorded}, **_remembered(facts, before)}, limit)


def remembered_checkpoint(facts: QueryFacts, checkpoint: int) -> CheckpointView | None:
    """Return the checkpoint from memory alone, or None if the driver does not remember it."""
    return next((known for known in facts.view.checkpoints if known.checkpoint == checkpoint), None)


def checkpoint_of(facts: QueryFacts, checkpoint: int) -> CheckpointView | CheckpointDetails | None:
    """Return a checkpoint with the metrics of its subtasks; None if there is none or it is too old.

    Raises:
        LocationError: the location cannot be read.
    """
    known = remembered_checkpoint(facts, checkpoint)
    if known is not None:
        return known
    try:
        return _history(facts.location, facts.access).find(checkpoint)
    except OSError as error:
        raise _unreadable(facts, error) from error


def _remembered(facts: QueryFacts, before: int | None) -> dict[int, AnyCheckpoint]:
    return {one.checkpoint: one for one in facts.view.checkpoints if before is None or one.checkpoint < before}


def _page(known: Mapping[int, AnyCheckpoint], limit: int) -> Page:
    newest = [known[number] for number in sorted(known, reverse=True)[: limit + 1]]
    return newest[:limit], len(newest) > limit


@lru_cache(maxsize=8)
def _history(location: str, access: StoreAccess | None) -> History:
    return History(store_at(location, access))


def _unreadable(facts: QueryFacts, error: OSError) -> LocationError:
    return LocationError(f"{facts.location} cannot be read: {error}; check its permissions")
