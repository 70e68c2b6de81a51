"""The newest lines that Penstock logged, by query: for whoever cannot look into the logs of driver and executors.

What is logged at all the levels of Python's ``logging`` decide, as always (``warning`` and above by default); slots
take the driver's, and tell it what they log.
"""

from __future__ import annotations

import itertools
import logging
import threading
import traceback
from collections import deque
from dataclasses import dataclass

from penstock.logs import FROM_ELSEWHERE, ROOT
from penstock.redaction import without_secrets

KEPT = 1000
"""Lines of one query; older ones are forgotten."""
QUERIES = 50
"""Of more, those that logged least lately are forgotten."""
MAX_TEXT = 4000
"""Characters of a line, and of what is shown of a traceback: its end."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True)
class LogLine:
    """``number`` rises with every line of the process. ``generation``: None if the line is about none. ``slot``:
    None of the driver's lines. ``exception``: the end of the traceback, else empty."""

    number: int
    at_ms: int
    level: int
    level_name: str
    logger: str
    generation: int | None
    slot: int | None
    message: str
    exception: str


class QueryLogs(logging.Handler):
    """Thread-safe; one instance per process. It only listens: what other handlers do is as without it."""

    only_listens = True

    def __init__(self) -> None:
        super().__init__()
        self._reading = threading.Lock()
        self._lines: dict[str, deque[LogLine]] = {}
        self._numbers = itertools.count(1)

    def listen(self) -> None:
        """To everything of Penstock in this process, from now on. Idempotent."""
        logging.getLogger(ROOT).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record. Never raises, as ``logging`` requires of handlers."""
        try:
            if query_id := getattr(record, "query_id", ""):
                self._remember(str(query_id), record)
        except Exception:  # noqa: BLE001 - so does every handler: the line is no reason for its logger to fail
            self.handleError(record)
        if not getattr(record, FROM_ELSEWHERE, False):
            self._pass_on(record)

    def page(self, query_id: str, level: int, before: int | None, limit: int) -> tuple[list[LogLine], bool]:
        """Lines of this level and above, older than the number ``before``, the newest first, at most ``limit``; and
        whether there are more."""
        with self._reading:
            known = list(self._lines.get(query_id, ()))
        fit = [line for line in reversed(known) if line.level >= level and (before is None or line.number < before)]
        return fit[:limit], len(fit) > limit

    def newest(self, query_id: str) -> int:
        """The number of its newest line; 0: there is none."""
        with self._reading:
            lines = self._lines.get(query_id)
            return lines[-1].number if lines else 0

    def _remember(self, query_id: str, record: logging.LogRecord) -> None:
        raised = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else record.exc_text or ""
        line = LogLine(
            number=next(self._numbers),
            at_ms=int(record.created * 1000),
            level=record.levelno,
            level_name=record.levelname.lower(),
            logger=record.name,
            generation=_number(record, "generation"),
            slot=_number(record, "slot"),
            message=without_secrets(record.getMessage())[:MAX_TEXT],
            exception=without_secrets(raised)[-MAX_TEXT:],
        )
        with self._reading:
            lines = self._lines.pop(query_id, None) or deque(maxlen=KEPT)
            lines.append(line)
            self._lines[query_id] = lines
            for oldest in list(self._lines)[:-QUERIES]:
                del self._lines[oldest]

    def _pass_on(self, record: logging.LogRecord) -> None:
        """Pass a record on.

        If no logging is set up, Python writes warnings to stderr, and our handler must not prevent that.
        """
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return
            logger = logger.parent if logger.propagate else None
        last = logging.lastResort
        if last is not None and record.levelno >= last.level:
            last.handle(record)


def _number(record: logging.LogRecord, field: str) -> int | None:
    value = getattr(record, field, None)
    return value if isinstance(value, int) else None


QUERY_LOGS = QueryLogs()
