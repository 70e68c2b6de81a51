"""Log lines that say what they are about: ``[query orders, Generation 3, slot 1, subtask v2[1]] the line``.

Whoever begins something - a query on the driver, a slot, a subtask - says so once with ``about``. Every line that this
thread logs from there on, and every thread that it makes with ``daemon_thread``, carries it: in the text, and as
attributes of the record (``query``, ``generation``, ``slot``, ``subtask``) for handlers that want fields.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any

ROOT = "penstock"
_FIELDS = {"query": "query", "generation": "Generation", "slot": "slot", "subtask": "subtask"}
_subject: ContextVar[dict[str, object] | None] = ContextVar("penstock_log_subject", default=None)


class _Told(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        subject = dict(_subject.get() or {})
        if not subject:
            return msg, kwargs
        said = ", ".join(f"{_FIELDS[field]} {value}" for field, value in subject.items())
        return f"[{said.replace('%', '%%')}] {msg}", {**kwargs, "extra": {**kwargs.get("extra", {}), **subject}}


def get_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """What modules of Penstock log with: ``log = get_logger(__name__)``."""
    return _Told(logging.getLogger(name))


@contextmanager
def about(**subject: object) -> Iterator[None]:
    """Lines of this thread are about this, too: any of ``query``, ``generation``, ``slot`` and ``subtask``."""
    unknown = set(subject) - set(_FIELDS)
    if unknown:
        raise ValueError(f"log lines have no field {sorted(unknown)}")
    token = _subject.set({**(_subject.get() or {}), **subject})
    try:
        yield
    finally:
        _subject.reset(token)


def now_about(**subject: object) -> None:
    """What changes in the middle, as a query's Generation does: for this thread and all that share its ``about``."""
    known = _subject.get()
    if known is not None:
        known.update(subject)


def daemon_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """A daemon thread, not started, whose lines are about what this thread's are about."""
    context = copy_context()
    return threading.Thread(target=context.run, args=(target,), name=name, daemon=True)


def effective_level() -> int:
    """The level that slots log at: the driver's."""
    return logging.getLogger(ROOT).getEffectiveLevel()


def log_to_stderr(level: int) -> None:
    """In a worker process, whose stderr is the executor's: lines laid out as Spark's own, from ``level`` on.

    Where logging was set up before, by the user's code, it stays as it is. Idempotent.
    """
    logger = logging.getLogger(ROOT)
    logger.setLevel(level)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S"))
        logger.addHandler(handler)
