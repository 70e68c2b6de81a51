"""Interface of the clients that change snapshots, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.snapshots.commands import requests as rq


class Deleted(NamedTuple):
    """Deleted snapshots. ``ids``: ascending. ``files``, ``bytes``: what was freed."""

    ids: list[str]
    files: int
    bytes: int


class Labelled(NamedTuple):
    """Result of ``label``: the snapshot as it is now; ``kind``: ``periodic`` or ``requested``."""

    id: str
    label: str
    note: str
    kind: str


class SnapshotClient(Protocol):
    """Client of the owner of a location that changes snapshots, which are named by id or label.

    Every method returns after the change, and raises a PenstockError if it is refused or if its outcome is unknown.
    """

    def take(self, request: rq.TakeSnapshot) -> str:
        """Take a snapshot and return its id."""

    def delete(self, names: Sequence[str]) -> Deleted:
        """Delete snapshots: all of them or none, for up to ``rq.MAX_IDS`` snapshots."""

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        """Change the label and the note of a snapshot. Empty: remove it; None: leave it."""
