"""Copies of one location that write to the same outputs: schedules of the model, and what a broken fence does.

The seeds that kill are recorded. When the model or the fence changes, schedules change with it, and a recorded seed may
pass; then the first seeds are tried.
"""

from __future__ import annotations

import pytest

from penstock.testing.failure import SimulationFailure
from simulator.models.fencing import FencingSimulation
from simulator.mutants.fencing import FENCING
from tests.support.effort import some

SCHEDULES = some(4_000)
WITHIN = 3_000
"""Seeds that are tried for a mutant whose recorded one does not kill it."""
KILLS = {
    "position-not-read-behind-the-fence": 28,
    "nothing-recorded": 0,
    "recorded-after-it-is-visible": 14,
    "ready-before-it-is-recorded": 1,
    "record-goes-back": 4490,
    "lineage-by-number": 3,
    "work-directory-made-again": 0,
    "work-directory-copied": 1,
    "staged-files-removed-at-once": 0,
    "log-not-checked-behind-the-fence": 306,
    "first-directory-at-once": 31,
    "other-outputs-not-held": 81,
    "input-cleaned-by-a-fenced-driver": 109,
    "goes-over-without-a-word": 125,
    "left-snapshots-stay-known": 125,
    "pending-epochs-of-others": 73,
    "goes-over-what-no-check-has-found": 1316,
    "epochs-of-others": 602,
    "batches-of-others": 12,
    "batches-not-recorded": 12,
    "cell-replaced-unseen": 40,
    "cell-not-recorded": 7,
    "retraction-of-own-epochs": 2222,
}


def test_the_outputs_show_the_epochs_of_one_history() -> None:
    outcomes: dict[str, int] = {}
    for seed in range(SCHEDULES):
        simulation = FencingSimulation(seed)
        simulation.run()
        for outcome, count in simulation.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    for outcome in ("ended", "refused", "fenced", "killed", "rolled back"):
        assert outcomes.get(outcome, 0) > SCHEDULES / 4, outcomes


def test_a_location_whose_log_is_compacted_is_told_from_its_copies() -> None:
    for seed in range(SCHEDULES // 2):
        FencingSimulation(seed, compacts=True).run()


def fails(seed: int) -> bool:
    try:
        FencingSimulation(seed).run()
    except SimulationFailure:
        return True
    return False


@pytest.mark.parametrize("name", FENCING)
def test_a_broken_fence_is_noticed(name: str) -> None:
    with FENCING[name].applied():
        assert fails(KILLS[name]) or any(map(fails, range(WITHIN)))
    assert not fails(KILLS[name]), "the schedule fails without the mutant, too"


def test_every_mutant_has_a_seed() -> None:
    assert sorted(KILLS) == sorted(FENCING)
