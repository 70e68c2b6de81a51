"""When everything available is committed: the order of looks, the checkpoint and the commit."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from penstock.coordinator.machines.splits import Discover
from penstock.coordinator.process_all_available import ProcessAllAvailable
from penstock.errors import CheckpointFailed, FunctionError, QueryFailed
from penstock.model.manifest import SnapshotMetadata


def look(demands: ProcessAllAvailable, vertex: int = 0) -> None:
    """One look at a source, from its command to its end."""
    demands.issued(Discover(1, vertex, None))
    demands.executed(Discover(1, vertex, None))


def completed(checkpoint: int) -> Future[SnapshotMetadata]:
    future: Future[SnapshotMetadata] = Future()
    future.set_result(
        SnapshotMetadata(1, f"chk-{checkpoint}", "q", 1, checkpoint, "aligned", False, "", 0, 1, 128, [], [])
    )
    return future


def refused() -> Future[SnapshotMetadata]:
    future: Future[SnapshotMetadata] = Future()
    future.set_exception(CheckpointFailed("the disk is full"))
    return future


def demanded(demands: ProcessAllAvailable) -> Future[None]:
    future: Future[None] = Future()
    demands.add(future)
    return future


def test_a_look_that_began_before_the_demand_does_not_count() -> None:
    demands = ProcessAllAvailable([0])
    demands.issued(Discover(1, 0, None))
    future = demanded(demands)
    demands.executed(Discover(1, 0, None))
    assert not demands.wants_checkpoint(dry=True)
    look(demands)
    assert not demands.wants_checkpoint(dry=False)
    assert demands.wants_checkpoint(dry=True)
    assert not demands.wants_checkpoint(dry=True)
    demands.checkpoint_ended(completed(5))
    demands.committed(4)
    assert not future.done()
    demands.committed(5)
    assert future.result() is None


def test_every_source_has_to_be_looked_at() -> None:
    demands = ProcessAllAvailable([0, 3])
    demanded(demands)
    look(demands, 0)
    assert not demands.wants_checkpoint(dry=True)
    look(demands, 3)
    assert demands.wants_checkpoint(dry=True)


def test_a_source_whose_discovery_is_finished_is_not_looked_at_any_more() -> None:
    demands = ProcessAllAvailable([0, 3])
    future = demanded(demands)
    look(demands, 3)
    assert not demands.wants_checkpoint(dry=True, finished=(3,))
    assert demands.wants_checkpoint(dry=True, finished=(0,))
    demands.checkpoint_ended(completed(2))
    demands.committed(2)
    assert future.done()


def test_the_end_of_all_input_meets_every_demand() -> None:
    demands = ProcessAllAvailable([0])
    covered, waiting = demanded(demands), demanded(demands)
    look(demands)
    assert demands.wants_checkpoint(dry=True)
    late = demanded(demands)
    demands.all_committed()
    demands.query_ended(None)
    assert [future.result() for future in (covered, waiting, late)] == [None] * 3


def test_a_stop_ends_every_wait_and_a_suspension_fails_it() -> None:
    for suspended in (False, True):
        demands = ProcessAllAvailable([0])
        covered = demanded(demands)
        look(demands)
        assert demands.wants_checkpoint(dry=True)
        waiting = demanded(demands)
        demands.query_ended(None, suspended=suspended)
        for future in (covered, waiting):
            if suspended:
                with pytest.raises(QueryFailed, match="suspended before"):
                    future.result()
            else:
                assert future.result() is None


def test_a_demand_made_while_a_checkpoint_is_out_waits_for_the_next() -> None:
    demands = ProcessAllAvailable([0])
    first = demanded(demands)
    look(demands)
    assert demands.wants_checkpoint(dry=True)
    second = demanded(demands)
    look(demands)
    assert not demands.wants_checkpoint(dry=True)
    demands.checkpoint_ended(completed(1))
    demands.committed(1)
    assert first.done()
    assert not second.done()
    assert demands.wants_checkpoint(dry=True)


@pytest.mark.parametrize("lost", [True, False])
def test_a_checkpoint_that_fails_or_crosses_a_failure_does_not_meet_the_demand(lost: bool) -> None:
    demands = ProcessAllAvailable([0])
    future = demanded(demands)
    look(demands)
    assert demands.wants_checkpoint(dry=True)
    if lost:
        demands.generation_failed()  # the request waits for the next Generation, which has not read anything yet
        demands.checkpoint_ended(completed(7))
    else:
        demands.checkpoint_ended(refused())
    demands.committed(7)
    assert not future.done()
    assert not demands.wants_checkpoint(dry=True)
    look(demands)
    assert demands.wants_checkpoint(dry=True)
    demands.checkpoint_ended(completed(8))
    demands.committed(8)
    assert future.done()


def test_the_end_of_the_query_answers_all_demands() -> None:
    demands = ProcessAllAvailable([0])
    covered, waiting = demanded(demands), demanded(demands)
    look(demands)
    demands.wants_checkpoint(dry=True)
    cause = FunctionError("count", "ValueError: 3")
    demands.query_ended(cause)
    for future in (covered, waiting):
        with pytest.raises(QueryFailed, match="ValueError: 3") as raised:
            future.result()
        assert raised.value.__cause__ is cause


def test_every_reader_has_to_look_once_more() -> None:
    demands = ProcessAllAvailable([0, 3], readers=2)
    assert demands.look_to_ask_for() is None
    future = demanded(demands)
    number = demands.look_to_ask_for()
    assert number is not None
    assert demands.look_to_ask_for() is None, "asked once"
    look(demands, 0)
    look(demands, 3)
    for vertex, index in ((0, 0), (0, 1), (3, 0)):
        demands.poll_completed(vertex, index, number)
    assert not demands.wants_checkpoint(dry=True)
    demands.poll_completed(3, 1, number - 1)
    assert not demands.wants_checkpoint(dry=True), "a look that was asked for earlier"
    demands.poll_completed(3, 1, number)
    assert demands.wants_checkpoint(dry=True)
    demands.checkpoint_ended(completed(2))
    demands.committed(2)
    assert future.done()


def test_a_later_demand_asks_for_a_later_look() -> None:
    demands = ProcessAllAvailable([0], readers=1)
    demanded(demands)
    first = demands.look_to_ask_for()
    demanded(demands)
    second = demands.look_to_ask_for()
    assert first is not None
    assert second is not None
    assert second > first
    look(demands)
    demands.poll_completed(0, 0, first)
    assert demands.wants_checkpoint(dry=True), "for the first demand"
    assert not demands.wants_checkpoint(dry=True)


def test_readers_are_asked_anew_after_a_failure() -> None:
    demands = ProcessAllAvailable([0], readers=1)
    demanded(demands)
    number = demands.look_to_ask_for()
    assert number is not None
    demands.poll_completed(0, 0, number)
    demands.generation_failed()
    look(demands)
    assert not demands.wants_checkpoint(dry=True), "the reader that answered is gone"
    assert demands.look_to_ask_for() == number
    demands.poll_completed(0, 0, number)
    assert demands.wants_checkpoint(dry=True)
