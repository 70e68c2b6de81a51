"""Parallel reads of many small files of a store whose calls have a high latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.snapshots.store.store import Store

_T = TypeVar("_T")
_R = TypeVar("_R")


def read_in_parallel(store: Store, read: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Return ``read(item)`` for each item, in order.

    Up to ``store.parallel_calls`` calls run at the same time; if that is more than one, on new threads. Raises the
    error of the first item that failed. Calls that have not begun by then are canceled.
    """
    if store.parallel_calls == 1 or len(items) < 2:
        return [read(item) for item in items]
    with ThreadPoolExecutor(min(store.parallel_calls, len(items)), "penstock-store") as pool:
        futures = [pool.submit(read, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
