"""From what a slot reports to what the restart strategy weighs and what the user sees."""

from __future__ import annotations

from penstock.errors import DataError, FunctionError, GenerationFailed, PenstockError, QueryFailed
from penstock.protocol.restarts import Failure, GiveUp
from penstock.runtime.messages import SlotFailed


def failure_of(message: SlotFailed) -> Failure:
    return Failure(message.kind, message.operator, message.message, message.position)


def error_of(message: SlotFailed) -> PenstockError:
    """The error as it was raised in the slot, as far as it matters to the user."""
    if message.kind == "function":
        return FunctionError(message.operator, message.message, message.traceback, message.position)
    where = f"{message.operator}: " if message.operator else ""
    if message.kind == "data":
        return DataError(f"{where}{message.message}")
    trace = f"\n{message.traceback}" if message.traceback else ""
    return GenerationFailed(f"slot {message.slot}: {where}{message.message}{trace}")


def gave_up(decision: GiveUp, cause: PenstockError | None) -> QueryFailed:
    """The query's error; its cause is the first one."""
    first = cause or GenerationFailed(decision.first.message)
    error = QueryFailed(f"{first}\nThe query gave up: {decision.reason}")
    error.__cause__ = first
    return error
