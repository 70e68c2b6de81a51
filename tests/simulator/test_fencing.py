"""Copies of one location that write to one output: schedules of the model, and mutants of the fence."""

from __future__ import annotations

import pytest

from penstock.testing.failure import SimulationFailure
from penstock.testing.fencing import FencingSimulation
from penstock.testing.mutants_fencing import FENCING

SCHEDULES = 1_500


def test_the_output_shows_the_epochs_of_one_history() -> None:
    outcomes: dict[str, int] = {}
    for seed in range(SCHEDULES):
        simulation = FencingSimulation(seed)
        simulation.run()
        for outcome, count in simulation.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    assert all(outcomes.get(outcome, 0) > SCHEDULES / 4 for outcome in ("ended", "refused", "fenced", "killed")), (
        outcomes
    )


@pytest.mark.parametrize("name", FENCING)
def test_a_broken_fence_is_noticed(name: str) -> None:
    def run_all() -> None:
        for seed in range(SCHEDULES):
            FencingSimulation(seed).run()

    with FENCING[name].applied(), pytest.raises(SimulationFailure):
        run_all()
