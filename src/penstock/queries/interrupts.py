"""Ctrl-C ends a wait and nothing else.

PySpark's own SIGINT handler cancels every job of the application before it raises KeyboardInterrupt, and a query's
slots are such a job. (The JVM ignores the signal, and Python workers have a process group of their own.) A notebook's
kernel puts Python's default handler in its place while a cell runs; the waits of a program and the prompt do so here.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PYSPARKS = "pyspark.core.context"


@contextmanager
def interruptible() -> Iterator[None]:
    """While it lasts, SIGINT raises KeyboardInterrupt on the main thread and cancels no job.

    A handler that the user has set stays.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if on_main_thread else None
    if getattr(handler, "__module__", None) != _PYSPARKS:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
