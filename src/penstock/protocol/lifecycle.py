"""Lifecycles as transition tables. The code checks every step against them; the documentation's diagrams show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from penstock.errors import ProtocolViolation

State = TypeVar("State", bound=Enum)


@dataclass(frozen=True)
class Transition(Generic[State]):
    source: State
    event: str
    target: State


class Lifecycle(Generic[State]):
    """The allowed transitions of one kind of object.

    Args:
        subject: name of the object, for errors and diagrams.
        start: the initial state.
        transitions: no two may have the same source and event.
    """

    def __init__(self, subject: str, start: State, transitions: Sequence[Transition[State]]) -> None:
        self.subject = subject
        self.start = start
        self.transitions = tuple(transitions)
        self._targets = {(t.source, t.event): t.target for t in self.transitions}
        assert len(self._targets) == len(self.transitions)

    def after(self, state: State, event: str, which: str) -> State:
        """Return the state that follows.

        Raises:
            ProtocolViolation: the event is not allowed in this state.
        """
        target = self._targets.get((state, event))
        if target is None:
            raise ProtocolViolation(f"{self.subject} ({which})", state.value, event)
        return target

    def mermaid(self) -> str:
        """Return a state diagram in Mermaid notation."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.start.value}"]
        lines += [f"    {t.source.value} --> {t.target.value}: {t.event}" for t in self.transitions]
        ends = {t.target for t in self.transitions} - {t.source for t in self.transitions}
        lines += [f"    {state.value} --> [*]" for state in type(self.start) if state in ends]
        return "\n".join(lines)
