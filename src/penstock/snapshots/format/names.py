"""Names of snapshots: an id (``chk-12`` or ``12``) or a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.errors import LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.snapshots.log.entries import LogView, SnapshotRecord

MAX_LISTED = 20
"""Maximum number of snapshots that a message lists."""


class Nameable(Protocol):
    """Record of a snapshot with an id and a label: a log record, or a line of a service's list."""

    @property
    def checkpoint(self) -> CheckpointId: ...

    @property
    def label(self) -> str: ...


T = TypeVar("T", bound=Nameable)


def has_name(record: Nameable, name: str) -> bool:
    """Return True if the name is the snapshot's id or label."""
    return _has_id(record, name) or bool(name and record.label == name)


def find_record(where: str, view: LogView, name: str) -> SnapshotRecord:
    """Return the named snapshot. An id takes precedence over a label that looks like an id.

    Args:
        where: prefix of messages: the location, or the option that names it.

    Raises:
        LocationError: there is no such snapshot, or several have this label. The message lists the existing snapshots.
    """
    return find_named(where, view.snapshots, name)


def find_named(where: str, snapshots: Sequence[T], name: str) -> T:
    """Return the named snapshot of a list in ascending order. Raises as ``find_record``."""
    by_id = [record for record in snapshots if _has_id(record, name)]
    named = by_id or [record for record in snapshots if has_name(record, name)]
    if len(named) == 1:
        return named[0]
    if named:
        which = ", ".join(snapshot_id(record.checkpoint) for record in named)
        raise LocationError(f"{where}: several snapshots have the label {name!r}; give an id: {which}")
    raise LocationError(f"{where}: there is no snapshot {name!r}; there are: {_list_text(snapshots)}")


def snapshot_list_text(view: LogView) -> str:
    """Return a list of the snapshots for messages, the newest first."""
    return _list_text(view.snapshots)


def _list_text(snapshots: Sequence[Nameable]) -> str:
    names = [display_name(record) for record in reversed(snapshots)]
    if not names:
        return "none yet"
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def display_name(record: Nameable) -> str:
    """Return id and label for messages."""
    name = snapshot_id(record.checkpoint)
    return f"{name} ({record.label!r})" if record.label else name


def _has_id(record: Nameable, name: str) -> bool:
    return name in (snapshot_id(record.checkpoint), str(record.checkpoint))
