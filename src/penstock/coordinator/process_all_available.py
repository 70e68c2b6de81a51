"""``processAllAvailable``: what has to happen until everything that could be found is committed.

A demand waits until all sources are dry, except those that have always more. Each source must have been looked at by
a look that began after the demand, or its discovery is finished. Each reader must have read what a look of its own
found that began after the demand: some have splits that never end. Then a strictly aligned checkpoint follows the last
rows, and the demand is met when that checkpoint's epoch is committed. All demands that wait share one checkpoint. A
failure in between starts it over: what is read again may not be committed yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.coordinator.commands import Command
from penstock.coordinator.machines.splits import Discover
from penstock.errors import PenstockError, QueryFailed
from penstock.model.manifest import SnapshotMetadata


@dataclass
class _Demand:
    future: Future[None]
    looks: dict[int, int]
    number: int


class ProcessAllAvailable:
    """Owned by the coordinator thread.

    Args:
        sources: vertices with a source.
        readers: how many readers each has.
    """

    def __init__(self, sources: Sequence[int], readers: int = 0) -> None:
        self._readers = [(vertex, index) for vertex in sources for index in range(readers)]
        self._number = self._asked = 0
        self._looked = dict.fromkeys(self._readers, 0)
        self._issued = dict.fromkeys(sources, 0)
        self._executed = dict.fromkeys(sources, 0)
        self._waiting: list[_Demand] = []
        self._covered: list[Future[None]] = []
        self._out = False
        self._void = False
        self._epoch: int | None = None

    def rescaled(self, readers: int) -> None:
        """Between two Generations: the next one has so many readers per source."""
        self._readers = [(vertex, index) for vertex in self._issued for index in range(readers)]
        self._looked = {reader: self._looked.get(reader, 0) for reader in self._readers}

    def add(self, future: Future[None]) -> None:
        self._number += 1
        self._waiting.append(_Demand(future, self._next_looks(), self._number))

    def look_to_ask_for(self) -> int | None:
        """A number that all readers are to be asked to look with, if it is time; then it counts as asked. To be called
        while all of them run."""
        if not self._waiting or self._waiting[-1].number <= self._asked:
            return None
        self._asked = self._waiting[-1].number
        return self._asked

    def poll_completed(self, vertex: int, index: int, number: int) -> None:
        """A reader's answer."""
        self._looked[vertex, index] = number

    def issued(self, work: Command) -> None:
        if isinstance(work, Discover):
            self._issued[work.vertex] += 1

    def executed(self, work: Command) -> None:
        if isinstance(work, Discover):
            self._executed[work.vertex] += 1

    def wants_checkpoint(self, dry: bool, finished: Collection[int] = ()) -> bool:
        """Whether one is to be triggered now; then it counts as triggered. ``finished``: sources that are not looked at
        any more."""
        if self._out or not dry:
            return False
        ready = [
            demand
            for demand in self._waiting
            if all(self._executed[v] >= n or v in finished for v, n in demand.looks.items())
            and all(number >= demand.number for number in self._looked.values())
        ]
        if not ready:
            return False
        self._waiting = [demand for demand in self._waiting if demand not in ready]
        self._covered = [demand.future for demand in ready]
        self._out = True
        return True

    def checkpoint_ended(self, future: Future[SnapshotMetadata]) -> None:
        """On the coordinator thread: the checkpoint is complete, or failed and another is needed."""
        if future.exception() is None and not self._void:
            self._epoch = future.result().checkpoint
        else:
            self._again()

    def committed(self, epoch: int) -> None:
        """Every epoch up to this one is visible."""
        if self._epoch is not None and epoch >= self._epoch:
            for future in self._covered:
                future.set_result(None)
            self._covered, self._out, self._epoch = [], False, None

    def generation_failed(self) -> None:
        """A checkpoint that is still wanted would be taken of the next Generation, before it has read everything."""
        self._void = self._out and self._epoch is None
        self._asked, self._looked = 0, dict.fromkeys(self._readers, 0)
        for demand in self._waiting:
            demand.looks = self._next_looks()

    def all_committed(self) -> None:
        """End all demands: every source has ended and everything is committed, or the query was stopped."""
        for future in [*self._covered, *(demand.future for demand in self._waiting)]:
            future.set_result(None)
        self._covered, self._waiting = [], []

    def query_ended(self, error: PenstockError | None, *, suspended: bool = False) -> None:
        """Answer all demands. As in Spark, the wait of a query that is stopped is over without an error."""
        if error is None and not suspended:
            self.all_committed()
            return
        text = f"the query {'was suspended' if suspended else 'failed'} before all available data was committed"
        for future in [*self._covered, *(demand.future for demand in self._waiting)]:
            failure = QueryFailed(text if error is None else f"{text}: {error}")
            failure.__cause__ = error
            future.set_exception(failure)
        self._covered, self._waiting = [], []

    def _again(self) -> None:
        looks = self._next_looks()
        self._number += bool(self._covered)
        self._waiting += [_Demand(future, looks, self._number) for future in self._covered]
        self._covered, self._out, self._epoch, self._void = [], False, None, False

    def _next_looks(self) -> dict[int, int]:
        """The first look of each source that begins from now on."""
        return {vertex: issued + 1 for vertex, issued in self._issued.items()}
