"""Options ``startFrom`` and ``startMode``: start from an existing snapshot instead of from empty state.

- ``fork`` starts a new query at a checkpoint location of its own; see ``snapshots/fork.py``.
- ``claim`` continues the existing query at its own location. If there is no query, for example because the location is
  mistyped, the start is refused.
- ``drain`` is a claim that only processes the in-flight data, takes a snapshot and ends (``docs/draining.md``).
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
    """Relation of the new query to the snapshot's: ``FORK``: another query; ``CLAIM``, ``DRAIN``: the same query."""

    FORK = "fork"
    CLAIM = "claim"
    DRAIN = "drain"


@dataclass(frozen=True)
class StartFrom:
    """Resolved start point of a query. At most one of ``origin`` and ``claimed`` is set.

    Attributes:
        origin: the snapshot to fork.
        claimed: the checkpoint location to continue at.
        drains: True if the query only processes the in-flight data there and then ends.
    """

    origin: Origin | None = None
    claimed: str | None = None
    drains: bool = False


def restored_operators(origin: Origin | None, location: str, access: StoreAccess) -> Collection[str]:
    """Return the ids of operators whose state this start restores; empty if the location cannot be read."""
    try:
        restored = _restored(origin, store_at(location, access))
    except (OSError, LocationError):
        return ()  # opening the location later raises the error
    return () if restored is None else operators_with_state(restored)


def _restored(origin: Origin | None, store: Store) -> SnapshotMetadata | None:
    lineage = SnapshotLog(store).refresh().lineage if store.exists(IDENTITY_PATH) else ()
    if lineage:
        return Catalog(store).read(lineage[-1])
    return None if origin is None else origin_snapshot(origin)


def refuse_own_location(origin: Origin, location: str) -> None:
    """Raise ConfigError if a fork would start at the location of its origin."""
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
        start_from: ``<location>[#<snapshot>]``; the snapshot is an id or a label.
        start_mode: ``fork`` (the default), ``claim`` or ``drain``.
        checkpoint_location: the option's text, or None.
        access: access to an object store.

    Raises:
        ConfigError: the mode is unknown, is given without ``startFrom``, or contradicts ``checkpointLocation``.
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
    """Raise LocationError unless the origin is the newest snapshot of a query that can continue at its location.

    A claim continues after everything that is committed, so an older snapshot would produce rows again.
    """
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
