"""``rollback``: the query goes on from an older snapshot at its next start.

One entry of the log does it: a Generation that restores this snapshot, runs nothing, and ends. Newer snapshots are in
no lineage then. What the query has written since is either kept, and comes a second time; or the entry says that it
has to be taken back, and the next start does that before anything runs (``retraction``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

import msgspec

from penstock.decoding import convert
from penstock.errors import ConfigError, CorruptSnapshot, LocationError
from penstock.grammar import PositionName
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.model.manifest import PlanManifest
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.ownership import Ask, stopped, taken_over, unless_fenced
from penstock.snapshots.format.names import find_record
from penstock.snapshots.format.plan import taken_away, targets_of
from penstock.snapshots.location import read_identity, refuse_archive
from penstock.snapshots.log.entries import GenerationOpened, LogView, Retraction, SnapshotRecord
from penstock.snapshots.store.store import Store


class Output(Enum):
    """What becomes of the output behind the snapshot: it is taken back at the next start; or it stays, and its rows
    come a second time."""

    RETRACT = "retract"
    KEEP = "keep"


@dataclass(frozen=True)
class RolledBack:
    """``left``: snapshots that are in no lineage any more. ``retracts``: output has to be taken back at the next start.
    ``changed``: False if everything was so already."""

    snapshot: CheckpointId
    left: tuple[CheckpointId, ...]
    retracts: bool
    changed: bool


def roll_back(
    store: Store,
    name: str,
    *,
    output: Output | None = None,
    over: Collection[str] = (),
    input_restored: bool = False,
    force: bool = False,
    ask: Ask = rq.ask,
) -> RolledBack:
    """Have the query go on from an older snapshot.

    Args:
        name: of the snapshot, by id or label.
        output: needed if something may have been written after the snapshot.
        over: names of positions that other copies of this location have recorded at outputs. The next start takes over
            these outputs (``docs/fencing.md``). Needs ``output``.
        input_restored: the user has put back all input that a source has removed (``cleanSource``).
        force: if no driver answers, fence it.

    Raises:
        ConfigError: ``over`` has what is no name of a position, or ``output`` is not said.
        LocationError: a query runs; there is no such snapshot, or the query does not descend from it; ``output`` is
            not said; a source has removed input that would be read again.
        CorruptSnapshot: the snapshot is not whole.
    """
    return unless_fenced(
        lambda: _rolled_back(store, name, output, _positions(over, output), input_restored, force, ask)
    )


def _positions(over: Collection[str], output: Output | None) -> frozenset[str]:
    try:
        convert(list(over), list[PositionName])
    except msgspec.ValidationError:
        raise ConfigError(
            f"--over {', '.join(over)!r:.200}: give the name of a position, like 23-1f3a9c0d, as the start that was "
            "refused has told it"
        ) from None
    if over and output is None:
        raise ConfigError("--over says whose output this location takes over: say, too, what becomes of it: --output")
    return frozenset(over)


def _rolled_back(
    store: Store,
    name: str,
    output: Output | None,
    over: frozenset[str],
    input_restored: bool,
    force: bool,
    ask: Ask,
) -> RolledBack:
    identity = read_identity(store)
    refuse_archive(identity)
    view = stopped(store, force=force, ask=ask)
    record = find_record(store.root, view, name)
    _check_lineage(record)
    left = tuple(r.checkpoint for r in view.lineage if r.checkpoint > record.checkpoint)
    behind = bool(left) or view.committed_epoch > record.checkpoint
    if behind and output is None:
        raise LocationError(
            f"{store.root}: what the query has written since {snapshot_id(record.checkpoint)} will be produced again. "
            "Say --output retract to have it taken back at the next start, before anything runs (files and tables "
            "can), or --output keep to have those rows twice"
        )
    over = over.union(view.over)
    plans = _plans(store, [r for r in view.lineage if r.checkpoint >= record.checkpoint], identity)
    if (behind or over) and not input_restored:
        _check_input(store, record, plans)
    retraction = _retraction(view, record, plans) if output is Output.RETRACT else None
    changed = bool(left) or retraction != view.retract or over != set(view.over)
    result = RolledBack(record.checkpoint, left, retraction is not None, changed)
    if result.changed:
        Catalog(store).check(Catalog(store).read(record), checksums=True)
        with taken_over(store, view, lambda now: opening(now, record, retraction, over)):
            """That is all."""
    return result


def _check_lineage(record: SnapshotRecord) -> None:
    if not record.in_lineage:
        raise LocationError(
            f"{snapshot_id(record.checkpoint)} is not in the lineage: the query went on from an older snapshot "
            "already, and cannot come back to this one. Begin another query with it: `penstock snapshot fork`"
        )


def _check_input(store: Store, record: SnapshotRecord, plans: Iterable[PlanManifest]) -> None:
    for source in filter(None, map(taken_away, plans)):
        raise LocationError(
            f"{store.root}: {source} removes its input once the query has read it (cleanSource), so rows that the "
            f"query has read since {snapshot_id(record.checkpoint)} would be missing. Put those files back, then use "
            "`penstock snapshot rollback` with --input-restored"
        )


def _retraction(view: LogView, record: SnapshotRecord, plans: Iterable[PlanManifest]) -> Retraction:
    """Of everything that any Generation up to now can have written behind the snapshot."""
    sinks: dict[str, set[str]] = {}
    for found in [*map(targets_of, plans), {} if view.retract is None else view.retract.sinks]:
        for operator_id, targets in found.items():
            sinks.setdefault(operator_id, set()).update(targets)
    known = {operator_id: sorted(targets) for operator_id, targets in sorted(sinks.items())}
    return Retraction(record.checkpoint, view.next_checkpoint, known)


def _plans(store: Store, records: Iterable[SnapshotRecord], identity: PlanManifest) -> list[PlanManifest]:
    """Those of a newest snapshot that cannot be read are not known: that may be why one rolls back."""
    plans = []
    for record in records:
        with suppress(CorruptSnapshot):
            plans.append(Catalog(store).read(record).plan or identity)
    return plans


def opening(
    view: LogView, record: SnapshotRecord, retraction: Retraction | None, over: Collection[str] = ()
) -> GenerationOpened:
    """Return the entry after which the query continues from ``record``."""
    first = view.next_checkpoint
    return GenerationOpened(
        view.next_generation,
        record.checkpoint,
        first,
        first,
        view.committed_epoch,
        retract=retraction,
        over=sorted(over),
    )
