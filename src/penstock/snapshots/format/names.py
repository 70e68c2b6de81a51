"""What snapshots are called: by their id (``chk-12``, or ``12``), or by a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from penstock.errors import LocationError
from penstock.model.ids import CheckpointId, snapshot_id
from penstock.snapshots.log.entries import LogView, SnapshotRecord

LISTED_AT_MOST = 20
"""Snapshots that a message names."""


class Nameable(Protocol):
    """What can be called by an id or a label: a record of the log, or a line that a service tells."""

    @property
    def checkpoint(self) -> CheckpointId: ...

    @property
    def label(self) -> str: ...


T = TypeVar("T", bound=Nameable)


def is_called(record: Nameable, name: str) -> bool:
    """Whether this is the snapshot's id or its label."""
    return _has_id(record, name) or bool(name and record.label == name)


def find_record(where: str, view: LogView, name: str) -> SnapshotRecord:
    """The snapshot that is called so. An id goes before a label that looks like one.

    Args:
        where: what a message begins with: the location, or the option that names it.

    Raises:
        LocationError: none is, or several have this label; those that there are are listed.
    """
    return find_called(where, view.snapshots, name)


def find_called(where: str, snapshots: Sequence[T], name: str) -> T:
    """As ``find_record``, among these, which are in ascending order."""
    by_id = [record for record in snapshots if _has_id(record, name)]
    named = by_id or [record for record in snapshots if is_called(record, name)]
    if len(named) == 1:
        return named[0]
    if named:
        which = ", ".join(snapshot_id(record.checkpoint) for record in named)
        raise LocationError(f"{where}: several snapshots have the label {name!r}; give an id: {which}")
    raise LocationError(f"{where}: there is no snapshot {name!r}; there are: {_known(snapshots)}")


def known_snapshots(view: LogView) -> str:
    """For messages; the newest first."""
    return _known(view.snapshots)


def _known(snapshots: Sequence[Nameable]) -> str:
    names = [described(record) for record in reversed(snapshots)]
    if not names:
        return "none yet"
    more = len(names) - LISTED_AT_MOST
    return ", ".join(names[:LISTED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def described(record: Nameable) -> str:
    """For messages: id and label."""
    name = snapshot_id(record.checkpoint)
    return f"{name} ({record.label!r})" if record.label else name


def _has_id(record: Nameable, name: str) -> bool:
    return name in (snapshot_id(record.checkpoint), str(record.checkpoint))
