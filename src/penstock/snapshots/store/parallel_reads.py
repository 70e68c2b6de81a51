"""Many small calls to a store: one after the other where each is quick, several at once where each is waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.snapshots.store.store import Store

_T = TypeVar("_T")
_R = TypeVar("_R")


def read_in_parallel(store: Store, do: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """``do`` of each item, in order; ``store.at_once`` at a time, on threads of their own if that is more than one.

    Raises what the first item of those that failed raised; what has not begun by then is not done.
    """
    if store.at_once == 1 or len(items) < 2:
        return [do(item) for item in items]
    with ThreadPoolExecutor(min(store.at_once, len(items)), "penstock-store") as pool:
        futures = [pool.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
