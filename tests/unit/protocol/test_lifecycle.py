"""Lifecycles as tables."""

from __future__ import annotations

from enum import Enum

import pytest

from penstock.errors import ProtocolViolation
from penstock.protocol.lifecycle import Lifecycle, Transition


class Door(Enum):
    CLOSED = "closed"
    OPEN = "open"
    GONE = "gone"


LIFECYCLE = Lifecycle(
    "door",
    Door.CLOSED,
    [
        Transition(Door.CLOSED, "opened", Door.OPEN),
        Transition(Door.OPEN, "closed", Door.CLOSED),
        Transition(Door.OPEN, "removed", Door.GONE),
    ],
)


def test_an_allowed_event_leads_to_the_state_in_the_table() -> None:
    assert LIFECYCLE.after(Door.CLOSED, "opened", "front") is Door.OPEN
    assert LIFECYCLE.after(Door.OPEN, "removed", "front") is Door.GONE


def test_an_event_that_is_not_in_the_table_is_refused_with_the_state_and_the_event() -> None:
    with pytest.raises(ProtocolViolation, match=r"door \(front\).*closed.*removed"):
        LIFECYCLE.after(Door.CLOSED, "removed", "front")


def test_the_diagram_shows_the_start_every_step_and_the_end() -> None:
    assert LIFECYCLE.mermaid().splitlines() == [
        "stateDiagram-v2",
        "    [*] --> closed",
        "    closed --> open: opened",
        "    open --> closed: closed",
        "    open --> gone: removed",
        "    gone --> [*]",
    ]


def test_two_steps_for_one_state_and_event_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        Lifecycle("door", Door.CLOSED, [Transition(Door.CLOSED, "opened", to) for to in (Door.OPEN, Door.GONE)])
