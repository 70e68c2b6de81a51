"""``startFrom`` and ``startMode``: beginning with a snapshot that is there, instead of with nothing.

``fork`` begins a new query, at a checkpoint location of its own; see ``snapshots/fork.py``. ``claim`` goes on with the
query that is there, where it is, and only if it is there: a mistyped location is refused, not begun anew. ``drain``
claims it, too, but only processes what is in flight, takes a snapshot and ends (``docs/draining.md``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from penstock.errors import ConfigError, LocationError
from penstock.model.ids import snapshot_id
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import Catalog, operators_with_state
from penstock.snapshots.fork import OPTION, Origin, choose_snapshot, origin_identity, origin_log, origin_snapshot
from penstock.snapshots.location import IDENTITY_PATH, refuse_archive
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_same_location, location_text, store_at

MODE_OPTION = "startMode"


class StartMode(Enum):
    """Relation of the new query to the snapshot's query: another query, which may continue, or the same one."""

    FORK = "fork"
    CLAIM = "claim"
    DRAIN = "drain"


@dataclass(frozen=True)
class StartFrom:
    """Resolved start point of a query; at most one of ``origin`` and ``claimed`` is set.

    Attributes:
        origin: what to fork.
        claimed: the checkpoint location that was claimed.
        drains: only to process what is in flight there.
    """

    origin: Origin | None = None
    claimed: str | None = None
    drains: bool = False


def restored_operators(origin: Origin | None, location: str, access: StoreAccess) -> Collection[str]:
    """The ids of operators that a start here restores; none where that cannot be told yet."""
    try:
        restored = _restored(origin, store_at(location, access))
    except (OSError, LocationError):
        return ()  # whoever opens it says what is wrong
    return () if restored is None else operators_with_state(restored)


def _restored(origin: Origin | None, store: Store) -> SnapshotMetadata | None:
    lineage = SnapshotLog(store).refresh().lineage if store.exists(IDENTITY_PATH) else ()
    if lineage:
        return Catalog(store).read(lineage[-1])
    return None if origin is None else origin_snapshot(origin)


def refuse_own_location(origin: Origin, location: str) -> None:
    """Raise ConfigError if a fork is to be made where its origin is."""
    if is_same_location(origin.location, location):
        raise ConfigError(
            f"{OPTION} {origin} is the checkpointLocation itself: a fork needs one of its own; leave {OPTION} out "
            f"to go on with the query there, or say {MODE_OPTION}=claim"
        )


def parse_start(
    start_from: str | None, start_mode: str | None, checkpoint_location: str | None, access: StoreAccess | None = None
) -> StartFrom:
    """Parse ``startFrom`` and ``startMode``.

    Args:
        start_from: ``<location>[#<snapshot>]``, the snapshot by id or label.
        start_mode: ``fork``, the default, ``claim`` or ``drain``.
        checkpoint_location: as the user gave it.
        access: to an object store.

    Raises:
        ConfigError: an unknown mode, a mode without a location, or one that does not go with ``checkpointLocation``.
        LocationError: (claim, drain) there is no such query or snapshot, or the snapshot is not the newest.
    """
    mode = _mode(start_mode)
    if start_from is None:
        if start_mode is not None:
            raise ConfigError(f"option {MODE_OPTION}={start_mode} says nothing without {OPTION}; give that, too")
        return StartFrom()
    location, _, snapshot = start_from.rpartition("#") if "#" in start_from else (start_from, "", "")
    if not location:
        raise ConfigError(f"option {OPTION}={start_from!r}: write <location> or <location>#<snapshot>")
    origin = Origin(location_text(location), snapshot, access=access)
    if mode is StartMode.FORK:
        return StartFrom(origin)
    if checkpoint_location is not None and not is_same_location(origin.location, checkpoint_location):
        raise ConfigError(
            f"{MODE_OPTION}={mode.value} goes on with the query at {origin.location}, where it is: leave "
            f"checkpointLocation ({checkpoint_location}) out; or say {MODE_OPTION}=fork for a query of its own there"
        )
    _check_claim(origin)
    return StartFrom(claimed=origin.location, drains=mode is StartMode.DRAIN)


def _mode(text: str | None) -> StartMode:
    try:
        return StartMode((text or "fork").strip().lower())
    except ValueError:
        raise ConfigError(f"option {MODE_OPTION}={text!r}: choose fork, claim or drain") from None


def _check_claim(origin: Origin) -> None:
    """A claim goes on behind everything that is committed, so it begins with the newest snapshot."""
    if origin.portable is not None:
        raise LocationError(
            f"{OPTION} {origin} is a portable snapshot, where no query runs: leave {MODE_OPTION} out, and give a "
            "checkpointLocation of its own to the query that starts from it"
        )
    refuse_archive(origin_identity(origin))
    view = origin_log(origin)
    if choose_snapshot(view, origin) not in view.lineage[-1:]:
        newest = snapshot_id(view.lineage[-1].checkpoint) if view.lineage else "nothing"
        raise LocationError(
            f"{OPTION} {origin}: the query there goes on from {newest}, and what was committed since would "
            f"be produced again; leave the snapshot out, or fork it ({MODE_OPTION}=fork)"
        )
