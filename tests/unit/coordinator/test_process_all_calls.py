"""Futures of the calls of ``processAllAvailable``."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from penstock.coordinator.machines.checkpoint_events import SnapshotRequest
from penstock.coordinator.process_all_calls import ProcessAllCalls
from penstock.errors import FunctionError, QueryFailed
from penstock.model.manifest import SnapshotMetadata
from tests.support.coordinator.coordinator_kit import discover


class Calls(ProcessAllCalls):
    """Calls of a query with one source; snapshots are not taken."""

    def __init__(self) -> None:
        self.snapshots: list[Future[SnapshotMetadata]] = []
        super().__init__([0], 0, self.take)

    def take(self, future: Future[SnapshotMetadata], request: SnapshotRequest) -> None:
        self.snapshots.append(future)

    def call(self) -> Future[None]:
        future: Future[None] = Future()
        self.add(future)
        return future

    def covered(self) -> Future[None]:
        """A call whose checkpoint is requested."""
        future = self.call()
        discover(self.tracker)
        assert self.tracker.begin_checkpoint(is_idle=True)
        return future


def test_a_call_returns_when_its_epoch_is_committed() -> None:
    calls = Calls()
    future, later = calls.covered(), calls.call()
    calls.tracker.checkpoint_completed(3)
    calls.committed(2)
    assert not future.done()
    calls.committed(3)
    assert future.result() is None
    assert not later.done()


def test_the_end_of_all_input_completes_every_call() -> None:
    calls = Calls()
    covered, waiting = calls.covered(), calls.call()
    calls.all_committed()
    calls.query_ended(FunctionError("count", "too late"))
    assert [future.result() for future in (covered, waiting)] == [None, None]


@pytest.mark.parametrize("suspended", [False, True])
def test_a_stop_completes_every_call_and_a_suspension_fails_it(suspended: bool) -> None:
    calls = Calls()
    covered, waiting = calls.covered(), calls.call()
    calls.query_ended(None, suspended=suspended)
    for future in (covered, waiting):
        if suspended:
            with pytest.raises(QueryFailed, match="suspended before"):
                future.result()
        else:
            assert future.result() is None


def test_the_failure_of_the_query_fails_all_calls() -> None:
    calls = Calls()
    covered, waiting = calls.covered(), calls.call()
    cause = FunctionError("count", "ValueError: 3")
    calls.query_ended(cause)
    for future in (covered, waiting):
        with pytest.raises(QueryFailed, match="ValueError: 3") as raised:
            future.result()
        assert raised.value.__cause__ is cause
