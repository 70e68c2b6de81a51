"""What snapshots are called: by their id (``chk-12``, or ``12``), or by a label."""

from __future__ import annotations

from penstock.errors import LocationError
from penstock.snapshot.catalog import snapshot_id
from penstock.snapshot.log_entries import LogView, SnapshotRecord

LISTED_AT_MOST = 20
"""Snapshots that a message names."""


def is_called(record: SnapshotRecord, name: str) -> bool:
    """Whether this is the snapshot's id or its label."""
    return _has_id(record, name) or bool(name and record.label == name)


def find_record(where: str, view: LogView, name: str) -> SnapshotRecord:
    """The snapshot that is called so. An id goes before a label that looks like one.

    Args:
        where: what a message begins with: the location, or the option that names it.

    Raises:
        LocationError: none is, or several have this label; those that there are are listed.
    """
    by_id = [record for record in view.snapshots if _has_id(record, name)]
    named = by_id or [record for record in view.snapshots if is_called(record, name)]
    if len(named) == 1:
        return named[0]
    if named:
        which = ", ".join(snapshot_id(record.checkpoint) for record in named)
        raise LocationError(f"{where}: several snapshots have the label {name!r}; give an id: {which}")
    raise LocationError(f"{where}: there is no snapshot {name!r}; there are: {known_snapshots(view)}")


def known_snapshots(view: LogView) -> str:
    """For messages; the newest first."""
    names = [described(record) for record in reversed(view.snapshots)]
    if not names:
        return "none yet"
    more = len(names) - LISTED_AT_MOST
    return ", ".join(names[:LISTED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def described(record: SnapshotRecord) -> str:
    """For messages: id and label."""
    name = snapshot_id(record.checkpoint)
    return f"{name} ({record.label!r})" if record.label else name


def _has_id(record: SnapshotRecord, name: str) -> bool:
    return name in (snapshot_id(record.checkpoint), str(record.checkpoint))
