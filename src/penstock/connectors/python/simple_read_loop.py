"""Read loop of a ``SimpleDataSourceStreamReader``, on the thread of its split.

As in Spark, the same reader object reads and, between two reads, gets ``commit`` and ``prepareForTriggerAvailableNow``.
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
"""Pause after a read that found nothing. A refresh, a commit, a freeze or the close ends it."""


@dataclass(frozen=True)
class Range:
    """Marker in front of the rows of one read.

    Attributes:
        start: offset before the rows.
        end: offset after the rows; None if nothing was read.
        refreshes: number of refreshes that had been requested when the read began.
    """

    start: Plain
    end: Plain
    refreshes: int = 0


@dataclass(frozen=True)
class Idle:
    """Marker for a read that found nothing new. ``refreshes``: as in ``Range``."""

    refreshes: int


class SimpleReadLoop:
    """Read loop of one split. ``items`` runs on the split's thread; the subtask's thread calls the other methods.

    Args:
        name: name of the source, for messages.
        first: range to begin with. If it has an end, its rows are read again between its offsets.

    Attributes:
        refreshes: number of refreshes requested so far.
    """

    def __init__(self, name: str, first: Range) -> None:
        self._name = name
        self._first = first
        self._wake_up = threading.Event()
        self._frozen = False
        self._commit: Plain = first.start
        self.refreshes = 0

    def request_refresh(self) -> None:
        self.refreshes += 1
        self._wake_up.set()

    def freeze(self) -> None:
        """End the input with what exists now.

        Without ``SupportsTriggerAvailableNow`` this is one more read, as Spark reads such a source in one batch. The
        reader is not idle before all of that is read, even if it was idle before.
        """
        self._frozen = True
        self.request_refresh()

    def commit(self, offset: Plain) -> None:
        """Call the user's ``commit`` with ``offset`` before the next read: nothing before it is read again."""
        self._commit = offset
        self._wake_up.set()

    def wake(self) -> None:
        """End a pause, because the stop event of ``items`` was set or is about to be."""
        self._wake_up.set()

    def items(self, reader: SimpleDataSourceStreamReader, stop: threading.Event) -> Iterator[Any]:
        """Yield the rows of each read after their ``Range``, and ``Idle`` for each read that found nothing."""
        start = cast("dict[str, Any]", self._first.start)
        committed: Plain = start
        if self._first.end is not None:
            end = cast("dict[str, Any]", self._first.end)
            yield from as_iterator(self._name, "readBetweenOffsets", reader.readBetweenOffsets(start, end))
            start = end
        prepared = ended = False
        while not stop.is_set():
            self._wake_up.clear()  # before the requests are read, so that none is missed
            refreshes = self.refreshes
            if (offset := self._commit) != committed:
                reader.commit(cast("dict[str, Any]", offset))
                committed = offset
            if self._frozen and not prepared:
                prepared = True
                if isinstance(reader, SupportsTriggerAvailableNow):
                    reader.prepareForTriggerAvailableNow()
            rows, after = (iter(()), start) if ended else self._read(reader, start)
            if after != start:
                yield Range(start, after, refreshes)
                yield from rows
                start = after
                ended = prepared and not isinstance(reader, SupportsTriggerAvailableNow)
                continue
            ended = ended or prepared
            yield Idle(refreshes)
            self._pause(stop)

    def _pause(self, stop: threading.Event) -> None:
        if not stop.is_set():
            self._wake_up.wait(IDLE_PAUSE_S)

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
    """Return ``rows``, which must be an iterator, as in Spark.

    Raises:
        DataError: it is something else. The text says how to make an iterator.
    """
    if not isinstance(rows, Iterator):
        raise DataError(f"source {name}: {method} returned a {type(rows).__name__}; return an iterator, as iter(rows)")
    return rows
