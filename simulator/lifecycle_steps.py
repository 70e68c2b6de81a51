"""Counts the steps that lifecycles take in a schedule.

The machines know nothing of it: the one method that all steps go through is wrapped while a schedule runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.coordinator.machines.checkpoint_lifecycle import LIFECYCLE as AT_COORDINATOR
from penstock.coordinator.machines.checkpoint_lifecycle import SUBSUMED
from penstock.coordinator.machines.checkpoint_lifecycle import Phase as AtCoordinator
from penstock.protocol.alignment import LIFECYCLE as AT_SUBTASK
from penstock.protocol.alignment import Phase as AtSubtask
from penstock.protocol.lifecycle import Lifecycle
from simulator.counters import Counters
from simulator.mutants.mutation import mutant

LIFECYCLES: tuple[Lifecycle[Any], ...] = (AT_SUBTASK, AT_COORDINATOR)


def step_name(lifecycle: Lifecycle[Any], source: str, event: str) -> str:
    """Return the name of the counter of one kind of step."""
    return f"{lifecycle.subject}: {source}, {event}"


UNREACHABLE = (
    step_name(AT_SUBTASK, AtSubtask.ENDING.value, "abort"),
    step_name(AT_COORDINATOR, AtCoordinator.WRITING.value, SUBSUMED),
)
"""What the machines allow and a whole query never does: a subtask ends an epoch within one step, so that nothing can
happen to the checkpoint meanwhile; the log's works are done in order, so that a checkpoint's metadata is written before
a newer one is logged."""


def all_steps(lifecycle: Lifecycle[Any]) -> tuple[str, ...]:
    """Return the counters of all steps that a lifecycle allows and that whole subtasks can take."""
    steps = (step_name(lifecycle, t.source.value, t.event) for t in lifecycle.transitions)
    return tuple(step for step in steps if step not in UNREACHABLE)


@contextmanager
def watched(counters: Counters) -> Iterator[None]:
    """Count the steps of lifecycles while the context is open."""

    def counting(original: Any) -> Any:
        def after(self: Lifecycle[Any], state: Any, event: str, which: str) -> Any:
            target = original(self, state, event, which)
            counters.count(step_name(self, state.value, event))
            return target

        return after

    with mutant("nothing is wrong: it only counts", (Lifecycle, "after", counting)).applied():
        yield
