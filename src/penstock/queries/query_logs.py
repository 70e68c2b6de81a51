"""The newest lines that Penstock logged, by query, for users without access to the logs of driver and executors.

The levels of Python's ``logging`` decide what is logged (by default ``warning`` and above). Slots use the driver's
levels and send it their lines.
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
"""Number of lines kept per query. Older lines are forgotten."""
QUERIES = 50
"""Number of queries with lines. The query that logged least recently is forgotten first."""
MAX_TEXT = 4000
"""Characters kept of a message (its beginning) and of a traceback (its end)."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


@dataclass(frozen=True)
class LogLine:
    """One line of a query's log.

    Attributes:
        number: increases with every line of the process.
        at_ms: wall-clock time.
        generation: None if the line belongs to no generation.
        slot: None for lines of the driver.
        exception: the end of the traceback, else empty.
    """

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
    """Log handler that keeps lines. Thread-safe; one instance per process. It does not affect other handlers."""

    only_listens = True

    def __init__(self) -> None:
        super().__init__()
        self._reading = threading.Lock()
        self._lines: dict[str, deque[LogLine]] = {}
        self._numbers = itertools.count(1)

    def listen(self) -> None:
        """Keep the lines of all Penstock loggers in this process from now on. Idempotent."""
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
        """Return lines of at least this level, newest first, and True if there are more.

        Args:
            before: only lines with smaller numbers; None for no bound.
            limit: the largest number of lines to return.
        """
        with self._reading:
            known = list(self._lines.get(query_id, ()))
        fit = [line for line in reversed(known) if line.level >= level and (before is None or line.number < before)]
        return fit[:limit], len(fit) > limit

    def newest(self, query_id: str) -> int:
        """Return the number of the newest line of the query; 0 if there is none."""
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
        """Print a record to stderr as Python does for warnings if the program has not set up logging.

        Without this the presence of this handler would suppress that output.
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
