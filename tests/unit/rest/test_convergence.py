"""A query that is not what it is to be says what it does about that; operations tell how far they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.coordinator.view import CheckpointState, CheckpointView, ExecutionState, SlotView
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Operation, OperationState, Outcome, Verb
from penstock.queries.snapshot_operations import SnapshotOrder
from penstock.rest.models import Alignment, CheckpointSpec, QuerySpec, WantedState
from penstock.rest.routes_changes import operation_of
from penstock.rest.status_message import describe, has_converged
from tests.support.queries.query_running import eventually
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Client

RECOVERING = "Recovering as generation 4"
USUALLY = {
    ExecutionState.RUNNING: "Processing new data",
    ExecutionState.RESTARTING: RECOVERING,
    ExecutionState.SUSPENDED: "Suspended: no slots are taken until it is resumed",
    ExecutionState.FAILED: "Terminated with exception: no\nmore of it",
}
QUERY = MadeUpQuery(vertices=2, parallelism=2, checkpoints=3).facts()


def find_query(state: str, parallelism: int, running: int | None, /, **changes: Any) -> QueryFacts:
    """``running``: slots that run, of those that are known; None: none is known yet."""
    now = ExecutionState(state)
    slots = tuple(SlotView(n, "host", 40 + n, n < running) for n in range(parallelism)) if running is not None else ()
    view = replace(QUERY.view, state=now, parallelism=parallelism, slots=slots)
    requested = replace(QUERY.requested, **{"parallelism": parallelism} | changes)
    return replace(QUERY, view=view, requested=requested, message=USUALLY.get(now, "something else"))


def spec_of(state: str, parallelism: int) -> QuerySpec:
    checkpoint = CheckpointSpec(interval_ms=1000, alignment=Alignment.AUTO)
    return QuerySpec(state=WantedState(state), parallelism=parallelism, checkpoint=checkpoint)


RUNS, FEWER, MORE = find_query("running", 2, 2), find_query("running", 3, 3), find_query("running", 1, 1)
LEAVES = find_query("running", 2, 2, parallelism=8, is_rescaling=True)
BEGINS = find_query("starting", 8, 3)
SHORT = find_query("running", 2, 2, parallelism=3)
ENDS = find_query("running", 2, 1)


@pytest.mark.parametrize(
    ("facts", "state", "parallelism", "verbs", "said"),
    [
        (RUNS, "running", 2, [], "Processing new data"),
        (RUNS, "running", 2, [Verb.SNAPSHOT], "Processing new data"),
        (RUNS, "running", 8, [Verb.RESCALE], "Taking a snapshot to go on from at parallelism 8"),
        (LEAVES, "running", 8, [], "Taking a snapshot to go on from at parallelism 8"),
        (FEWER, "running", 2, [], "Taking a snapshot to go on from at parallelism 2"),
        (find_query("starting", 8, None), "running", 8, [], "Starting at parallelism 8: 0 of 8 slots run"),
        (BEGINS, "running", 8, [Verb.RESCALE], "Starting at parallelism 8: 3 of 8 slots run"),
        (BEGINS, "suspended", 8, [Verb.SUSPEND], "Starting at parallelism 8: 3 of 8 slots run"),
        (find_query("restarting", 2, 1), "running", 2, [], f"{RECOVERING}: 1 of 2 slots run"),
        (SHORT, "running", 3, [], "Runs on 2 of 3 slots: waiting for 1 more to be free"),
        (RUNS, "suspended", 2, [Verb.SUSPEND], "Taking the last snapshot before it is suspended"),
        (ENDS, "suspended", 2, [Verb.SUSPEND], "Giving its slots back"),
        (find_query("suspended", 2, None), "suspended", 2, [], USUALLY[ExecutionState.SUSPENDED]),
        (find_query("suspended", 2, None), "running", 2, [Verb.RESUME], "Beginning again from its snapshot"),
        (RUNS, "stopped", 2, [Verb.STOP], "Stopping"),
        (BEGINS, "stopped", 2, [Verb.STOP, Verb.RESCALE], "Stopping"),
        (find_query("failed", 2, None), "stopped", 2, [], "Terminated with exception: no"),
    ],
)  # fmt: skip
def test_the_difference_is_told_in_a_sentence(
    facts: QueryFacts, state: str, parallelism: int, verbs: Sequence[Verb], said: str
) -> None:
    assert describe(facts, spec_of(state, parallelism), verbs) == said


def test_only_a_query_that_is_all_that_it_is_to_be_has_converged() -> None:
    assert has_converged(RUNS.view, spec_of("running", 2))
    assert has_converged(find_query("suspended", 2, None).view, spec_of("suspended", 8)), "it counts when it is resumed"
    for facts, state, parallelism in ((RUNS, "running", 8), (BEGINS, "running", 8), (RUNS, "suspended", 2)):
        assert not has_converged(facts.view, spec_of(state, parallelism))


def operation(verb: Verb, parallelism: int | None = None, request: object = None) -> Operation:
    began_ms = QUERY.view.checkpoints[-1].triggered_ms + 1
    return Operation("op", QUERY.id, QUERY.run_id, verb, parallelism, OperationState.RUNNING, began_ms, request=request)


@pytest.mark.parametrize(
    ("operation", "facts", "counts"),
    [
        (operation(Verb.RESCALE, 8), RUNS, (0, 8)),
        (operation(Verb.RESCALE, 8), find_query("starting", 8, None), (0, 8)),
        (operation(Verb.RESCALE, 8), BEGINS, (3, 8)),
        (operation(Verb.RESUME), find_query("suspended", 2, None), (0, 2)),
        (operation(Verb.RESUME), find_query("starting", 2, 1), (1, 2)),
        (operation(Verb.SUSPEND), RUNS, (0, 2)),
        (operation(Verb.SUSPEND), ENDS, (1, 2)),
        (operation(Verb.SUSPEND), find_query("suspended", 2, None), (2, 2)),
        (operation(Verb.SUSPEND), find_query("restarting", 2, None), (0, 2)),
        (operation(Verb.STOP), ENDS, (1, 2)),
        (operation(Verb.STOP), find_query("starting", 2, 0), (0, 2)),
        (operation(Verb.DELETE_SNAPSHOT), RUNS, (0, 1)),
    ],
)
def test_operations_tell_how_far_they_are(
    operation: Operation, facts: QueryFacts, counts: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [facts])
    monkeypatch.setattr(OPERATIONS, "_operations", {operation.id: operation})
    progress = operation_of(operation).progress
    assert progress is not None
    assert (progress.done, progress.total) == counts
    assert progress.message not in ("", "Processing new data")


def of_snapshot(order: SnapshotOrder, *checkpoints: CheckpointView, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    facts = replace(RUNS, view=replace(RUNS.view, checkpoints=(*QUERY.view.checkpoints, *checkpoints)))
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [facts])
    progress = operation_of(operation(Verb.SNAPSHOT, request=order)).progress
    assert progress is not None
    return progress.message, progress.done, progress.total


def test_a_snapshot_is_as_far_as_the_slots_that_acknowledged_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    order = SnapshotOrder("mine", "", None, None, "native")
    newest = QUERY.view.checkpoints[-1]

    def checkpoint(number: int, state: str, acknowledged: int, requested: bool = True) -> CheckpointView:
        return replace(
            newest, checkpoint=number, state=CheckpointState(state), acknowledged=acknowledged, requested=requested,
            label="mine" if requested else "", triggered_ms=newest.triggered_ms + 1 + number,
        )  # fmt: skip

    def told(*checkpoints: CheckpointView, order: SnapshotOrder = order) -> tuple[Any, ...]:
        return of_snapshot(order, *checkpoints, monkeypatch=monkeypatch)

    assert told() == ("Taking a snapshot", 0, 2)
    assert told(checkpoint(4, "pending", 1, requested=False)) == ("Taking a snapshot", 0, 2)
    assert told(checkpoint(4, "pending", 1)) == ("Taking a snapshot", 1, 2)
    assert told(checkpoint(4, "pending", 1), order=replace(order, label="")) == ("Taking a snapshot", 0, 2)
    assert told(checkpoint(4, "failed", 1)) == ("Taking a snapshot", 0, 2)
    assert told(checkpoint(4, "complete", 2), checkpoint(5, "pending", 1)) == ("Taking a snapshot", 1, 2)
    assert told(replace(checkpoint(4, "pending", 1), triggered_ms=0)) == ("Taking a snapshot", 0, 2), "one of before"
    portable = replace(order, format="portable")
    assert told(checkpoint(4, "complete", 2), order=portable) == (
        "Writing the snapshot in its portable form, too", 2, 2,
    )  # fmt: skip


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_whoever_has_lost_an_operation_finds_it(client: Client, known_query: str, go_on: threading.Event) -> None:
    def wait() -> Outcome:
        assert go_on.wait(30)
        return Outcome("chk-1")

    def under_way() -> Any:
        return client.get(f"/api/v1/queries/{known_query}").json["status"]["operations"]

    assert under_way() == []
    begun = OPERATIONS.begin_snapshots(Verb.FORK_SNAPSHOT, known_query, QUERY.run_id, wait, key="there")
    assert begun is not None
    assert OPERATIONS.begin_snapshots(Verb.FORK_SNAPSHOT, "another query", "run", wait, key="elsewhere") is not None
    assert under_way() == [{"id": begun.id, "verb": "fork-snapshot", "began_at_ms": begun.began_ms}]
    assert client.get(f"/api/v1/operations/{begun.id}").json["state"] == "running"
    go_on.set()
    eventually(lambda: under_way() == [], "the operation to end")


def test_a_failed_query_is_what_its_spec_says_and_on_no_way() -> None:
    failed = find_query("failed", 2, None)
    assert has_converged(failed.view, spec_of("stopped", 2))
    assert not has_converged(failed.view, spec_of("running", 2))
