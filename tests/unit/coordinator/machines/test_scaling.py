"""Parallelism of a query: requests one after the other, and the slots that the cluster has."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.coordinator.machines.scaling import OCCUPIED_MS, POLL_MS, STARTING_POLL_MS, Scaling
from penstock.coordinator.scaler import Scaler
from penstock.errors import CheckpointFailed, QueryFailed, ResourceError


@dataclass
class Slots:
    """Stands for ``GenerationSlots``."""

    generation: int
    runs: bool = True
    complete: bool = True


class Query:
    """A query of two slots on a cluster of eight; also its launcher."""

    def __init__(self, parallelism: int = 2, may_shrink: bool = True, patience_ms: float = 1_000) -> None:
        self.total = self.usable = 8
        self.snapshots: list[Future[Any]] = []
        self.begun: list[str] = []
        self.current: Any = Slots(1)
        self.scaling = Scaling(parallelism, 128, may_shrink=may_shrink, patience_ms=patience_ms)
        self.scaler = Scaler(self.scaling, self, self.snapshots.append, self.begun.append)  # type: ignore[arg-type]

    def usable_slots(self) -> int:
        return self.usable

    def total_slots(self) -> int:
        return self.total

    def rescale(self, parallelism: int) -> Future[None]:
        future: Future[None] = Future()
        self.scaler.rescale(parallelism, future, self.current)
        return future

    def begins_again(self) -> None:
        """Start anew like the coordinator: the Generation is given up, and the next one runs."""
        self.current, before = None, self.current
        self.scaling.generation_ended()
        self.current = Slots(before.generation + 1)
        self.scaler.running(self.current)


def test_a_wish_is_met_when_the_next_generation_runs() -> None:
    query = Query()
    wish = query.rescale(4)
    assert (query.scaling.parallelism, query.scaling.is_rescaling, query.begun) == (2, True, [])
    query.snapshots[0].set_result(None)
    assert (query.scaling.parallelism, query.scaling.is_rescaling, query.begun) == (4, False, ["rescaled to 4"])
    assert not wish.done()
    query.begins_again()
    assert wish.result(0) is None


def test_of_two_wishes_the_later_one_counts_and_both_are_told() -> None:
    query = Query()
    first, second = query.rescale(4), query.rescale(3)
    assert len(query.snapshots) == 1, "one snapshot serves both"
    query.snapshots[0].set_result(None)
    query.begins_again()
    assert query.scaling.parallelism == 3
    assert first.done()
    assert second.done()


def test_a_wish_that_comes_when_the_generation_is_given_up_or_begun_counts_too() -> None:
    query = Query()
    query.rescale(4)
    query.snapshots[0].set_result(None)
    late = query.rescale(1)  # behind the snapshot
    query.begins_again()
    assert query.scaling.parallelism == 1
    assert late.done()
    query.current = Slots(3, runs=False)
    starting = query.rescale(2)
    query.current.runs = True
    query.scaler.running(query.current)
    query.snapshots[-1].set_result(None)
    query.begins_again()
    assert starting.done()
    assert query.scaling.parallelism == 2


def test_without_a_generation_the_next_one_has_it_at_once() -> None:
    query = Query()
    query.current = None
    wish = query.rescale(1)
    assert (query.scaling.parallelism, query.snapshots) == (1, [])
    query.scaler.running(Slots(2))  # type: ignore[arg-type]
    assert wish.done()


def test_a_generation_that_fails_before_its_snapshot_makes_room_all_the_same() -> None:
    query = Query()
    wish = query.rescale(4)
    query.scaling.generation_ended()
    query.snapshots[0].set_exception(CheckpointFailed("the Generation ended"))
    assert query.scaling.parallelism == 4
    query.scaler.running(Slots(2))  # type: ignore[arg-type]
    assert wish.done()


def test_a_snapshot_that_cannot_be_taken_leaves_everything_as_it_is() -> None:
    query = Query()
    wish = query.rescale(4)
    query.snapshots[0].set_exception(CheckpointFailed("no space"))
    with pytest.raises(CheckpointFailed, match="not rescaled to 4: no space"):
        wish.result(0)
    assert (query.scaling.parallelism, query.scaling.requested, query.begun) == (2, 2, [])


def test_it_shrinks_when_patience_is_over_and_grows_when_slots_were_free_for_two_looks() -> None:
    query = Query(4)
    query.usable = 3
    assert not query.scaler.short_of_slots(0)
    assert not query.scaler.short_of_slots(900)
    assert query.scaler.short_of_slots(1_000)
    assert (query.scaling.parallelism, query.scaling.requested) == (3, 4)
    query.scaler.running(query.current)
    query.usable = 4
    now_ms = 2_000.0
    query.scaler.poll(query.current, now_ms)
    query.scaler.poll(query.current, now_ms + 1)
    assert query.snapshots == [], "one look is not two"
    query.scaler.poll(query.current, now_ms + POLL_MS)
    query.snapshots[0].set_exception(CheckpointFailed("no space"))
    assert query.scaling.requested == 4, "later, then"
    query.scaler.poll(query.current, now_ms + 2 * POLL_MS)
    query.snapshots[1].set_result(None)
    assert (query.scaling.parallelism, query.begun) == (4, ["rescaled to 4"])


@pytest.mark.parametrize(("may_shrink", "usable"), [(False, 3), (True, 0), (True, 4)])
def test_it_does_not_shrink_where_it_must_not_or_need_not(may_shrink: bool, usable: int) -> None:
    query = Query(4, may_shrink)
    query.usable = usable
    assert not query.scaler.short_of_slots(0)
    assert not query.scaler.short_of_slots(10_000)
    query.current = Slots(1, runs=False, complete=False)
    query.scaler.poll(query.current, 20_000)
    assert (query.scaling.parallelism, query.begun) == (4, [])


def test_a_generation_that_waits_for_slots_too_long_is_given_up_for_fewer() -> None:
    query = Query(4)
    query.current = Slots(1, runs=False, complete=False)
    query.usable = 2
    query.scaler.poll(query.current, 0)
    query.scaler.poll(query.current, 900)
    assert query.begun == []
    query.scaler.poll(query.current, 1_000)
    assert (query.scaling.parallelism, query.scaling.requested) == (2, 4)
    assert query.begun == ["it continues with 2 slots"]
    query.begins_again()
    query.usable = 4
    query.scaler.poll(query.current, 1_000 + POLL_MS)
    assert query.snapshots == [], "one look is not two"
    query.scaler.poll(query.current, 1_000 + 2 * POLL_MS)
    query.snapshots[0].set_result(None)
    assert query.scaling.parallelism == 4


def test_the_cluster_is_asked_now_and_then_only() -> None:
    query = Query(4)
    query.current = Slots(1, runs=False, complete=False)
    query.usable = 0
    query.scaler.poll(query.current, 0)
    query.scaler.poll(query.current, 1_000)
    query.usable = 2
    query.scaler.poll(query.current, 1_000 + STARTING_POLL_MS - 1)
    assert query.scaling.parallelism == 4
    query.scaler.poll(query.current, 1_000 + STARTING_POLL_MS)
    assert query.scaling.parallelism == 2


@pytest.mark.parametrize("begun", [True, False], ids=["a Generation waits for slots", "none can be started"])
@pytest.mark.parametrize(("lost", "after_ms"), [(0, OCCUPIED_MS), (6, 10_000.0)], ids=["occupied", "lost"])
def test_slots_that_other_jobs_occupy_are_waited_for_less_long_than_lost_ones(
    begun: bool, lost: int, after_ms: float
) -> None:
    query = Query(4, patience_ms=10_000)
    query.scaler.running(query.current)
    query.current = Slots(2, runs=False, complete=False)
    query.total, query.usable = 8 - lost, 2

    def shrinks(now_ms: float) -> bool:
        if not begun:
            return query.scaler.short_of_slots(now_ms)
        query.scaler.poll(query.current, now_ms)
        return bool(query.begun)

    waited = [now_ms for now_ms in range(0, 20_000, 100) if shrinks(float(now_ms))]
    assert waited[0] == after_ms
    assert (query.scaling.parallelism, query.scaling.requested) == (2, 4)


def test_lost_slots_that_return_in_time_cost_no_rescale_though_other_jobs_occupy_some_too() -> None:
    query = Query(5, patience_ms=10_000)
    query.scaler.running(query.current)
    query.current = Slots(2, runs=False, complete=False)
    query.total, query.usable = 6, 4
    for now_ms in range(0, 9_000, 100):
        query.scaler.poll(query.current, float(now_ms))
    query.total, query.usable = 8, 6
    for now_ms in range(9_000, 20_000, 100):
        query.scaler.poll(query.current, float(now_ms))
    assert (query.scaling.parallelism, query.begun) == (5, [])


@pytest.mark.parametrize(("may_shrink", "patience_ms", "after_ms"), [(False, 10_000, None), (True, 500, 500.0)])
def test_occupied_slots_are_waited_for_no_longer_than_lost_ones_or_for_ever_where_it_must_not_shrink(
    may_shrink: bool, patience_ms: float, after_ms: float | None
) -> None:
    query = Query(4, may_shrink, patience_ms)
    query.usable = 1
    waited = [float(now_ms) for now_ms in range(0, 20_000, 100) if query.scaler.short_of_slots(float(now_ms))]
    assert waited[:1] == ([] if after_ms is None else [after_ms])


def test_a_query_that_scales_down_again_waits_for_two_looks_again() -> None:
    query = Query(4)
    now_ms = 0.0
    for times in (1, 2):
        query.usable = 2
        assert not query.scaler.short_of_slots(now_ms)
        assert query.scaler.short_of_slots(now_ms + 1_000)
        query.begins_again()
        query.usable = 4
        query.scaler.poll(query.current, now_ms + POLL_MS)
        assert len(query.snapshots) == times - 1, "one look is not two"
        query.scaler.poll(query.current, now_ms + 2 * POLL_MS)
        query.snapshots[-1].set_result(None)
        query.begins_again()
        assert query.scaling.parallelism == 4
        now_ms += 3 * POLL_MS


def test_a_generation_that_has_its_slots_is_not_given_up_for_fewer() -> None:
    query = Query(4)
    query.current = Slots(1, runs=False)
    query.usable = 2
    query.scaler.poll(query.current, 0)
    query.scaler.poll(query.current, 10_000)
    assert (query.scaling.parallelism, query.begun) == (4, [])
    query.scaling.requested, query.usable = 5, 8
    query.scaler.poll(query.current, 20_000)
    query.scaler.poll(query.current, 30_000)
    assert query.snapshots == [], "nothing runs yet of which a snapshot could be taken"


def test_a_rescale_whose_slots_do_not_come_says_what_the_query_continues_with() -> None:
    query = Query()
    wish = query.rescale(4)
    query.snapshots[0].set_result(None)
    query.current = Slots(2, runs=False, complete=False)
    query.usable = 3
    query.scaler.poll(query.current, 0)
    assert not wish.done()
    query.scaler.poll(query.current, 1_000)
    with pytest.raises(ResourceError, match=r"not rescaled to 4: only 3 slots .*with 4 once they are free"):
        wish.result(0)
    query.begins_again()
    assert (query.scaling.parallelism, query.scaling.requested, query.snapshots[1:]) == (3, 4, [])


def test_a_generation_that_waits_for_slots_is_rescaled_without_a_snapshot() -> None:
    query = Query(4)
    query.current = Slots(1, runs=False, complete=False)
    wish = query.rescale(2)
    assert (query.snapshots, query.begun) == ([], ["rescaled to 2"])
    query.begins_again()
    assert query.scaling.parallelism == 2
    assert wish.done()


def test_a_rescale_to_more_slots_than_others_leave_is_refused() -> None:
    query = Query()
    query.usable = 3
    with pytest.raises(ResourceError, match="to 4: 3 slots are there"):
        query.rescale(4).result(0)
    assert (query.scaling.requested, query.snapshots) == (2, [])


def test_when_the_query_ends_nobody_waits_on() -> None:
    query = Query()
    wish = query.rescale(4)
    query.scaler.query_ended(None)
    with pytest.raises(QueryFailed, match="has ended"):
        wish.result(0)
