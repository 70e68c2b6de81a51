"""Split requests of a source subtask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.base import SourceReader
from penstock.connectors.kafka.reader import KafkaReader
from penstock.connectors.python.reader import PythonSourceReader
from penstock.connectors.rate import RateReader
from penstock.errors import ProtocolViolation
from penstock.model.ids import SubtaskId
from penstock.model.messages import PollCompleted, ReaderStatus, RequestSplit
from penstock.model.metrics import Backlog
from penstock.model.splits import Split
from penstock.worker.source_task import SourceTask

Request = tuple[int, int]
"""Splits held unread, splits received."""


class EndlessReader(SourceReader):
    """Says what it is told to."""

    reads_splits_concurrently = True

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.idle = False
        self.lag: list[int] = []
        self.epochs = 0

    def add_split(self, split: Split) -> None:
        self.splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        return None

    def snapshot(self) -> Sequence[Split]:
        return self.splits

    def caught_up(self) -> bool:
        return self.idle

    def lags(self) -> Sequence[int]:
        return self.lag

    def epoch_ended(self) -> None:
        self.epochs += 1


class Requests:
    def __init__(self) -> None:
        self.statuses: list[Request] = []
        self.polls: list[int] = []
        self.requests = 0

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        match message:
            case ReaderStatus():
                self.statuses.append((message.unread, message.received))
            case RequestSplit():
                self.requests += 1
            case PollCompleted(number=number):
                self.polls.append(number)


def feed_of(reader: SourceReader) -> tuple[SourceTask, Requests]:
    host: Any = Requests()
    return SourceTask(reader, (), SubtaskId(0, 0), host), host


def split(number: int) -> Split:
    return Split(f"s{number}", {}, home=0)


def test_a_reader_that_reads_side_by_side_always_has_one_request_out() -> None:
    reader = EndlessReader()
    feed, host = feed_of(reader)
    for _ in range(3):
        feed.report(None, None)
    feed.assigned([split(1)])
    for _ in range(3):
        feed.report(None, None)
    feed.assigned([split(2)])
    feed.report(None, None)
    assert host.statuses == [(0, 0), (1, 1), (2, 2)]
    reader.idle = True
    for _ in range(3):
        feed.report(None, None)
    reader.idle = False
    feed.report(None, None)
    assert host.statuses[3:] == [(0, 2), (2, 2)], "it says when its being idle changes"


def test_one_request_is_answered_by_one_assignment() -> None:
    reader = EndlessReader()
    feed, host = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.report(None, None)
    reader.idle = True
    feed.report(None, None)
    assert host.requests == 2, "becoming idle is a status, and no further request"
    feed.assigned([split(2)])
    with pytest.raises(ProtocolViolation, match="no split requested"):
        feed.assigned([split(3)])


def test_a_reader_that_reads_one_after_the_other_asks_when_it_is_idle() -> None:
    reader = EndlessReader()
    reader.reads_splits_concurrently = False
    feed, host = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.report(None, None)
    assert host.statuses == [(0, 0)]


def test_a_reader_hears_of_the_end_of_an_epoch() -> None:
    reader = EndlessReader()
    feed, _ = feed_of(reader)
    feed.end_epoch(1)
    assert reader.epochs == 1


def test_a_reader_that_is_drained_is_polled_no_more() -> None:
    reader = EndlessReader()
    feed, _ = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.freeze()
    assert feed.poll(10, 1_000.0) is None
    assert feed.wake_at_ms is not None, "there may be more"
    feed.drain()
    assert feed.wake_at_ms is None, "a time that passes and is never renewed keeps its subtask awake"


class OneByOne(EndlessReader):
    reads_splits_concurrently = False


class InTurns(OneByOne):
    interleaves_splits = True


@pytest.mark.parametrize(
    ("reader", "splits", "expected"),
    [(OneByOne(), 2, True), (OneByOne(), 1, False), (InTurns(), 2, False), (EndlessReader(), 2, False)],
)
def test_several_restored_splits_that_are_read_one_after_the_other_hold_the_watermark(
    reader: EndlessReader, splits: int, expected: bool
) -> None:
    host: Any = Requests()
    feed = SourceTask(reader, [split(n) for n in range(splits)], SubtaskId(0, 0), host)
    assert feed.one_by_one is expected


def test_what_was_restored_is_caught_up_when_it_is_read_whatever_came_since() -> None:
    reader, host = OneByOne(), Requests()
    feed = SourceTask(reader, [split(1), split(2)], SubtaskId(0, 0), host)  # type: ignore[arg-type]
    assert not feed.caught_up
    reader.splits = [split(2), split(3)]
    feed.poll(10, 0)
    assert not feed.caught_up
    reader.splits = [split(3)]
    feed.poll(10, 1_000)
    assert feed.caught_up


def test_a_reader_that_knows_tells_how_far_it_is_behind() -> None:
    reader = EndlessReader()
    feed, _ = feed_of(reader)
    assert feed.backlog() is None
    reader.lag = [4, 0, 9]
    assert feed.backlog() == Backlog(rows=13, least=0, most=9, splits=3)


class FrontierReader(EndlessReader):
    """An endless reader whose frontier a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.passed = False

    def begin_frontier(self) -> None:
        self.begun += 1
        self.passed = False

    def frontier_passed(self) -> bool:
        return self.passed


def test_newer_levels_do_not_move_a_recorded_frontier() -> None:
    reader = FrontierReader()
    feed, _ = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.may_rise(100)
    feed.may_rise(300)
    feed.may_rise(200)
    assert (feed.risen(), feed.rises, reader.begun) == (None, True, 1)
    reader.passed = True
    assert (feed.risen(), reader.begun) == (100, 2)
    assert feed.risen() is None, "the next frontier is another one"
    reader.passed = True
    assert (feed.risen(), feed.risen(), feed.rises) == (300, None, False)


def test_splits_that_end_are_their_own_frontier() -> None:
    reader = OneByOne()
    feed, _ = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.may_rise(7)
    assert feed.risen() is None
    reader.splits = [split(2)]
    feed.poll(10, 0)
    assert feed.risen() == 7, "one that came later is past it"


def test_a_frozen_reader_that_has_read_what_was_there_is_past_any_frontier() -> None:
    """It reads no further, wherever its splits end now."""
    reader = FrontierReader()
    feed, _ = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.freeze()
    feed.may_rise(7)
    assert feed.risen() is None
    reader.idle = True
    assert feed.risen() == 7


@pytest.mark.parametrize("reader", [EndlessReader(), FrontierReader()])
def test_a_reader_without_splits_rises_at_once(reader: EndlessReader) -> None:
    feed, _ = feed_of(reader)
    feed.may_rise(7)
    assert feed.risen() == 7


def test_a_reader_that_may_rise_is_polled_at_once() -> None:
    """Some readers learn where their frontier is at the next poll."""
    reader = FrontierReader()
    feed, _ = feed_of(reader)
    feed.report(None, None)
    feed.assigned([split(1)])
    feed.poll(10, 0)
    assert feed.wake_at_ms is not None
    feed.may_rise(7)
    assert feed.wake_at_ms is None


@pytest.mark.parametrize("reader", [KafkaReader, RateReader, PythonSourceReader])
def test_every_reader_of_endless_splits_has_a_frontier(reader: type[SourceReader]) -> None:
    assert reader.frontier_passed is not SourceReader.frontier_passed
    endless = {one for one in _all_readers(SourceReader) if one.caught_up is not SourceReader.caught_up}
    assert {one for one in endless if one.__module__.startswith("penstock.connectors")} == {
        KafkaReader,
        RateReader,
        PythonSourceReader,
    }


def _all_readers(kind: type[SourceReader]) -> set[type[SourceReader]]:
    return {kind}.union(*map(_all_readers, kind.__subclasses__()))


def test_a_look_over_a_source_that_has_always_more_is_answered_when_its_rows_have_been_processed() -> None:
    reader = RateReader(rows_per_second=1000, ramp_up_s=0)
    feed, host = feed_of(reader)
    feed.report(None, None)
    feed.assigned([Split("0", {"partition": 0, "partitions": 1, "start_ms": 0})])
    feed.poll_again(7)
    feed.report(None, None)
    assert feed.poll(400, 500.0) is not None
    feed.report(None, None)
    assert not feed.releases(500.0), "101 rows of the look are left"
    assert feed.poll(400, 505.0) is not None
    assert feed.releases(505.0), "functions yield what they hold of it"
    feed.report(None, None, holds_rows=True)
    assert host.polls == []
    feed.report(None, None)
    assert host.polls == [7]
    assert not reader.caught_up()
    assert not feed.releases(505.0)
