"""Prefetch thread: runs a blocking iterator on a separate thread and queues its items, up to a limit."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

_CLOSE_TIMEOUT_S = 0.3
"""Longest wait of ``close`` for running user code, in seconds. All threads of a slot must end within one second."""

_blocked_threads: list[threading.Thread] = []


def blocked_threads() -> list[threading.Thread]:
    """Return the threads that were closed but are still blocked in user code. They end with the process."""
    _blocked_threads[:] = [thread for thread in _blocked_threads if thread.is_alive()]
    return list(_blocked_threads)


class PrefetchThread(Generic[T]):
    """Thread that runs ``produce(stop)`` and queues its items.

    ``take`` never blocks. It raises the iterator's error after it has returned all items before the error;
    ``user_traceback`` is then set. User code that blocks forever cannot be stopped: the thread is a daemon and ends
    with the process.

    Args:
        name: name of the thread.
        produce: returns the iterator. Its argument is an event that ``close`` sets. Code that waits should also end its
            wait when the event is set.
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
        # Each counter has only one writing thread, so that no lock is necessary per item while the queue is not full.
        self._weight_in = 0
        self._weight_out = 0
        self._waiting = False
        self._ended = False
        self._error: BaseException | None = None
        self.user_traceback = ""
        # Only the thread refers to ``produce``, which is often a method of the owner. Otherwise the owner would be part
        # of a reference cycle, and only the garbage collector would release it.
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
        """Wait until half of the queue is free. Waking the thread for each item would cost far more than the items."""
        with self._room:
            self._waiting = True
            self._room.wait_for(lambda: self._stop.is_set() or self._ahead * 2 <= self._capacity)
            self._waiting = False

    def take(self, limit: int) -> list[T]:
        """Return queued items, until their weight reaches ``limit``; an empty list if the queue is empty."""
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
