"""Read loop of a ``SimpleDataSourceStreamReader``, on the thread of its split.

As in Spark, ``read``, ``commit`` and ``prepareForTriggerAvailableNow`` are called on the same reader object. The last
two are called between two reads.
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
"""Pause in seconds after a read that found no rows. A refresh, a commit, a freeze or the close ends it early."""


@dataclass(frozen=True)
class Range:
    """Marker that precedes the rows of one read.

    Attributes:
        start: offset before the rows.
        end: offset after the rows; None if the range has not been read yet.
        refreshes: number of refreshes that had been requested when the read began.
    """

    start: Plain
    end: Plain
    refreshes: int = 0


@dataclass(frozen=True)
class Idle:
    """Marker for a read that found no rows. ``refreshes``: as in ``Range``."""

    refreshes: int


class SimpleReadLoop:
    """Read loop of one split. ``items`` runs on the split's thread; the subtask's thread calls the other methods.

    Args:
        name: name of the source, for messages.
        first: range to begin with. If it has an end, this is a replay: its rows are read with ``readBetweenOffsets``.

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
        """End the input with the input that exists now.

        From a reader without ``SupportsTriggerAvailableNow``, this is the input of one more read, as Spark reads such a
        source in one batch. The reader does not count as idle until this input is read, even if it was idle before.
        """
        self._frozen = True
        self.request_refresh()

    def commit(self, offset: Plain) -> None:
        """Request a call of the user's ``commit`` before the next read. No row before ``offset`` is read again."""
        self._commit = offset
        self._wake_up.set()

    def wake(self) -> None:
        """End a pause, so that the loop sees the stop event of ``items``."""
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
            self._wake_up.clear()  # must precede the reading of requests, so that none is missed
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
        DataError: ``rows`` is not an iterator. The message says how to make one.
    """
    if not isinstance(rows, Iterator):
        raise DataError(f"source {name}: {method} returned a {type(rows).__name__}; return an iterator, as iter(rows)")
    return rows
