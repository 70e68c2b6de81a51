"""The sources of simulated jobs: splits of numbered rows, found a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.connectors.base import Discovery, Source, SourceReader, Split
from penstock.operators.base import Plain
from penstock.testing.rows import MS, ROW, batch_of
from penstock.testing.topology import Node

AT_ONCE = 3
"""A look finds at most so many splits."""


def source_key(number: int, keys: int, skew: float) -> int:
    """The key of row ``number`` of any source; ``skew`` of them have key 0."""
    if number * 2_654_435_761 % 4_294_967_296 < skew * 4_294_967_296:
        return 0
    return (number * 7 + number // 3) % keys


@dataclass(frozen=True)
class Content:
    """What is in a source: row n (of all its splits) has event time n ms and origin ``1000 * vertex + split``."""

    vertex: int
    splits: int
    rows_per_split: int
    keys: int
    skew: float

    def batch(self, first: int, stop: int) -> pa.RecordBatch:
        numbers = range(first, stop)
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
    def __init__(self, content: Content) -> None:
        self._content = content
        self._splits: deque[Split] = deque()

    def add_split(self, split: Split) -> None:
        self._splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self._splits:
            return None
        split = self._splits[0]
        number, at = split.spec["number"], split.position.get("at", 0)
        assert isinstance(number, int)
        assert isinstance(at, int)
        rows = self._content.rows_per_split
        stop = min(at + max_rows, rows)
        if stop == rows:
            self._splits.popleft()
        else:
            self._splits[0] = Split(split.split_id, split.spec, {"at": stop})
        return self._content.batch(number * rows + at, number * rows + stop)

    def snapshot(self) -> Sequence[Split]:
        return tuple(self._splits)


@dataclass(frozen=True)
class SimulatedSource(Source):
    """``bounded``: says when it has found everything."""

    content: Content
    bounded: bool
    schema = ROW

    def describe(self) -> str:
        return f"SimulatedSource[{self.content.vertex}]"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = state if isinstance(state, int) else 0
        behind = min(found + 1 + found % AT_ONCE, self.content.splits)
        splits = tuple(Split(f"split-{number}", {"number": number}) for number in range(found, behind))
        return Discovery(splits, behind, finished=self.bounded and behind == self.content.splits)

    def create_reader(self) -> SourceReader:
        return _Reader(self.content)


def content_of(vertex: int, node: Node, keys: int, skew: float) -> Content:
    return Content(vertex, node.splits, node.rows_per_split, keys, skew)
