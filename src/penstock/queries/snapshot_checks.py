"""Operations of the REST service that verify and compare snapshots. They only read the location."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.model.ids import snapshot_id
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Operation, Outcome, ProgressCounter, Verb, Verified
from penstock.queries.snapshot_operations import opened_location
from penstock.snapshots.commands.verifying import UnusedFile, Verification, verify_location
from penstock.snapshots.log.entries import SnapshotRecord

if TYPE_CHECKING:
    from penstock.snapshots.commands.comparing import SnapshotDiff

MAX_DAMAGE_REPORTED = 100
"""Limit of damaged files reported, and of the snapshots named for each. It bounds the size of remembered operations."""


def verify_snapshots(facts: QueryFacts, snapshot: str) -> Operation | None:
    """Begin to verify the snapshot with this id or label; all snapshots if ``snapshot`` is empty.

    Return the running verification of the same, if there is one. Return None if too many operations are running.
    """
    counter = ProgressCounter()

    def verify() -> Outcome:
        found = verify_location(facts.location, snapshot, counter.update, facts.access)
        return Outcome(snapshot or None, verification=_bounded(found))

    verb = Verb.VERIFY_SNAPSHOTS
    return OPERATIONS.begin_snapshots(
        verb, facts.id, facts.run_id, verify, key=f"one: {snapshot}" if snapshot else "all", counter=counter
    )


def compare_snapshots(facts: QueryFacts, before: SnapshotRecord, after: SnapshotRecord) -> Operation | None:
    """Begin to count the differences between two snapshots; no rows are shown. Returns as ``verify_snapshots``."""
    counter = ProgressCounter()

    def compare() -> Outcome:
        from penstock.snapshots.commands import comparing

        found = comparing.compare_snapshots(opened_location(facts), before, after, progress=counter.update)
        return Outcome(None, diff=_counts_alone(found))

    key = f"{snapshot_id(before.checkpoint)} {snapshot_id(after.checkpoint)}"
    verb = Verb.COMPARE_SNAPSHOTS
    return OPERATIONS.begin_snapshots(verb, facts.id, facts.run_id, compare, key=key, counter=counter)


def _bounded(found: Verification) -> Verified:
    reported = found.damage[:MAX_DAMAGE_REPORTED]
    return Verified(
        found.log_entries,
        found.snapshots,
        found.sections,
        found.bytes,
        len(found.damage),
        [msgspec.structs.replace(one, snapshots=one.snapshots[:MAX_DAMAGE_REPORTED]) for one in reported],
        len(found.orphans),
        _bytes(found.orphans),
        len(found.unsettled),
        _bytes(found.unsettled),
        found.unused_known,
    )


def _bytes(files: Sequence[UnusedFile]) -> int:
    return sum(file.bytes for file in files)


def _counts_alone(diff: SnapshotDiff) -> SnapshotDiff:
    """Return the difference without discovery states and split positions, which may be large."""
    sources = [
        msgspec.structs.replace(source, state_before=None, state_after=None, splits=[]) for source in diff.sources
    ]
    return msgspec.structs.replace(diff, sources=sources)
