"""The sources of simulated jobs: numbered rows that are there from some moment on, found a few splits at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from simulator.engine.run_context import START_MS
from simulator.jobs.rows import MS, ROW, batch_of
from simulator.settings import Settings

AT_ONCE = 3
"""A look finds at most so many splits."""
LOOK_AGAIN_MS = 7
"""How often the reader of an endless split looks for more."""


def source_key(number: int, keys: int, skew: float) -> int:
    """The key of row ``number`` of any source; ``skew`` of them have key 0."""
    if number * 2_654_435_761 % 4_294_967_296 < skew * 4_294_967_296:
        return 0
    return (number * 7 + number // 3) % keys


@dataclass(frozen=True)
class Content:
    """Content of a source: row n (over all its splits) has event time n ms and origin ``1000 * vertex + split``.

    Attributes:
        arrival_ms: time after the start at which everything is available; before, the first part of it is.
        partitions: number of endless splits; split p has the rows n with ``n % partitions == p``.
    """

    vertex: int
    splits: int
    rows_per_split: int
    keys: int
    skew: float
    arrival_ms: int
    partitions: int = 1

    def splits_at(self, now_ms: float) -> int:
        """Return the number of splits at a time."""
        return self._part(self.splits, now_ms)

    def rows_at(self, now_ms: float) -> int:
        """Return the number of rows at a time, if they arrive one by one."""
        return self._part(self.splits * self.rows_per_split, now_ms)

    def partition_at(self, number: int, now_ms: float) -> int:
        """Return the number of rows of a partition that exist."""
        return len(range(number, self.rows_at(now_ms), self.partitions))

    def _part(self, whole: int, now_ms: float) -> int:
        passed_ms = now_ms - START_MS
        return whole if passed_ms >= self.arrival_ms else int(whole * passed_ms / self.arrival_ms)

    def batch(self, numbers: range) -> pa.RecordBatch:
        nothing = [0] * len(numbers)
        return batch_of(
            (
                [1_000 * self.vertex + n // self.rows_per_split for n in numbers],
                [source_key(n, self.keys, self.skew) for n in numbers],
                [n * MS for n in numbers],
                nothing,
                nothing,
                nothing,
            )
        )


class _Reader(SourceReader):
    """Reader of splits that end."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._splits: deque[Split] = deque()

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._splits:
            return None
        split = self._splits[0]
        number, at = number_of(split), position(split)
        rows = self._content.rows_per_split
        stop = min(at + max_rows, rows)
        if stop == rows:
            self._splits.popleft()
        else:
            self._splits[0] = Split(split.split_id, split.spec, {"at": stop})
        return self._content.batch(range(number * rows + at, number * rows + stop))

    def snapshot(self) -> Sequence[Split]:
        return tuple(self._splits)


class _EndlessReader(SourceReader):
    """Reader of an endless split, which gets more rows over time. A frontier begins at the next poll."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._split: Split | None = None
        self._frozen = False
        self._stop: int | None = None
        self._caught_up = False
        self._frontier: int | None = None
        self.frontier_begins = False

    def add_split(self, split: Split) -> None:
        self._split = split

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if self._split is None:
            return None
        number = number_of(self._split)
        end = self._content.partition_at(number, now_ms) if self._stop is None else self._stop
        if self._frozen:
            self._stop = end
        if self.frontier_begins:
            self._frontier, self.frontier_begins = end, False
        at = position(self._split)
        stop = min(at + max_rows, max(at, end))
        self._caught_up = at == stop
        if at == stop:
            return None
        self._split = msgspec.structs.replace(self._split, position={"at": stop})
        every = self._content.partitions
        return self._content.batch(range(number + at * every, number + stop * every, every))

    def snapshot(self) -> Sequence[Split]:
        return () if self._split is None else (self._split,)

    def caught_up(self) -> bool:
        return self._caught_up

    def begin_frontier(self) -> None:
        self._frontier, self.frontier_begins = None, True

    def frontier_passed(self) -> bool:
        return self._split is None or (self._frontier is not None and position(self._split) >= self._frontier)

    def freeze(self) -> None:
        self._frozen, self._caught_up = True, False

    def wake_after_ms(self) -> int:
        return LOOK_AGAIN_MS


def number_of(split: Split) -> int:
    """Return the index of a split within its source."""
    number = split.spec["number"]
    assert isinstance(number, int)
    return number


def position(split: Split) -> int:
    """Return the number of rows of a split that are read."""
    at = split.position.get("at", 0)
    assert isinstance(at, int)
    return at


@dataclass
class SimulatedSource(Source):
    """``bounded``: says when it has found everything. ``clock_ms``: when it is.

    Attributes:
        frozen: how many splits there were when it was frozen.
    """

    content: Content
    bounded: bool
    endless: bool
    clock_ms: Callable[[], float]
    frozen: int | None = field(default=None, init=False)
    schema = ROW

    def describe(self) -> str:
        return f"SimulatedSource[{self.content.vertex}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = state if isinstance(state, int) else 0
        if self.endless:
            count = self.content.partitions
            homes = [None] if count == 1 else range(count)
            splits = [Split(f"split-{n}", {"number": n}, home=home) for n, home in enumerate(() if found else homes)]
            return Discovery(splits, 1, finished=self.frozen is not None)
        end = self.content.splits_at(self.clock_ms()) if self.frozen is None else self.frozen
        behind = min(found + 1 + found % AT_ONCE, max(end, found))
        splits = [Split(f"split-{number}", {"number": number}) for number in range(found, behind)]
        all_found = behind >= end if self.frozen is not None else self.bounded and behind == self.content.splits
        return Discovery(splits, behind, finished=all_found)

    def freeze(self) -> None:
        self.frozen = self.content.splits_at(self.clock_ms())

    def create_reader(self) -> SourceReader:
        return _EndlessReader(self.content) if self.endless else _Reader(self.content)


def source_of(settings: Settings, vertex: int, clock_ms: Callable[[], float]) -> SimulatedSource:
    """The source of one vertex, as one driver has it. Of several, each takes its own time to fill; with one clock a row
    comes when its event time has, in all of them."""
    node = settings.nodes[vertex]
    rows = [one.splits * one.rows_per_split for one in settings.nodes if one.kind == "source"]
    arrival_ms = settings.arrival_ms * (vertex % 3 if len(rows) > 1 else 1)
    if settings.clock:
        arrival_ms = settings.arrival_ms * node.splits * node.rows_per_split // max(rows)
    shape = node.splits, node.rows_per_split, settings.keys, settings.skew
    content = Content(vertex, *shape, arrival_ms, node.partitions)
    return SimulatedSource(content, settings.bounded, settings.endless, clock_ms)
