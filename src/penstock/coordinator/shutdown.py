"""The end of a query on the driver: slots say goodbye, connectors are closed, the log gets its last entry."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from penstock.connectors.base import SinkCommitter, Source
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.generation_slots import GenerationSlots
from penstock.coordinator.generations import STOP_TIMEOUT_S
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.coordinator.rendezvous import SlotLost, SlotSaid
from penstock.errors import Fenced, LocationError, PenstockError
from penstock.logs import get_logger
from penstock.network.messages import Stopped

log = get_logger(__name__)


def await_goodbyes(
    attempt: GenerationSlots,
    next_event: Callable[[], object],
    gone: Callable[[int], None],
    other: Callable[[object], None],
) -> None:
    """Wait until all slots are gone, or for as long as that may take.

    Args:
        next_event: waits a little; None if nothing came.
        gone: is told of each slot that is.
        other: takes what is no goodbye.
    """
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while not attempt.all_gone and time.monotonic() < deadline:
        match next_event():
            case SlotSaid(_, seat, Stopped()) | SlotLost(_, seat, _):
                slot = attempt.slot_of(seat)
                attempt.gone(slot)
                gone(slot)
            case event if event is not None:
                other(event)


def close_connectors(connectors: Iterable[Source | SinkCommitter]) -> None:
    """Each, whatever the others do. What was committed stays so: the query does not fail by it."""
    for connector in connectors:
        try:
            connector.close()
        except Exception:
            log.exception("%s could not be closed", type(connector).__name__)


def log_the_end(
    effects: CommandExecutor, coordinator: CheckpointCoordinator, error: PenstockError | None
) -> PenstockError | None:
    """Log what was committed and which ids were not used. If a store fails, the next driver commits again, harmlessly.

    Returns:
        The error with which the query ends: ``error``, or an error if the location belongs to another driver or was
        removed, because then no log covers the output.
    """
    try:
        effects.close(coordinator.committed_epoch, coordinator.next_checkpoint)
    except Fenced as lost:
        return error or lost
    except FileNotFoundError as gone:
        return error or LocationError(str(gone))
    except (LocationError, OSError) as problem:
        log.warning("the end of the query could not be logged: %s", problem)
    return error
