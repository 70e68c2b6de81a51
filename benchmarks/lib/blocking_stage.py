"""A stage that takes no input at all while a file exists, without holding its thread.

A user function that waits inside a call would hold the subtask's thread, and a barrier cannot pass a call that does not
return: that is the documented exception, not what is measured. Here the subtask is told to leave its input alone, as it
is behind a long call: no row passes, every queue before it fills up, and control goes on.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.worker.barrier_yield import BarrierYield

_blocked = threading.local()
"""``flag``: the file that blocks this thread; set with its first batch."""


@functools.cache
def _watch_flags() -> None:
    """Once per worker process: a subtask also yields while its thread's file exists."""
    as_it_was = BarrierYield.must_yield

    def must_yield(self: BarrierYield) -> bool:
        flag = getattr(_blocked, "flag", None)
        return (flag is not None and os.path.exists(flag)) or as_it_was(self)

    BarrierYield.must_yield = must_yield  # type: ignore[method-assign]


def _block_this_thread(flag: str) -> None:
    _watch_flags()
    _blocked.flag = flag


def blocked_while(flag: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for ``mapInArrow``: after one batch, nothing more for as long as the file exists."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _block_this_thread(flag)  # by name: what this function refers to directly is copied when it is pickled
        yield from batches

    return stage
