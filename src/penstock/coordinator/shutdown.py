"""Shutdown of a query on the driver: wait for the slots, close connectors, write the last log entry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from penstock.connectors.base import SinkCommitter, Source
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.generation_slots import GenerationSlots
from penstock.coordinator.generations import STOP_TIMEOUT_S
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.coordinator.rendezvous import SlotLost, SlotMessageReceived
from penstock.errors import Fenced, LocationError, PenstockError
from penstock.logs import get_logger
from penstock.network.messages import Stopped

log = get_logger(__name__)


def await_slots(
    slots: GenerationSlots,
    next_event: Callable[[], object],
    on_gone: Callable[[int], None],
    on_other: Callable[[object], None],
) -> None:
    """Wait until all slots have stopped, at most ``STOP_TIMEOUT_S``.

    Args:
        next_event: returns the next event after a short wait, or None.
        on_gone: called with each slot that has stopped or was lost.
        on_other: called with every other event.
    """
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not slots.all_stopped and time.monotonic() < deadline:
        match next_event():
            case SlotMessageReceived(_, task_number, Stopped()) | SlotLost(_, task_number, _):
                slot = slots.slot_of(task_number)
                slots.note_stopped(slot)
                on_gone(slot)
            case event if event is not None:
                on_other(event)


def close_connectors(connectors: Iterable[Source | SinkCommitter]) -> None:
    """Close all connectors. A failure is only logged, because committed output stays committed."""
    for connector in connectors:
        try:
            connector.close()
        except Exception:
            log.exception("%s could not be closed", type(connector).__name__)


def log_the_end(
    executor: CommandExecutor, coordinator: CheckpointCoordinator, error: PenstockError | None
) -> PenstockError | None:
    """Log the committed epoch and the unused ids. If a store fails, the next driver commits again, which is harmless.

    Returns:
        The error with which the query ends. It is ``error`` if that is set. Otherwise it is an error if the location
            belongs to another driver or was removed, because then the log does not cover the output.
    """
    try:
        executor.close(coordinator.committed_epoch, coordinator.next_checkpoint)
    except Fenced as lost:
        return error or lost
    except FileNotFoundError as gone:
        return error or LocationError(str(gone))
    except (LocationError, OSError) as problem:
        log.warning("the end of the query could not be logged: %s", problem)
    return error
