"""The liveness oracle of event time fails for a reader that stays below the level, but not while its thread is busy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.coordinator.machines.splits import SplitAssigner, SplitsFound
from penstock.model.messages import AdvanceWatermark, AssignSplits, FromSlot, ReaderProgressed
from penstock.model.splits import Discovery, Split
from penstock.testing.failure import SimulationFailure
from simulator.cluster.driver import SimulatedDriver
from simulator.oracles.event_time import PATIENCE, EventTimeWatch

REPORTS = 2 * PATIENCE


def reader(busy_until_ms: float) -> SimpleNamespace:
    """Reader with nothing left to read, whose thread is busy until a given time."""
    subtask = SimpleNamespace(
        _source_task=SimpleNamespace(_unfinished=(), _paused=False),
        _chain=SimpleNamespace(holds_rows=False, advancing=False, is_settled=True),
        outputs=SimpleNamespace(has_room=True),
        inbox=(),
    )
    subtask._source_task._next_rise_us, subtask._source_task._reader = None, None
    subtask._chain.generated_watermark = lambda: None
    return SimpleNamespace(subtask=subtask, actor=SimpleNamespace(busy_until_ms=busy_until_ms))


def watched(busy_until_ms: float) -> tuple[EventTimeWatch, Any]:
    """Oracle for two readers of one source, with its clock. Reader 0 has a higher watermark than reader 1."""
    clock = SimpleNamespace(now_ms=0.0)
    slots = [
        SimpleNamespace(index=index, alive=True, runners={0: reader(until_ms)}, _from_driver=())
        for index, until_ms in enumerate((0.0, busy_until_ms))
    ]
    content = SimpleNamespace(rows_at=lambda now_ms: 0)
    driver = SimpleNamespace(
        current=SimpleNamespace(slots=slots),
        job=SimpleNamespace(assigners=[SplitAssigner(1, "source", 0, 2)], generation=1),
        sources={0: SimpleNamespace(content=content, endless=False)},
        world=SimpleNamespace(context=clock, settings=SimpleNamespace(clock="")),
    )
    watch = EventTimeWatch(cast("SimulatedDriver", driver))
    watch.reported(ReaderProgressed(0, 0, 245_000))
    return watch, clock


def report(watch: EventTimeWatch, watermark_us: int = 122_000) -> None:
    for _ in range(REPORTS):
        watch.reported(ReaderProgressed(0, 1, watermark_us))


def test_a_reader_that_stays_below_the_level_fails() -> None:
    watch, _ = watched(busy_until_ms=0.0)
    with pytest.raises(SimulationFailure, match=r"v0\[1\] stays at 122000"):
        report(watch)


def test_a_reader_at_the_level_passes() -> None:
    watch, _ = watched(busy_until_ms=0.0)
    report(watch, 245_000)


def test_a_reader_to_which_messages_are_under_way_is_waited_for() -> None:
    watch, _ = watched(busy_until_ms=0.0)
    slot = watch.driver.current.slots[1]  # type: ignore[union-attr]
    slot._from_driver = ("a message",)  # type: ignore[assignment]
    report(watch)
    slot._from_driver = ()  # type: ignore[assignment]
    with pytest.raises(SimulationFailure, match="stays at 122000"):
        report(watch)


def test_a_reader_whose_thread_works_on_rows_is_waited_for() -> None:
    watch, clock = watched(busy_until_ms=6_000.0)
    report(watch)
    clock.now_ms = 6_000.0
    with pytest.raises(SimulationFailure, match="stays at 122000"):
        report(watch)


def test_a_reader_that_may_rise_and_has_read_what_was_there_has_risen() -> None:
    watch, _ = watched(busy_until_ms=0.0)
    watch.commanded(AdvanceWatermark(0, 1, 245_000))
    watch.reported(ReaderProgressed(0, 1, 122_000))  # it has heard so: what is there now is noted
    with pytest.raises(SimulationFailure, match=r"v0\[1\] may rise to 245000 and stays at None"):
        watch.reported(ReaderProgressed(0, 1, 122_000))


@pytest.mark.parametrize("holds", ["rows", "split", ""])
def test_a_source_is_dry_only_if_no_reader_holds_rows(holds: str) -> None:
    watch, _ = watched(busy_until_ms=0.0)
    subtask = watch.driver.current.slots[1].runners[0].subtask  # type: ignore[union-attr]
    subtask._chain.holds_rows = holds == "rows"
    subtask._source_task._unfinished = (Split("s", {}),) if holds == "split" else ()  # type: ignore[union-attr]
    if not holds:
        watch.reported_idle(0)
        return
    with pytest.raises(SimulationFailure, match=r"v0 is idle, but v0\[1\] holds rows"):
        watch.reported_idle(0)


@pytest.mark.parametrize(("found_by", "passes"), [("before", False), ("first", False), ("second", True)])
def test_a_reader_that_may_rise_gets_no_split_that_was_there_before(found_by: str, passes: bool) -> None:
    watch, _ = watched(busy_until_ms=0.0)

    def look(split: str) -> None:
        watch.discovery_begins(0)
        watch.fed(SplitsFound(1, 0, Discovery([Split(split, {})], None)))

    look("before")
    watch.fed(FromSlot(1, ReaderProgressed(0, 0, 300_000)))
    look("first")
    look("second")
    watch.commanded(AdvanceWatermark(0, 1, 300_000))
    if passes:
        watch.commanded(AssignSplits(0, 1, (Split(found_by, {}),)))
        return
    with pytest.raises(SimulationFailure, match=f"may rise to 300000, and gets {found_by}, which was there before"):
        watch.commanded(AssignSplits(0, 1, (Split(found_by, {}),)))
