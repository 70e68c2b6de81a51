"""Lifecycle of one checkpoint: every step is in the table, and an illegal one changes nothing."""

from __future__ import annotations

import pytest

from penstock.coordinator.machines import checkpoint_lifecycle as life
from penstock.coordinator.machines.checkpoint_events import (
    Ignored,
    Tick,
)
from penstock.coordinator.machines.checkpoint_lifecycle import Phase
from penstock.errors import ProtocolViolation
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
)
from tests.support.coordinator.coordinator_kit import (
    UNALIGNED,
    acknowledge,
    manifest,
    started,
)


def test_every_phase_of_a_checkpoint_is_reached_and_left_as_the_table_says() -> None:
    assert {t.target for t in life.TRANSITIONS} == set(Phase) - {Phase.NONE}
    assert {t.source for t in life.TRANSITIONS} == set(Phase) - {Phase.COMPLETE, Phase.ABORTED}
    assert not [t for t in life.TRANSITIONS if t.source is Phase.LOGGING and t.event in (life.SUBSUMED, life.ENDED)]
    assert {t.event for t in life.TRANSITIONS if t.target is Phase.ABORTED} == {
        *life.FAILURES,
        life.SUBSUMED,
        life.ENDED,
        life.GAVE_WAY,
    }
    assert "logging --> complete: logged" in life.LIFECYCLE.mermaid()


def test_a_step_that_is_not_in_the_table_changes_nothing() -> None:
    pending = life.Pending(1, 1, UNALIGNED, None, 0, 0, 0.0, 100.0, 0.0)
    with pytest.raises(ProtocolViolation):
        pending.step("logged")
    assert pending.phase is Phase.NONE
    pending.step("triggered")
    with pytest.raises(ProtocolViolation, match="metadata written"):
        pending.step("metadata written")
    assert pending.phase is Phase.RUNNING


def test_a_decline_after_all_have_acknowledged_changes_nothing() -> None:
    machine = started()
    machine.handle(Tick(), 1000)
    acknowledge(machine, 1, 1001)
    (ignored,) = machine.handle(DeclineCheckpoint(0, 1, "late"), 1002)
    assert isinstance(ignored, Ignored)
    (ignored,) = machine.handle(AcknowledgeCheckpoint(1, manifest(0)), 1003)
    assert isinstance(ignored, Ignored)
    assert machine.in_flight == (1,)
