"""Behind a user call that could not be cut, the slot's other threads get their turn."""

from __future__ import annotations

import pytest

from penstock.runtime.breather import LONG_STEP_S, MOMENT_S, Breather, Underway


class Slot:
    """A breather with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.underway = Underway()
        self.breather = Breather(self.underway, lambda: self.now)

    def rest_s(self, answer_at: dict[float, int] | None = None) -> float:
        """How long it rests from now on; ``answer_at``: checkpoints that end so many seconds from now."""
        began = self.now
        while self.breather.resting():
            self.now += 0.001
            for after, checkpoint in (answer_at or {}).items():
                if self.now - began >= after:
                    self.underway.ended(checkpoint)
        return self.now - began


def test_short_steps_are_followed_by_the_next_at_once() -> None:
    slot = Slot()
    slot.underway.began(1)
    slot.breather.stepped(LONG_STEP_S)
    assert slot.rest_s() == 0


def test_a_long_step_without_a_checkpoint_costs_a_moment() -> None:
    slot = Slot()
    slot.breather.stepped(1.0)
    assert slot.rest_s() == pytest.approx(MOMENT_S, abs=0.002)
    assert slot.rest_s() == 0


def test_a_checkpoint_is_waited_for_until_it_is_answered_and_the_answer_sent() -> None:
    slot = Slot()
    slot.breather.stepped(1.0)
    assert slot.breather.resting()
    slot.underway.began(7)
    assert slot.rest_s({0.3: 7}) == pytest.approx(0.3 + MOMENT_S, abs=0.003)


def test_a_checkpoint_is_waited_for_once_and_no_longer_than_the_step_took() -> None:
    slot = Slot()
    slot.underway.began(7)
    slot.breather.stepped(0.5)
    assert slot.rest_s() == pytest.approx(0.5, abs=0.003)
    slot.breather.stepped(0.5)
    assert slot.rest_s() == pytest.approx(MOMENT_S, abs=0.002)
    slot.underway.began(8)
    slot.breather.stepped(0.5)
    assert slot.rest_s({0.1: 8}) == pytest.approx(0.1 + MOMENT_S, abs=0.003)
