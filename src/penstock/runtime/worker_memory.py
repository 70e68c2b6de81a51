"""What a Python worker remembers of the slot that ran in it, for the next one: Spark uses workers again.

A worker runs one slot at a time. Spark ends an idle worker after a minute, so that nothing is remembered for long.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from penstock.snapshot.kept_tables import KeptTables

_lock = threading.Lock()


@dataclass(frozen=True)
class Remembered:
    """``slot``: whose tables, of which query."""

    query_id: str
    slot: int
    tables: KeptTables


_remembered: list[Remembered] = []


def remember(one: Remembered) -> None:
    """The slot has ended, its threads are through, and the tables are as good as ever."""
    with _lock:
        _remembered.append(one)


def recall(query_id: str) -> list[Remembered]:
    """What there is of this query, for good; what there is of others is forgotten."""
    with _lock:
        found = list(_remembered)
        _remembered.clear()
    for one in found:
        if one.query_id != query_id:
            one.tables.release()
    return [one for one in found if one.query_id == query_id]
