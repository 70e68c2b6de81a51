"""Functions for ``mapInArrow`` that fail or take no input, for as long as a file says so.

Slots and Spark's workers import this module with the functions they unpickle, so it imports no more than they need.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from benchmarks.lib import row_log

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
FAIL_FILE = "fail"
"""Name of the file that makes a failing stage throw, in the directory of the row log."""

_blocked = threading.local()
"""``file``: the file that blocks this thread; set with its first batch."""


def failing(folder: str, row_ms: float) -> Stage:
    """Return a stage that takes ``row_ms`` per row, logs its rows and throws on request."""

    def sink(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * row_ms / 1000)
            throw_if_requested(folder)
            row_log.add(folder, batch.num_rows)
            yield batch

    return sink


def throw_if_requested(folder: str) -> None:
    """Raise once for each time that the file is written, in the subtask that sees it first."""
    file = os.path.join(folder, FAIL_FILE)
    try:
        number = Path(file).read_text()
        os.unlink(file)
    except FileNotFoundError:
        return
    raise RuntimeError(f"asked to fail, number {number}")


def blocked_while(file: str) -> Stage:
    """Return a stage that takes no input after its first batch while the file exists.

    A function that waits inside a call would hold the subtask's thread, and a barrier cannot pass a call that does not
    return. This stage lets its subtask yield instead: no row passes, all queues in front of it fill up, and control
    messages are still handled.
    """

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _block_this_thread(file)  # by name: cloudpickle copies what this function refers to directly
        yield from batches

    return stage


def _block_this_thread(file: str) -> None:
    _watch_files()
    _blocked.file = file


@functools.cache
def _watch_files() -> None:
    """Make each subtask of this worker process yield while its thread's file exists."""
    from penstock.worker.barrier_yield import BarrierYield  # not in Spark's workers

    original = BarrierYield.must_yield

    def must_yield(self: BarrierYield) -> bool:
        file = getattr(_blocked, "file", None)
        return (file is not None and os.path.exists(file)) or original(self)

    BarrierYield.must_yield = must_yield  # type: ignore[method-assign]
