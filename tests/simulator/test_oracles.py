"""Oracles of the simulator after a rollback: what they allow, and what they still report."""

from __future__ import annotations

import pytest

from penstock.testing.failure import SimulationFailure
from simulator.jobs.external_systems import BatchIds


def test_new_epochs_after_a_rollback_may_skip_ids_and_pending_ones_may_not() -> None:
    ids = BatchIds()
    ids.seen(2, 0)
    ids.rolled_back(4)  # epoch 5 had batch 3, which no sink ever got
    ids.seen(2, 0)
    ids.seen(3, 1)
    with pytest.raises(SimulationFailure, match="epoch 4 comes as batch 3"):
        ids.copy().seen(4, 3)
    ids.seen(4, 2)
    ids.copy().seen(71, 4)
    ids.seen(71, 4)
    with pytest.raises(SimulationFailure, match="epoch 72 comes as batch 6"):
        ids.seen(72, 6)  # one rollback, one gap
    ids.seen(72, 5)


def test_two_rollbacks_leave_two_gaps() -> None:
    ids = BatchIds()
    ids.rolled_back(4)
    ids.rolled_back(71)  # epoch 71 was numbered after the first one, and is pending
    ids.seen(3, 0)
    ids.seen(71, 2)
    ids.seen(140, 4)
    with pytest.raises(SimulationFailure, match="epoch 141 comes as batch 6"):
        ids.seen(141, 6)


def test_no_rollback_gives_an_id_again() -> None:
    ids = BatchIds()
    ids.seen(2, 0)
    ids.seen(3, 1)
    ids.rolled_back(2)
    with pytest.raises(SimulationFailure, match="epoch 70 comes as batch 1"):
        ids.seen(70, 1)
    with pytest.raises(SimulationFailure, match="epoch 3 was batch 1"):
        ids.seen(3, 2)
