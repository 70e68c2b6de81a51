"""What a ``SimpleDataSourceStreamReader`` is asked, in its slot and on its split's thread: read after read.

The reader that reads is also the one that is told what is done with (``commit``) and that there is to be an end
(``prepareForTriggerAvailableNow``), between two reads, as in Spark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.datasource import SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from penstock.errors import DataError
from penstock.model.plain import Plain

IDLE_PAUSE_S = 0.1
"""How long a reader that had nothing new is left alone, unless there is something to tell it."""


@dataclass(frozen=True)
class Range:
    """The rows that follow lie between these offsets; ``end`` None: nothing of it was read. ``looks_asked``: how many
    looks had been asked for when the read of them began."""

    start: Plain
    end: Plain
    looks_asked: int = 0


@dataclass(frozen=True)
class Idle:
    """A read found nothing new. When it began, so many looks had been asked for."""

    looks_asked: int


class SimpleLoop:
    """``items`` runs on the split's thread; everything else belongs to the subtask's.

    Args:
        name: of the source, for messages.
        first: where to begin. If it has an end, its rows are read again between its offsets.
    """

    def __init__(self, name: str, first: Range) -> None:
        self._name = name
        self._first = first
        self._nudge = threading.Event()
        self._frozen = False
        self._commit: Plain = first.start
        self.looks_asked = 0

    def ask_for_look(self) -> None:
        self.looks_asked += 1
        self._nudge.set()

    def freeze(self) -> None:
        """Read what there is now and then no more. Without ``SupportsTriggerAvailableNow`` that is one read, as Spark
        reads such a source in one batch. Whatever it called itself before, it is idle only when that is read."""
        self._frozen = True
        self.ask_for_look()

    def commit(self, offset: Plain) -> None:
        """Tell the user, before the next read, that nothing before ``offset`` is read again."""
        self._commit = offset
        self._nudge.set()

    def wake(self) -> None:
        """The event given to ``items`` was set, or is about to be."""
        self._nudge.set()

    def items(self, reader: SimpleDataSourceStreamReader, stop: threading.Event) -> Iterator[Any]:
        """Rows, each range's behind its ``Range``, and ``Idle`` for each read that found nothing."""
        start = cast("dict[str, Any]", self._first.start)
        told: Plain = start
        if self._first.end is not None:
            end = cast("dict[str, Any]", self._first.end)
            yield from as_iterator(self._name, "readBetweenOffsets", reader.readBetweenOffsets(start, end))
            start = end
        prepared = ended = False
        while not stop.is_set():
            self._nudge.clear()  # before looking at what it stands for
            looks_asked = self.looks_asked
            if (offset := self._commit) != told:
                reader.commit(cast("dict[str, Any]", offset))
                told = offset
            if self._frozen and not prepared:
                prepared = True
                if isinstance(reader, SupportsTriggerAvailableNow):
                    reader.prepareForTriggerAvailableNow()
            rows, after = (iter(()), start) if ended else self._read(reader, start)
            if after != start:
                yield Range(start, after, looks_asked)
                yield from rows
                start = after
                ended = prepared and not isinstance(reader, SupportsTriggerAvailableNow)
                continue
            ended = ended or prepared
            yield Idle(looks_asked)
            self._pause(stop)

    def _pause(self, stop: threading.Event) -> None:
        if not stop.is_set():
            self._nudge.wait(IDLE_PAUSE_S)

    def _read(
        self, reader: SimpleDataSourceStreamReader, start: dict[str, Any]
    ) -> tuple[Iterator[Any], dict[str, Any]]:
        result: object = reader.read(start)
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise DataError(f"source {self._name}: read({start}) must return an iterator of rows and a dict")
        rows = as_iterator(self._name, "read", result[0])
        after = cast("dict[str, Any]", json.loads(json.dumps(result[1])))
        if after == start and next(rows, None) is not None:
            raise DataError(f"source {self._name} returned rows at {start} without a new end offset")
        return rows, after


def as_iterator(name: str, method: str, rows: object) -> Iterator[Any]:
    """Spark takes nothing but an iterator.

    Raises:
        DataError: it is something else; says how to make one.
    """
    if not isinstance(rows, Iterator):
        raise DataError(f"source {name}: {method} returned a {type(rows).__name__}; return an iterator, as iter(rows)")
    return rows
