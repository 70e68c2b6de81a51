"""Prefetch thread: runs a blocking iterator on a thread of its own and queues its items, up to a limit."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 0.3
"""Longest wait of ``close`` for running user code, in seconds. All threads of a slot have one second to end."""

_blocked_threads: list[threading.Thread] = []


def blocked_threads() -> list[threading.Thread]:
    """Return the threads that were closed but are still blocked in user code. They end with the process."""
    _blocked_threads[:] = [thread for thread in _blocked_threads if thread.is_alive()]
    return list(_blocked_threads)


class PrefetchThread(Generic[T]):
    """Thread that runs ``produce(stop)`` and queues its items.

    ``take`` never blocks. It raises the iterator's error when no item before the error is left; ``user_traceback`` is
    then set. User code that blocks for ever cannot be stopped: the thread is a daemon and ends with the process.

    Args:
        name: name of the thread.
        produce: returns the iterator. Its argument is an event that ``close`` sets; code that waits should wait for it.
        capacity: limit for the weight of all queued items. A single item may exceed it.
        weight: returns the weight of an item, at least 1.
    """

    def __init__(
        self, name: str, produce: Callable[[threading.Event], Iterator[T]], capacity: int, weight: Callable[[T], int]
    ) -> None:
        self._capacity = capacity
        self._weight = weight
        self._items: deque[T] = deque()
        self._room = threading.Condition()
        self._stop = threading.Event()
        # Each counter has one writer, so that an item costs no lock while there is room.
        self._weight_in = 0
        self._weight_out = 0
        self._waiting = False
        self._ended = False
        self._error: BaseException | None = None
        self.user_traceback = ""
        # Only the thread refers to ``produce``, which is often a method of the owner. Otherwise each owner would be
        # part of a reference cycle, and the query would wait for the garbage collector.
        self._thread = threading.Thread(target=self._run, args=(produce,), name=f"penstock-read-{name}", daemon=True)
        self._thread.start()

    def _run(self, produce: Callable[[threading.Event], Iterator[T]]) -> None:
        try:
            for item in produce(self._stop):
                self._items.append(item)
                self._weight_in += self._weight(item)
                if self._ahead >= self._capacity:
                    self._wait_for_room()
                if self._stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - raised on the thread of the owner
            self.user_traceback = traceback.format_exc()
            self._error = error
        finally:
            self._ended = True

    @property
    def _ahead(self) -> int:
        return self._weight_in - self._weight_out

    def _wait_for_room(self) -> None:
        """Wait until half of the queue is free: waking a thread costs far more than an item."""
        with self._room:
            self._waiting = True
            self._room.wait_for(lambda: self._stop.is_set() or self._ahead * 2 <= self._capacity)
            self._waiting = False

    def take(self, limit: int) -> list[T]:
        """Return queued items, until their weight reaches ``limit``; empty if there are none now."""
        ended = self._ended  # read before the queue: a queue that is empty after the end stays empty
        taken: list[T] = []
        weight = 0
        while self._items and weight < limit:
            taken.append(self._items.popleft())
            weight += self._weight(taken[-1])
        if taken:
            self._weight_out += weight
            if self._ahead * 2 <= self._capacity and self._waiting:
                with self._room:
                    self._room.notify()
        elif ended and self._error is not None:
            raise self._error
        return taken

    @property
    def finished(self) -> bool:
        """True if the iterator ended without an error and every item was taken."""
        return self._ended and not self._items and self._error is None

    def close(self) -> None:
        with self._room:
            self._stop.set()
            self._room.notify()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            _blocked_threads.append(self._thread)
