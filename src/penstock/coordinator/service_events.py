"""Events in the queue of the coordinator thread, and how its loop ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator.commands import Command, JobEvent
from penstock.coordinator.rendezvous import SlotLost, SlotMessageReceived
from penstock.errors import PenstockError


@dataclass(frozen=True)
class CommandDone:
    """A command was executed."""

    command: Command
    event: JobEvent | None


@dataclass(frozen=True)
class CommandRaised:
    """A command raised beyond its contract."""

    command: Command
    error: Exception


@dataclass(frozen=True)
class Call:
    """Something a user wants done on the coordinator thread."""

    function: Callable[[], None]


QueueEvent = CommandDone | CommandRaised | Call | SlotMessageReceived | SlotLost


class EndQuery(Exception):
    """Leave the loop; ``error`` is None for an orderly stop."""

    def __init__(self, error: PenstockError | None) -> None:
        super().__init__(error)
        self.error = error
