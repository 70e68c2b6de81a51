"""Interface of the clients that change snapshots, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.snapshots.commands import requests as rq


class Deleted(NamedTuple):
    """Deleted snapshots. ``ids``: in ascending order. ``files``, ``bytes``: number of freed files and bytes."""

    ids: list[str]
    files: int
    bytes: int


class Labelled(NamedTuple):
    """Result of ``label``: the snapshot after the change. ``kind``: ``periodic`` or ``requested``."""

    id: str
    label: str
    note: str
    kind: str


class SnapshotClient(Protocol):
    """Client that lets the owner of a location change snapshots. They are named by id or label.

    Every method returns after the change, and raises a PenstockError if it is refused or if its outcome is unknown.
    """

    def take(self, request: rq.TakeSnapshot) -> str:
        """Take a snapshot and return its id."""

    def delete(self, names: Sequence[str]) -> Deleted:
        """Delete snapshots: all of them or none, for up to ``rq.MAX_IDS`` snapshots."""

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        """Change the label and the note of a snapshot. An empty text removes it; None leaves it unchanged."""
