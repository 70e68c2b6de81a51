"""Conversion of failures: slot reports to failures for the restart strategy, and to errors for the user."""

from __future__ import annotations

from penstock.coordinator.machines.restarts import SOURCE, Failure, GiveUp
from penstock.errors import (
    ConfigError,
    CorruptSnapshot,
    DataError,
    EvaluationError,
    FunctionError,
    GenerationFailed,
    LocationError,
    NotSupported,
    PenstockError,
    QueryFailed,
    SinkError,
    SinkFenced,
    UnfitFile,
)
from penstock.network.messages import SlotFailed

NEVER_RETRIED = (ConfigError, NotSupported)
"""Errors that a restart cannot fix, because it changes neither options nor the plan."""
_KEPT_TYPES = {
    error.__name__: error for error in (*NEVER_RETRIED, CorruptSnapshot, DataError, EvaluationError, SinkError)
}
"""Errors that keep their type. Their message suffices without a traceback of Penstock's own code."""

_IN_THE_INPUT = "the input that cannot be read"
"""Position of a data error. The error's message names the exact position, and no restart gets past it."""

_DYING_WORKERS = "; a worker dies if user code ends it, if memory runs out or if it is killed: see the executors' logs"


def failure_of(message: SlotFailed) -> Failure:
    position = _IN_THE_INPUT if message.kind == "data" else message.position
    return Failure(message.kind, message.operator, message.message, position)


def discovery_failure(source: str, error: Exception) -> Failure:
    """Return the failure of a discovery. Every discovery finds an unfit file again; other errors may be temporary."""
    text = f"looking for new data failed: {type(error).__name__}: {error}"
    return Failure(SOURCE, source, text, _IN_THE_INPUT if isinstance(error, UnfitFile) else "")


def error_of(message: SlotFailed) -> PenstockError:
    """Return the error that was raised in the slot, in the form shown to the user."""
    if message.kind == "function":
        return FunctionError(message.operator, message.message, message.traceback, message.position)
    where = f"{message.operator}: " if message.operator else ""
    name, _, text = message.message.partition(": ")
    if name in _KEPT_TYPES:
        return _KEPT_TYPES[name](f"{where}{text}")
    trace = f"\n{message.traceback}" if message.traceback else ""
    return GenerationFailed(f"slot {message.slot}: {where}{message.message}{trace}")


def may_pass(problem: Exception) -> bool:
    """Return True if a retry of a failed recovery may succeed.

    That is the case if a store or an output is unavailable or full, or was just taken over by another driver.
    """
    if isinstance(problem, SinkFenced):
        return True
    away = problem.__cause__ if isinstance(problem, SinkError) else problem
    return isinstance(away, OSError)


def recovery_failure(problem: Exception) -> tuple[Failure, PenstockError]:
    """Return the failure and the error of a recovery for which ``may_pass`` is True."""
    if isinstance(problem, SinkError):
        return Failure("fenced" if isinstance(problem, SinkFenced) else "sink", "", str(problem)), problem
    text = f"the checkpoint location cannot be read now: {problem}"
    return Failure("location", "", text), LocationError(text)


def wrapped(what: str, cause: BaseException) -> PenstockError:
    """Return the error for an exception outside the contract of the code that raised it."""
    error = QueryFailed(f"{what}: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


def gave_up(decision: GiveUp, cause: PenstockError | None) -> QueryFailed:
    """Return the query's error. Its cause is the first failure."""
    first = cause or GenerationFailed(decision.first.message)
    hint = _DYING_WORKERS if decision.first.kind == "lost" else ""
    error = QueryFailed(f"{first}\nThe query gave up: {decision.reason}{hint}")
    error.__cause__ = first
    return error
