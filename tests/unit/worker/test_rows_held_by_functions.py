"""Rows that functions hold in front of a watermark: event time waits for them, and the reader is not idle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.base import SourceReader
from penstock.model.ids import SubtaskId
from penstock.model.messages import PollCompleted, ReaderStatus, RequestSplit
from penstock.model.splits import Split
from penstock.operators.python.map_function import MapInArrowSpec
from penstock.operators.watermark import WatermarkSpec
from penstock.worker.chain import Chain, Stage
from penstock.worker.source_task import HELD_MS, SourceTask
from simulator.jobs.holding_functions import ahead, first_last, swapped

SCHEMA = pa.schema([("at", pa.int64())])
MS = 1_000

Function = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def stages_of(*functions: Function) -> list[Stage]:
    """Return the stages of the functions and of a watermark after them."""
    specs: list[Any] = [
        MapInArrowSpec(operator_id=f"map{n}", name="map", output_schema=SCHEMA, input_schema=SCHEMA, function=function)
        for n, function in enumerate(functions)
    ]
    specs.append(WatermarkSpec(operator_id="mark", name="mark", output_schema=SCHEMA, column=0, delay_us=0))
    return [Stage(spec.operator_id, spec.create()) for spec in specs]


def chain_of(*functions: Function) -> tuple[Chain, list[Any]]:
    out: list[Any] = []
    chain = Chain(stages_of(*functions), lambda b: out.append(b.column(0).to_pylist()), lambda us: out.append(us))
    return chain, out


def push(chain: Chain, *times_ms: int) -> None:
    chain.process(pa.record_batch([pa.array([ms * MS for ms in times_ms])], schema=SCHEMA))
    drain(chain)


def drain(chain: Chain) -> None:
    while chain.advancing:
        chain.advance()


@pytest.mark.parametrize("functions", [(ahead,), (ahead, ahead), (swapped,), (first_last,)])
def test_no_watermark_passes_rows_that_a_function_in_front_of_it_holds(functions: tuple[Function, ...]) -> None:
    chain, out = chain_of(*functions)
    for first in range(1, 6):
        push(chain, first, first + 1)
        chain.advance_generated(1_000 * MS)
        drain(chain)
        assert chain.holds_rows
        assert not [item for item in out if isinstance(item, int)]
    chain.finish_epoch()
    drain(chain)
    assert out[-1] == 1_000 * MS, "the watermark follows the rows"
    assert sorted(us for item in out[:-1] for us in item) == sorted(
        us * MS for first in range(1, 6) for us in (first, first + 1)
    )


def test_a_function_that_has_ended_holds_nothing() -> None:
    def first_batch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches)

    chain, out = chain_of(first_batch)
    push(chain, 3)
    push(chain, 5)
    assert not chain.holds_rows
    assert out == [[3 * MS], 3 * MS]


def test_held_rows_are_released_within_an_epoch() -> None:
    chain, out = chain_of(ahead, ahead)
    push(chain, 3)
    assert out == []
    chain.release_rows()
    drain(chain)
    assert out == [[3 * MS], 3 * MS]
    push(chain, 4)
    assert chain.holds_rows, "the next call has begun"


class EndingReader(SourceReader):
    """Reader of bounded splits. It returns no rows."""

    def __init__(self) -> None:
        self.splits: deque[Split] = deque()

    def add_split(self, split: Split) -> None:
        self.splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        self.splits.popleft()
        return pa.record_batch([pa.array([1])], schema=SCHEMA)

    def snapshot(self) -> Sequence[Split]:
        return tuple(self.splits)


class Requests:
    def __init__(self) -> None:
        self.statuses: list[tuple[int, int | None]] = []
        self.polls: list[int] = []
        self.requests = 0

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        match message:
            case ReaderStatus():
                self.statuses.append((message.unread, message.seen_us))
            case RequestSplit():
                self.requests += 1
            case PollCompleted(number=number):
                self.polls.append(number)


def feed_of() -> tuple[SourceTask, Any]:
    host: Any = Requests()
    return SourceTask(EndingReader(), (), SubtaskId(0, 0), host), host


def test_a_reader_whose_rows_are_held_asks_for_more_but_is_not_idle() -> None:
    feed, host = feed_of()
    feed.report(None, None)
    feed.assigned([Split("s", {})])
    feed.poll(10, 0.0)
    for _ in range(3):
        feed.report(7, None, holds_rows=True)
    assert host.statuses == [(0, None), (1, 7)]
    feed.poll_again(1)
    feed.report(7, None, holds_rows=True)
    assert host.polls == []
    feed.report(9, None)
    assert host.statuses[2:] == [(0, 9)], "its watermark is final now"
    assert host.polls == [1]


def test_an_idle_reader_reports_a_new_watermark() -> None:
    feed, host = feed_of()
    feed.report(3, 2)
    feed.report(3, 2)
    feed.report(3, 3)
    feed.report(5, 3)
    assert [watermark_us for _, watermark_us in host.statuses] == [3, 3, 5]


@pytest.mark.parametrize("why", ["frozen", "asked", "a while"])
def test_functions_release_rows_when_nothing_is_left_to_read(why: str) -> None:
    feed, _ = feed_of()
    feed.report(None, None)
    feed.assigned([Split("s", {})])
    if why == "frozen":
        feed.freeze()
    elif why == "asked":
        feed.poll_again(1)
    assert not feed.releases(0.0), "a split is left"
    assert feed.release_at_ms is None
    feed.poll(10, 0.0)
    assert feed.releases(5.0) == (why != "a while")
    assert feed.release_at_ms == 5.0 + HELD_MS
    assert feed.releases(5.0 + HELD_MS)
    feed.report(None, None)
    assert feed.release_at_ms is None, "nothing is held"
