"""Relay of a slot's log lines to its driver: users read the driver's log and cannot always reach those of executors.

A slot collects the lines of its process between two reports and sends them with the next one. The driver passes them to
its log listeners as lines about its query. The lines are written only to the slot's log.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.logs import ONLY_LISTENS, ROOT, to_listeners
from penstock.network.messages import LoggedLine, SlotLogged
from penstock.redaction import without_secrets

MOST_LINES = 100
"""Maximum lines per report: a slot that logs each row must not fill the driver's memory."""
MOST_TEXT = 4000
"""Maximum characters of a line; also of a traceback, of which the end is kept."""


class LogRelay(logging.Handler):
    """Log handler of a slot that has its own process. Thread-safe."""

    def __init__(self) -> None:
        super().__init__()
        setattr(self, ONLY_LISTENS, True)
        self._changing = threading.Lock()
        self._lines: list[LoggedLine] = []
        self._left_out = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Collect everything that Penstock logs in this process while the context is open."""
        logger = logging.getLogger(ROOT)
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Collect a line. Never raises, as ``logging`` requires of handlers."""
        try:
            line = _line(record)
        except Exception:  # noqa: BLE001 - a handler must not make its logger fail
            self.handleError(record)
            return
        with self._changing:
            if len(self._lines) < MOST_LINES:
                self._lines.append(line)
            else:
                self._left_out += 1

    def take(self, slot: int) -> SlotLogged | None:
        """Return the lines logged since the last call, or None."""
        with self._changing:
            lines, left_out, self._lines, self._left_out = self._lines, self._left_out, [], 0
        return SlotLogged(slot, lines, left_out) if lines else None


def _line(record: logging.LogRecord) -> LoggedLine:
    raised = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
    message = without_secrets(record.getMessage())[:MOST_TEXT]
    return LoggedLine(record.created, record.levelno, record.name, message, without_secrets(raised)[-MOST_TEXT:])


def relayed(logged: SlotLogged) -> None:
    """Pass the lines of a slot to the log listeners of the driver, as lines about the slot's query."""
    for line in logged.lines:
        to_listeners(_record(line), slot=logged.slot)
    if logged.left_out:
        last = logged.lines[-1]
        text = f"slot {logged.slot} logged {logged.left_out} lines more at this time: its executor's log has them"
        to_listeners(_record(LoggedLine(last.at_s, last.level, last.logger, text, "")), slot=logged.slot)


def _record(line: LoggedLine) -> logging.LogRecord:
    record = logging.LogRecord(line.logger, line.level, "", 0, line.message, None, None)
    record.created, record.exc_text = line.at_s, line.exception or None
    return record
