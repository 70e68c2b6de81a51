"""Interface to the owner of a location, and the results of its commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from penstock.snapshots.commands import requests as rq


class Deleted(NamedTuple):
    """``ids``: ascending. ``files``, ``bytes``: what went with them."""

    ids: list[str]
    files: int
    bytes: int


class Labelled(NamedTuple):
    """Result of ``label``: the snapshot as it is now; ``kind``: ``periodic`` or ``requested``."""

    id: str
    label: str
    note: str
    kind: str


class Owner(Protocol):
    """Has the owner of a location change its snapshots, which are named by id or label. Every method returns when it is
    done, and raises a PenstockError if it is refused or if what came of it is not known."""

    def take(self, wish: rq.TakeSnapshot) -> str:
        """The id of the new one."""

    def delete(self, names: Sequence[str]) -> Deleted:
        """All of them or, of ``rq.MAX_IDS`` at most, none."""

    def label(self, name: str, label: str | None, note: str | None) -> Labelled:
        """Empty: taken away; None: as it was."""
