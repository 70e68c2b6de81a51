"""Ctrl-C that ends a wait and nothing else.

PySpark's own SIGINT handler cancels all jobs of the application, and then raises KeyboardInterrupt. A query's slots are
such a job. (The JVM ignores the signal, and Python workers have a separate process group.) A notebook's kernel installs
Python's default handler while a cell runs. For programs and the interactive prompt this module does so during a wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PYSPARKS = "pyspark.core.context"


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt on the main thread without cancelling jobs while the block runs.

    A handler that the user has set is left in place.
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
