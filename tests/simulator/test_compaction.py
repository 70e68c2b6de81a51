"""A log that is compacted: schedules of the model, and what a broken rule does.

The seeds that kill are recorded. When the model or the log changes, schedules change with it, and a recorded seed may
pass; then the first seeds are tried.
"""

from __future__ import annotations

import pytest

from penstock.errors import CorruptSnapshot
from penstock.testing.failure import SimulationFailure
from simulator.models.compaction import CompactionSimulation
from simulator.mutants.compaction import COMPACTION
from tests.support.effort import some

SCHEDULES = some(600, 120)
WITHIN = 600
"""Seeds that are tried for a mutant whose recorded one does not kill it."""
KILLS = {
    "number-created-again-counts": 0,
    "own-entry-not-looked-at": 14,
    "removed-in-descending-order": 0,
    "last-summary-removed": 0,
    "uncovered-entries-removed": 0,
    "head-removed": 0,
    "strays-stay": 1,
    "removal-taken-for-damage": 0,
    "stray-read": 56,
    "positions-asked-of-files": 0,
    "positions-forgotten": 0,
}


def test_a_log_has_one_owner_and_says_the_same_while_entries_are_removed() -> None:
    outcomes: dict[str, int] = {}
    for seed in range(SCHEDULES):
        simulation = CompactionSimulation(seed)
        simulation.run()
        for outcome, count in simulation.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    for outcome, part in {"ended": 2, "fenced": 1, "killed": 2, "refused": 60, "strays": 10}.items():
        assert outcomes.get(outcome, 0) > SCHEDULES / part, outcomes


def fails(seed: int) -> bool:
    try:
        CompactionSimulation(seed).run()
    except (SimulationFailure, CorruptSnapshot):
        return True
    return False


@pytest.mark.parametrize("name", COMPACTION)
def test_a_broken_rule_is_noticed(name: str) -> None:
    with COMPACTION[name].applied():
        assert fails(KILLS[name]) or any(map(fails, range(WITHIN)))
    assert not fails(KILLS[name]), "the schedule fails without the mutant, too"


def test_every_mutant_has_a_seed() -> None:
    assert sorted(KILLS) == sorted(COMPACTION)
