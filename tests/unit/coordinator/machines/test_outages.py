"""Outages: which events begin, continue and end the outage of what."""

from __future__ import annotations

from penstock.coordinator.machines.outages import (
    CHECKPOINTS,
    GENERATIONS,
    LOCATION,
    LocationLost,
    OutageFailed,
    OutageOver,
    OutageTracker,
)
from penstock.coordinator.machines.restarts import RestartPolicy, Retries


def tracker(attempts: int = 1) -> OutageTracker:
    return OutageTracker(Retries(RestartPolicy(attempts=attempts, delay_ms=1000, max_delay_ms=1000)))


def test_a_completed_checkpoint_ends_the_outage_of_the_location_before_the_next_check() -> None:
    machine = tracker()
    (failed,) = machine.checkpoint_failed(2, "its metadata cannot be written")
    assert isinstance(failed, OutageFailed)
    assert (failed.name, failed.checkpoint) == (CHECKPOINTS, 2)
    assert machine.location_check_due(50.0)
    assert not machine.location_check_due(50.0), "one check at a time"
    assert machine.location_checked("the location is gone", 100.0) == [OutageFailed(LOCATION, "the location is gone")]
    assert not machine.location_check_due(1099.0)
    assert machine.checkpoint_completed(0) == [OutageOver(LOCATION), OutageOver(CHECKPOINTS), OutageOver(GENERATIONS)]
    assert not machine.location_check_due(1101.0), "the checkpoint has shown that the location exists"
    machine.checkpoint_failed(3, "again")
    assert len(machine.location_checked("it is gone again", 2000.0)) == 1, "a later outage has all its retries"


def test_a_location_that_stays_away_ends_the_query_when_the_retries_are_used_up() -> None:
    machine = tracker()
    machine.checkpoint_failed(1, "no such directory")
    assert len(machine.location_checked("the location is gone", 0.0)) == 1
    failed, lost = machine.location_checked("the location is gone", 1000.0)
    assert failed == OutageFailed(LOCATION, "the location is gone")
    assert isinstance(lost, LocationLost)
    assert "the location is gone (2 failures in 1 s). What was committed stays" in str(lost.error)


def test_an_existing_location_needs_no_further_check() -> None:
    machine = tracker()
    machine.checkpoint_failed(1, "the disk is full")
    assert machine.location_check_due(0.0)
    assert machine.location_checked("", 0.0) == [OutageOver(LOCATION)]
    assert not machine.location_check_due(10_000.0)


def test_a_commit_ends_the_outage_of_its_sink_and_no_other() -> None:
    machine = tracker()
    (failed,) = machine.commit_failed("files", 7, "no space")
    assert failed == OutageFailed("sink files", "epoch 7: no space")
    assert machine.committed("table") == [OutageOver("sink table")]
    assert machine.committed("files") == [OutageOver("sink files")]


def test_a_failed_generation_is_over_with_the_first_checkpoint_that_is_progress() -> None:
    machine = tracker()
    (failed,) = machine.generation_failed("slot 1 was lost")
    assert isinstance(failed, OutageFailed)
    assert failed.is_logged
    assert OutageOver(GENERATIONS) not in machine.checkpoint_completed(restarts=1)
    assert OutageOver(GENERATIONS) in machine.checkpoint_completed(restarts=0)
