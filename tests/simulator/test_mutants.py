"""Broken code is caught: every mutant passes calm schedules and is killed by a random one.

The seeds that kill are recorded (``killing_seeds.json``); when the simulator or the protocol changes, schedules change
with it and a recorded seed may pass. Then the first seeds are tried; to record anew:
``python -m simulator --mutants --write``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from penstock.testing.failure import SimulationFailure
from simulator.mutants.catalog import MUTANTS
from simulator.mutants.mutation import mutant
from simulator.mutants.table import BEGIN, PAGE, WITHIN, Verdict, check_mutants, first_failure, read_kills, table
from simulator.schedule import Failure, Result, Task
from simulator.workers import Workers
from tests.support.effort import one_in
from tests.support.places import ROOT

pytestmark = pytest.mark.simulation

KILLS = read_kills(ROOT)
CALM = 1
"""Calm schedules of a mutant here; ``python -m simulator --mutants`` runs more of them."""
SOME = one_in(4, sorted(MUTANTS))
"""The mutants that run here; ``make mutants`` runs all of them."""


@pytest.fixture(scope="module")
def results(workers: Workers) -> dict[str, list[Result]]:
    """Results of each mutant: its calm schedules and, last, the recorded killing one."""
    tasks = []
    for name in SOME:
        tasks += [Task(seed, calm=True, mutant=name) for seed in range(CALM)]
        if name in KILLS:
            tasks.append(Task(KILLS[name].seed, mutant=name))
    found: dict[str, list[Result]] = {name: [] for name in SOME}
    for result in workers.run(tasks):
        assert result.task.mutant is not None
        found[result.task.mutant].append(result)
    return found


@pytest.mark.parametrize("name", SOME)
def test_a_mutant_passes_calm_schedules(name: str, results: dict[str, list[Result]]) -> None:
    calm = [result for result in results[name] if result.task.calm]
    assert len(calm) == CALM
    assert [result.failure for result in calm if result.failure is not None] == []


@pytest.mark.parametrize("name", SOME)
def test_a_mutant_is_killed(name: str, results: dict[str, list[Result]], workers: Workers) -> None:
    assert name in KILLS, "record its seed: python -m simulator --mutants --write"
    if any(result.failure is not None for result in results[name] if not result.task.calm):
        return
    found = first_failure(workers, (Task(seed, mutant=name) for seed in range(WITHIN)))
    assert found is not None, f"survives {WITHIN} schedules"
    assert next(workers.run([Task(found[0])])).failure is None, "the schedule fails without the mutant, too"


def test_there_are_enough_mutants_and_all_were_killed_in_time() -> None:
    assert len(MUTANTS) >= 30
    assert sorted(KILLS) == sorted(MUTANTS)
    assert all(kill.seed < WITHIN for kill in KILLS.values())
    assert len({kill.oracle for kill in KILLS.values()}) >= 5, "oracles other than the output have a use"


def test_the_documentation_has_the_recorded_table() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert table(KILLS) in page.partition(BEGIN)[2]


class FailingOn:
    """Workers whose every schedule ends at once; ``fails`` says which ones fail."""

    def __init__(self, fails: Callable[[Task], bool]) -> None:
        self._fails = fails

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        for task in tasks:
            yield Result(task, failure=Failure("output", "") if self._fails(task) else None)


def verdict(fails: Callable[[Task], bool]) -> Verdict:
    return check_mutants(["layers-merged"], FailingOn(fails), lambda text: None)[0]  # type: ignore[arg-type]


def test_a_mutant_that_fails_calmly_or_survives_is_no_good() -> None:
    assert verdict(lambda task: task.mutant is not None and not task.calm and task.seed >= 7).good
    assert verdict(lambda task: task.mutant is not None and not task.calm and task.seed >= 7).seed == 7
    assert not verdict(lambda task: task.mutant is not None and task.seed == 3).good, "it fails a calm one"
    assert not verdict(lambda task: task.mutant is not None and task.seed >= WITHIN).good, "it survives"


@pytest.mark.parametrize("calm", [True, False])
def test_nothing_is_said_if_the_code_itself_fails(calm: bool) -> None:
    with pytest.raises(SimulationFailure, match="seed 3 fails without any mutant"):
        verdict(lambda task: task.calm == calm and task.seed == 3)


def test_a_mutant_is_gone_when_its_context_ends() -> None:
    class Thing:
        def number(self) -> int:
            return 1

    broken = mutant("one more", (Thing, "number", lambda original: lambda self: original(self) + 1))
    with broken.applied():
        assert Thing().number() == 2
        with broken.applied():
            assert Thing().number() == 3
    assert Thing().number() == 1


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_a_mutant_can_be_applied_and_taken_back(name: str) -> None:
    before = [vars(patch.owner)[patch.attribute] for patch in MUTANTS[name].patches]
    with MUTANTS[name].applied():
        assert all(vars(p.owner)[p.attribute] is not b for p, b in zip(MUTANTS[name].patches, before, strict=True))
    assert [vars(patch.owner)[patch.attribute] for patch in MUTANTS[name].patches] == before
