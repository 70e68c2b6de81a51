"""Queue of requests for snapshots: order, bound and time-outs."""

from __future__ import annotations

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.coordinator.machines.snapshot_requests import MAX_REQUESTS, SnapshotRequests
from tests.support.coordinator.coordinator_kit import UNALIGNED


def request(ticket: int, timeout_ms: int | None = None, planned: bool = False) -> SnapshotRequested:
    return SnapshotRequested(UNALIGNED, timeout_ms=timeout_ms, planned=planned, ticket=ticket)


def tickets(queue: SnapshotRequests) -> list[int]:
    return [one.request.ticket for one in queue]


def test_the_request_of_a_planned_batch_comes_first() -> None:
    queue = SnapshotRequests()
    for each in (request(1), request(2, planned=True), request(3)):
        assert queue.add(each, 0.0) == []
    assert tickets(queue) == [2, 1, 3]
    queue.drop_planned()
    assert tickets(queue) == [1, 3]


def test_a_full_queue_refuses_a_request() -> None:
    queue = SnapshotRequests()
    for ticket in range(MAX_REQUESTS):
        queue.add(request(ticket), 0.0)
    [refused] = queue.add(request(MAX_REQUESTS), 0.0)
    assert refused.ticket == MAX_REQUESTS
    assert len(queue) == MAX_REQUESTS


def test_a_request_expires_with_its_own_time_out() -> None:
    queue = SnapshotRequests()
    queue.add(request(1, timeout_ms=100), 10.0)
    queue.add(request(2), 10.0)
    assert queue.deadlines_ms == [110.0]
    assert queue.expire(109.0) == []
    [expired] = queue.expire(110.0)
    assert (expired.ticket, expired.reason) == (1, "not triggered within 100 ms")
    assert tickets(queue) == [2]


def test_refusing_all_empties_the_queue() -> None:
    queue = SnapshotRequests()
    queue.add(request(1), 0.0)
    queue.add(request(2), 0.0)
    assert [one.ticket for one in queue.refuse("stopped")] == [1, 2]
    assert not queue
