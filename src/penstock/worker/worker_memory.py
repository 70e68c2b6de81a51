"""What a Python worker remembers of the slot that ran in it, for the next one: Spark uses workers again.

A worker runs one slot at a time. What nobody has asked for after a minute is forgotten: the query is over, or runs
elsewhere, and others need the memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from penstock.snapshots.restoring.local_state import KeptTables

FORGET_AFTER_S = 60.0
FORGETTER = "penstock-forget"
"""The name of the thread that waits for that."""

_lock = threading.Lock()


@dataclass(frozen=True)
class Remembered:
    """``slot``: whose tables, of which query."""

    query_id: str
    slot: int
    tables: KeptTables


_remembered: list[Remembered] = []
_forgetters: list[threading.Timer] = []


def remember(one: Remembered) -> None:
    """The slot has ended, its threads are through, and the tables are as good as ever."""
    timer = threading.Timer(FORGET_AFTER_S, _forget, [one])
    timer.name, timer.daemon = FORGETTER, True
    with _lock:
        _remembered.append(one)
        _forgetters.append(timer)
    timer.start()


def recall(query_id: str) -> list[Remembered]:
    """What there is of this query, for good; what there is of others is forgotten."""
    with _lock:
        found, timers = list(_remembered), list(_forgetters)
        _remembered.clear()
        _forgetters.clear()
    for timer in timers:
        timer.cancel()
    for one in found:
        if one.query_id != query_id:
            one.tables.release()
    return [one for one in found if one.query_id == query_id]


def _forget(one: Remembered) -> None:
    with _lock:
        if one not in _remembered:
            return
        _remembered.remove(one)
        _forgetters[:] = [timer for timer in _forgetters if timer is not threading.current_thread()]
    one.tables.release()
