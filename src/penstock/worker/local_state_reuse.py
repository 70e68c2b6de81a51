"""Local state reuse: tables of a slot that ended are kept for the next slot in the same Python worker.

Spark reuses Python workers. A worker runs one slot at a time. Tables that no slot takes within a minute are released:
the query has ended or runs in another worker, and other tasks need the memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from penstock.snapshots.restoring.local_state import LocalStateStore

FORGET_AFTER_S = 60.0
FORGETTER = "penstock-forget"
"""Name of the timer thread that releases the tables."""

_lock = threading.Lock()


@dataclass(frozen=True)
class Remembered:
    """Tables of one slot of a query."""

    query_id: str
    slot: int
    tables: LocalStateStore


_remembered: list[Remembered] = []
_forgetters: list[threading.Timer] = []


def remember(one: Remembered) -> None:
    """Keep the tables of a slot that has ended. Its threads must have ended too."""
    timer = threading.Timer(FORGET_AFTER_S, _forget, [one])
    timer.name, timer.daemon = FORGETTER, True
    with _lock:
        _remembered.append(one)
        _forgetters.append(timer)
    timer.start()


def recall(query_id: str) -> list[Remembered]:
    """Take the kept tables of this query. Release the tables of all others."""
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
