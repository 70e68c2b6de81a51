"""Log lines that name their subject: ``[query orders, Generation 3, slot 1, subtask v2[1]] the line``.

Code that starts a query on the driver, a slot or a subtask declares it once with ``about``. After that, every line that
this thread logs, and every thread that it creates with ``daemon_thread``, carries the subject: in the text, and as
attributes of the record (``query``, ``query_id``, ``generation``, ``slot``, ``subtask``). ``JsonLines`` is a formatter
that writes these attributes: one JSON object per line, for log collectors.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from penstock.plain_text import log_text, visible

ROOT = "penstock"
_FIELDS = {"query": "query", "generation": "Generation", "slot": "slot", "subtask": "subtask"}
_ATTRIBUTES_ONLY = ("query_id",)
"""Fields that do not appear in the text. The text has ``query``: the query's name, or its id if it has no name."""
_PREFIX = "penstock_prefix"
"""Attribute of a record: the part of its text that names the subject."""
_JSON_FIELDS = (*_FIELDS, *_ATTRIBUTES_ONLY, "checkpoint")
"""Attributes of records that become fields of a JSON line. All others are ignored."""
ONLY_LISTENS = "only_listens"
"""Attribute of a handler that writes nothing. A program that has only such handlers has not set up logging."""
FROM_ELSEWHERE = "from_elsewhere"
"""Attribute of a record that another process created and has written already."""
_subject: ContextVar[dict[str, object] | None] = ContextVar("penstock_log_subject", default=None)


class _SubjectAdapter(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message with escaped arguments: they may quote untrusted text, which must not forge log lines."""
        if self.isEnabledFor(level):
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is the caller's
            super().log(level, msg, *(_escaped(arg) for arg in args), **kwargs)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        subject = dict(_subject.get() or {})
        if not subject:
            return msg, kwargs
        subject_text = ", ".join(f"{_FIELDS[field]} {value}" for field, value in subject.items() if field in _FIELDS)
        prefix = f"[{subject_text.replace('%', '%%')}] " if subject_text else ""
        return f"{prefix}{msg}", {**kwargs, "extra": {**kwargs.get("extra", {}), **subject, _PREFIX: prefix}}


def _escaped(argument: object) -> object:
    if isinstance(argument, bool | int | float | None):
        return argument
    return log_text(str(argument))


class LogFormat(Enum):
    """Format of Penstock's own log lines if the program has not set up logging."""

    TEXT = "text"
    JSON = "json"


class _TextLines(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback with escapes, because the error's message may quote a file or a peer."""
        return visible(super().formatException(ei), "\n\t")


class JsonLines(logging.Formatter):
    """Formatter that writes one JSON object per line.

    The fields are ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, the known ones of ``query``,
    ``query_id``, ``generation``, ``slot``, ``subtask`` and ``checkpoint``, and ``exception`` if there is one.

    It works with any handler (``handler.setFormatter(JsonLines())``) and with records of other libraries.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {"time": at, "level": record.levelname, "logger": record.name}
        line["message"] = self._message(record)
        line |= {field: getattr(record, field) for field in _JSON_FIELDS if getattr(record, field, None) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

    @staticmethod
    def _message(record: logging.LogRecord) -> str:
        """Return the message without the prefix, whose content is in the fields."""
        text = str(record.msg).removeprefix(getattr(record, _PREFIX, ""))
        return text % record.args if record.args else text


def get_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """Return the logger of a module: ``log = get_logger(__name__)``."""
    return _SubjectAdapter(logging.getLogger(name))


class SparingLog:
    """Log for lines that an untrusted client can cause: at most one line per ``interval_s``; it counts the others.

    Not thread-safe.
    """

    def __init__(
        self,
        log: logging.LoggerAdapter[logging.Logger],
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._interval_s = interval_s
        self._clock = clock
        self._next_s = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *args: object) -> None:
        """Log the line, or count it if the interval since the last logged line has not passed."""
        if self._clock() < self._next_s:
            self._left_out += 1
            return
        left_out, self._left_out = self._left_out, 0
        self._next_s = self._clock() + self._interval_s
        self._log.warning(f"{text}%s", *args, f" (and {left_out} more like it before)" if left_out else "")


@contextmanager
def about(**subject: object) -> Iterator[None]:
    """Add fields to the subject of this thread's log lines, for the duration of the ``with`` block.

    The fields are any of ``query``, ``generation``, ``slot``, ``subtask``, and ``query_id``, which does not appear in
    the text.

    Raises:
        ValueError: there is no such field.
    """
    unknown = set(subject) - {*_FIELDS, *_ATTRIBUTES_ONLY}
    if unknown:
        raise ValueError(f"log lines have no field {sorted(unknown)}")
    token = _subject.set({**(_subject.get() or {}), **subject})
    try:
        yield
    finally:
        _subject.reset(token)


def now_about(**subject: object) -> None:
    """Change the subject of this thread and of all threads that share its ``about`` block.

    It is used, for example, when a query's generation changes. Outside of ``about`` it has no effect.
    """
    current = _subject.get()
    if current is not None:
        current.update(subject)


def daemon_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Return a daemon thread, not started, whose log lines have the subject of this thread."""
    context = copy_context()
    return threading.Thread(target=context.run, args=(target,), name=name, daemon=True)


def to_listeners(record: logging.LogRecord, **subject: object) -> None:
    """Pass a record of another process, which has written it already, to the handlers that only listen.

    The record's attributes become the subject of this thread and ``subject``. Its text already names its subject.
    """
    vars(record).update({**(_subject.get() or {}), **subject, FROM_ELSEWHERE: True})
    for handler in logging.getLogger(ROOT).handlers:
        if getattr(handler, ONLY_LISTENS, False):
            handler.handle(record)


def effective_level() -> int:
    """Return the log level of this process. Slots log at the driver's level."""
    return logging.getLogger(ROOT).getEffectiveLevel()


def log_to_stderr(level: int, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Log to stderr in a worker process, from ``level`` on, as JSON or in the layout of Spark's own lines.

    If the user's code has set up logging before, its handlers stay as they are. Idempotent, because worker processes
    are reused: the last call determines the format.
    """
    logging.getLogger(ROOT).setLevel(level)
    _write_to_stderr(log_format)


def log_on_driver(log_format: LogFormat) -> None:
    """Log to stderr in the driver if the format is JSON and the program has not set up logging.

    Otherwise logging stays as it is.
    """
    if log_format is LogFormat.JSON:
        _write_to_stderr(log_format)


_stderr_handler: logging.Handler | None = None
"""Handler that Penstock added in this process."""


def _write_to_stderr(log_format: LogFormat) -> None:
    global _stderr_handler
    if not _is_set_up():
        _stderr_handler = logging.StreamHandler(sys.stderr)
        logging.getLogger(ROOT).addHandler(_stderr_handler)
    if _stderr_handler is not None:
        as_spark = _TextLines("%(asctime)s %(levelname)s %(name)s: %(message)s", "%y/%m/%d %H:%M:%S")
        _stderr_handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else as_spark)


def _is_set_up() -> bool:
    """Return True if a handler writes Penstock's lines. Like ``hasHandlers``, but ignores handlers that only listen."""
    logger: logging.Logger | None = logging.getLogger(ROOT)
    while logger is not None:
        if any(not getattr(handler, ONLY_LISTENS, False) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False
