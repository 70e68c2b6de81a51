"""Counts what the machines do in a schedule: steps of their lifecycles, conversions, references.

The machines know nothing of it: a few of their methods are wrapped while a schedule runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.protocol.alignment import LIFECYCLE as AT_SUBTASK
from penstock.protocol.alignment import Phase as AtSubtask
from penstock.protocol.alignment import SubtaskCheckpoints
from penstock.protocol.checkpoint_life import LIFECYCLE as AT_COORDINATOR
from penstock.protocol.lifecycle import Lifecycle
from penstock.snapshot.inflight_index import InflightIndex, Piece
from penstock.testing.figures import Figures
from penstock.testing.mutation import mutant

LIFECYCLES: tuple[Lifecycle[Any], ...] = (AT_SUBTASK, AT_COORDINATOR)

TURNED_AT_INPUT = "turned unaligned at the input"
TURNED_AT_OUTPUT = "turned unaligned at the output"
REFERRED = "in-flight rows referred to in the base"

UNREACHABLE = (f"{AT_SUBTASK.subject}: {AtSubtask.ENDING.value}, abort",)
"""A subtask ends an epoch within one step: nothing can happen to the checkpoint meanwhile."""


def step_name(lifecycle: Lifecycle[Any], source: str, event: str) -> str:
    """The figure that counts one kind of step."""
    return f"{lifecycle.subject}: {source}, {event}"


def all_steps(lifecycle: Lifecycle[Any]) -> tuple[str, ...]:
    """The figures of all steps that a lifecycle allows and that whole subtasks can take."""
    steps = (step_name(lifecycle, t.source.value, t.event) for t in lifecycle.transitions)
    return tuple(step for step in steps if step not in UNREACHABLE)


@contextmanager
def watched(figures: Figures) -> Iterator[None]:
    """Count into ``figures`` while the context is open."""

    def steps(original: Any) -> Any:
        def after(self: Lifecycle[Any], state: Any, event: str, which: str) -> Any:
            target = original(self, state, event, which)
            figures.count(step_name(self, state.value, event))
            return target

        return after

    def turns(original: Any) -> Any:
        def turn(self: SubtaskCheckpoints, progress: Any) -> Any:
            at_input, at_output = self.turned_at_input, self.turned_at_output
            commands = original(self, progress)
            figures.count(TURNED_AT_INPUT, self.turned_at_input - at_input)
            figures.count(TURNED_AT_OUTPUT, self.turned_at_output - at_output)
            return commands

        return turn

    def references(original: Any) -> Any:
        def split(self: InflightIndex, captured: Any) -> Iterator[Any]:
            for found in original(self, captured):
                if isinstance(found, Piece):
                    figures.count(REFERRED, found.rows)
                yield found

        return split

    watch = mutant(
        "nothing: it only counts",
        (Lifecycle, "after", steps),
        (SubtaskCheckpoints, "_turn", turns),
        (InflightIndex, "split", references),
    )
    with watch.applied():
        yield
