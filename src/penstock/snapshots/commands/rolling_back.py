"""``rollback`` command: let the query continue from an older snapshot at its next start.

A log entry opens a generation that restores the snapshot, runs nothing and ends. Newer snapshots leave the lineage.
Output written since the snapshot is either kept, and produced a second time, or retracted. To retract it, the entry
demands a retraction, which the next start carries out before anything runs (``retraction``).
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
from penstock.snapshots.commands.ownership import Ask, require_stopped, retry_when_fenced, take_over
from penstock.snapshots.format.names import find_record
from penstock.snapshots.format.plan import taken_away, targets_of
from penstock.snapshots.location import read_identity, refuse_archive
from penstock.snapshots.log.entries import GenerationOpened, LogView, Retraction, SnapshotRecord
from penstock.snapshots.store.store import Store


class Output(Enum):
    """Treatment of output written after the snapshot: retract it at the next start, or keep it and get rows twice."""

    RETRACT = "retract"
    KEEP = "keep"


@dataclass(frozen=True)
class RollbackResult:
    """Result of a rollback.

    Attributes:
        abandoned: snapshots that left the lineage.
        retracts: output will be retracted at the next start.
        changed: False if the location was already in this state.
    """

    snapshot: CheckpointId
    abandoned: tuple[CheckpointId, ...]
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
) -> RollbackResult:
    """Let the query continue from an older snapshot.

    Args:
        name: id or label of the snapshot.
        output: required if output may have been written after the snapshot.
        over: names of positions that other copies of this location have recorded at outputs. The next start takes over
            these outputs (``docs/fencing.md``). Requires ``output``.
        input_restored: the user has restored all input that a source has removed (``cleanSource``).
        force: fence a driver that does not answer.

    Raises:
        ConfigError: ``over`` contains an invalid position name, or is given without ``output``.
        LocationError: the query runs; the snapshot does not exist or is not in the lineage; ``output`` is missing; or a
            source has removed input that would be read again.
        CorruptSnapshot: the snapshot is damaged.
    """
    return retry_when_fenced(
        lambda: _roll_back(store, name, output, _position_names(over, output), input_restored, force, ask)
    )


def _position_names(over: Collection[str], output: Output | None) -> frozenset[str]:
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


def _roll_back(
    store: Store,
    name: str,
    output: Output | None,
    over: frozenset[str],
    input_restored: bool,
    force: bool,
    ask: Ask,
) -> RollbackResult:
    identity = read_identity(store)
    refuse_archive(identity)
    view = require_stopped(store, force=force, ask=ask)
    record = find_record(store.root, view, name)
    _check_lineage(record)
    abandoned = tuple(r.checkpoint for r in view.lineage if r.checkpoint > record.checkpoint)
    has_later_output = bool(abandoned) or view.committed_epoch > record.checkpoint
    if has_later_output and output is None:
        raise LocationError(
            f"{store.root}: what the query has written since {snapshot_id(record.checkpoint)} will be produced again. "
            "Say --output retract to have it taken back at the next start, before anything runs (files and tables "
            "can), or --output keep to have those rows twice"
        )
    over = over.union(view.over)
    plans = _plans(store, [r for r in view.lineage if r.checkpoint >= record.checkpoint], identity)
    if (has_later_output or over) and not input_restored:
        _check_input(store, record, plans)
    retraction = _retraction(view, record, plans) if output is Output.RETRACT else None
    changed = bool(abandoned) or retraction != view.retract or over != set(view.over)
    result = RollbackResult(record.checkpoint, abandoned, retraction is not None, changed)
    if result.changed:
        Catalog(store).check(Catalog(store).read(record), checksums=True)
        with take_over(store, view, lambda now: opened_entry(now, record, retraction, over)):
            pass  # The opening entry is the whole rollback.
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
    """Return the retraction of all output that any generation may have written after the snapshot."""
    sinks: dict[str, set[str]] = {}
    for found in [*map(targets_of, plans), {} if view.retract is None else view.retract.sinks]:
        for operator_id, targets in found.items():
            sinks.setdefault(operator_id, set()).update(targets)
    known = {operator_id: sorted(targets) for operator_id, targets in sorted(sinks.items())}
    return Retraction(record.checkpoint, view.next_checkpoint, known)


def _plans(store: Store, records: Iterable[SnapshotRecord], identity: PlanManifest) -> list[PlanManifest]:
    """Return the plans of the snapshots. Skip unreadable snapshots: they may be the reason for the rollback."""
    plans = []
    for record in records:
        with suppress(CorruptSnapshot):
            plans.append(Catalog(store).read(record).plan or identity)
    return plans


def opened_entry(
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
