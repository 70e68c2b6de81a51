"""Sources under one watermark: which of them are lifted, how far, and that no look is overtaken."""

from __future__ import annotations

from penstock.connectors.base import Split
from penstock.protocol.elements import END_OF_TIME_US
from penstock.protocol.shared_clock import SharedClock
from penstock.protocol.splits import Discovered, Dry, LookAround, Progressed, Requested, SplitAssigner

ONE, OTHER = 0, 1


class Two:
    """Two sources with one reader each, and their clock."""

    def __init__(self) -> None:
        self.sources = [SplitAssigner(f"source-{vertex}", vertex, 1) for vertex in (ONE, OTHER)]
        self.clock = SharedClock(self.sources)
        self.now_ms = -1.0  # nobody looks before time begins, or right behind a look

    def looks(self, vertex: int) -> None:
        self.now_ms += 1_000
        assert self.sources[vertex].handle(LookAround(), self.now_ms)
        self.clock.look_begins(vertex)

    def finds(self, vertex: int, *splits: str) -> list[Dry]:
        found = Discovered([Split(each, {}) for each in splits], None)
        self.sources[vertex].handle(found, self.now_ms)
        return self.clock.look_ended(vertex)

    def idle(self, vertex: int, watermark_us: int | None = None) -> None:
        self.sources[vertex].handle(Requested(0, 0, watermark_us), self.now_ms)

    def reads(self, vertex: int, watermark_us: int) -> None:
        self.sources[vertex].handle(Progressed(0, watermark_us), self.now_ms)

    def nothing_in(self, vertex: int) -> list[Dry]:
        self.looks(vertex)
        return self.finds(vertex)


def test_when_all_is_read_all_stand_at_the_largest() -> None:
    two = Two()
    two.idle(ONE, 50)
    two.idle(OTHER, 80)
    assert two.nothing_in(ONE) == [], "it is not known that the other one is dry"
    assert not two.clock.settled
    assert two.nothing_in(OTHER) == [], "it is the one that has come farthest"
    assert not two.clock.settled
    assert two.nothing_in(ONE) == [Dry(ONE, 80)]
    assert two.clock.settled
    assert two.nothing_in(ONE) == [], "once"


def test_a_source_without_rows_is_lifted_to_where_the_others_are_reading() -> None:
    two = Two()
    two.idle(ONE)
    assert two.nothing_in(ONE) == []
    two.looks(OTHER)
    two.idle(OTHER)
    assert two.finds(OTHER, "a") == []
    assert two.nothing_in(ONE) == [], "nothing is known of it yet"
    two.reads(OTHER, 30)
    two.looks(ONE)
    two.reads(OTHER, 40)
    assert two.finds(ONE) == [Dry(ONE, 30)], "what came since this look began may be as old as that"
    assert two.nothing_in(ONE) == [Dry(ONE, 40)]
    assert not two.clock.settled


def test_a_look_that_finds_something_lifts_nobody() -> None:
    two = Two()
    two.idle(ONE, 10)
    two.idle(OTHER, 80)
    for vertex in (ONE, OTHER):
        two.nothing_in(vertex)
    two.looks(ONE)
    assert two.finds(ONE, "a") == []
    two.idle(ONE, 60)
    assert two.nothing_in(ONE) == [], "dry behind rows that no look has looked past"
    assert two.nothing_in(ONE) == [Dry(ONE, 80)]


def test_the_end_of_event_time_is_each_sources_own() -> None:
    two = Two()
    two.idle(ONE, END_OF_TIME_US)
    two.idle(OTHER, 80)
    for vertex in (ONE, OTHER, ONE, OTHER):
        assert two.nothing_in(vertex) == []
    assert two.clock.settled
