"""Events in the queue of the coordinator thread, and the exception that ends its loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.coordinator.commands import Command, JobEvent
from penstock.coordinator.rendezvous import SlotLost, SlotMessageReceived
from penstock.errors import PenstockError


@dataclass(frozen=True)
class CommandDone:
    """Reports that a command was executed."""

    command: Command
    event: JobEvent | None


@dataclass(frozen=True)
class CommandRaised:
    """Reports that a command raised an exception outside its contract."""

    command: Command
    error: Exception


@dataclass(frozen=True)
class Call:
    """A function to call on the coordinator thread."""

    function: Callable[[], None]


QueueEvent = CommandDone | CommandRaised | Call | SlotMessageReceived | SlotLost


class EndQuery(Exception):
    """Ends the loop of the coordinator thread. ``error`` is None for an orderly stop."""

    def __init__(self, error: PenstockError | None) -> None:
        super().__init__(error)
        self.error = error
