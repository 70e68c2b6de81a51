"""Shrinking as a search: what it tries, keeps and refuses. Whole schedules are shrunk in ``test_command``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulator.jobs.topology import Inlet, Node
from simulator.schedule import Task
from simulator.settings import Fault, Settings, UserSnapshot
from simulator.shrink import shrink, size, size_text, without
from tests.support.effort import some

SOURCE = Node("source", splits=4, rows_per_split=40)


def chain(*kinds: str) -> tuple[Node, ...]:
    return (SOURCE, *(Node(kind, (Inlet(number, "hash"),)) for number, kind in enumerate(kinds)))


def fails_if(condition: Callable[[Settings], bool], tried: list[Settings] | None = None) -> Callable[..., Task | None]:
    def runs(tasks: list[Task]) -> Task | None:
        settings = tasks[0].chosen_settings
        if tried is not None:
            tried.append(settings)
        return tasks[0] if condition(settings) else None

    return runs


def ignore(text: str) -> None:
    """Nobody reads it."""


def test_only_what_the_failure_needs_is_left() -> None:
    settings = Settings(
        nodes=chain("count", "sort", "relay", "window"),
        parallelism=6,
        skew=0.9,
        trigger_on="lastBarrier",
        alignment="unaligned",
        faults=tuple(Fault(kind, step) for step, kind in enumerate(("slot crash", "torn file", "user error"))),
        snapshots=tuple(UserSnapshot("aligned", step) for step in range(5)),
    )

    def needed(s: Settings) -> bool:
        kinds = [fault.kind for fault in s.faults]
        return "torn file" in kinds and s.parallelism >= 2 and any(n.kind == "sort" for n in s.nodes) and s.rows >= 7

    smallest = shrink(Task(9, settings, mutant="x"), fails_if(needed), ignore)
    found = smallest.chosen_settings
    assert smallest.mutant == "x"
    assert [fault.kind for fault in found.faults] == ["torn file"]
    assert found.snapshots == ()
    assert found.parallelism == 2
    assert [node.kind for node in found.nodes] == ["source", "sort"]
    assert 7 <= found.rows <= 14
    assert (found.skew, found.trigger_on, found.alignment) == (0.0, "firstBarrier", "auto")
    assert size(found) < size(settings)


def test_what_never_fails_again_stays_as_it_is() -> None:
    settings = Settings.random(11)
    tried: list[Settings] = []
    assert shrink(Task(11), fails_if(lambda s: False, tried), ignore) == Task(11, settings)
    assert len(tried) > 10
    assert len({repr(s) for s in tried}) == len(tried), "no candidate is run twice"


def test_another_seed_may_be_the_one_that_fails() -> None:
    def only_seed_2(tasks: list[Task]) -> Task | None:
        return next((task for task in tasks if task.seed == 2), None)

    smallest = shrink(Task(77, Settings(nodes=chain("count"), skew=0.5)), only_seed_2, ignore)
    assert smallest.seed == 2
    assert smallest.chosen_settings.skew == 0.0


def test_every_step_is_told() -> None:
    told: list[str] = []
    settings = Settings(nodes=chain("count"), skew=0.5, parallelism=1)
    shrink(Task(1, settings), fails_if(lambda s: s.rows == 160), told.append)
    plain = Settings(nodes=(SOURCE,), parallelism=1)
    skewed = Settings(nodes=(SOURCE,), parallelism=1, skew=0.5)
    whole = Settings(nodes=chain("count"), parallelism=1, skew=0.5)
    assert told == [
        f"nothing restored cold: {size_text(whole)}",
        f"one node less: {size_text(skewed)}",
        f"plain skew: {size_text(plain)}",
    ]


@pytest.mark.parametrize("seed", range(some(12, 4)))
def test_all_candidates_are_jobs_that_can_run(seed: int) -> None:
    def legal(settings: Settings) -> bool:
        for position, node in enumerate(settings.nodes):
            assert all(0 <= inlet.producer < position for inlet in node.inlets)
            assert (node.kind == "source") == (not node.inlets)
            assert node.kind != "join" or len(node.inlets) == 2
        assert settings.rows > 0
        return settings.rows > 50

    shrink(Task(seed), fails_if(legal), ignore)


def test_a_node_is_cut_out_of_the_middle_and_its_readers_go_to_its_producer() -> None:
    nodes = chain("count", "sort", "relay")
    assert without(nodes, 2) == (SOURCE, Node("count", (Inlet(0, "hash"),)), Node("relay", (Inlet(1, "hash"),)))
    assert without(chain("count"), 0) is None, "nothing to read from"
    assert without(chain("count"), 1) == (SOURCE,), "what nobody reads from has a sink"
