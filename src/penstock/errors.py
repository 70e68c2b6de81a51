"""All errors that users can get, as one tree.

::

    PenstockError
    ├── ConfigError            an option or argument is unknown or out of range
    ├── NotSupported           Penstock does not run a part of the plan; names the node and the workaround
    │   └── NotYet             ... but support is planned
    ├── LocationError          the checkpoint location is missing, in use, incompatible, or not of this query
    │   ├── PlanChanged        the stored state does not fit the new plan
    │   ├── Fenced             another driver took over the location; this driver stopped
    │   └── CorruptSnapshot    a section or metadata file does not match its checksum; names the file
    ├── ResourceError          Java, slots, disk or ports are missing
    ├── FunctionError          user code raised an exception; carries operator and Python traceback
    ├── DataError              input rows or files cannot be read as declared
    │   ├── UnfitFile          the query cannot read an input file, because of its content or its directory
    │   └── EvaluationError    an expression met a value that ANSI mode forbids; the message is Spark's
    ├── CheckpointFailed       one checkpoint was declined or aborted; the query continues
    ├── SinkError
    │   ├── CommitFailed       the sink guarantees that nothing of the epoch is visible
    │   ├── CommitInterrupted  a part of the epoch may be visible; repeating the commit completes it
    │   ├── CommitUnknown      the outcome must be looked up; the commit must not be repeated
    │   └── SinkFenced         another driver of the query took over the output
    ├── ServiceError           a request to a REST service failed
    │   ├── ServiceRefused     the service rejected the request; carries the HTTP status
    │   ├── ServiceUnreachable nothing was sent: no connection to the service's address
    │   └── NoAnswer           no readable answer arrived; the request may have been executed
    ├── QueryFailed            the query gave up; ``__cause__`` is the first cause
    │   └── GenerationFailed   one generation failed (lost slot, lost link); recovery follows
    └── ProtocolViolation      a state machine received an event that its state forbids: a bug in Penstock

The messages of the leaves say what the user can do. All errors survive pickling, because ``args`` holds the arguments
of the constructor. If PySpark raises its own error for the same mistake, a class in ``penstock.spark.errors`` is a
subclass of both.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Base class of all errors. ``str(error)`` is one message that says what is wrong and what to do."""


def name_of(error: BaseException) -> str:
    """Return the name of the error's nearest base class in the tree above, or of its own class if there is none."""
    return next((one.__name__ for one in type(error).__mro__ if one.__module__ == __name__), type(error).__name__)


class ConfigError(PenstockError):
    """An option or argument is unknown, of the wrong type or out of range."""


class NotSupported(PenstockError):
    """Penstock does not support a part of the DataFrame, the mode or the environment. The message names that part."""


class NotYet(NotSupported):
    """Not supported in this release; support is planned."""


class LocationError(PenstockError):
    """The checkpoint location cannot be used as it is."""


class PlanChanged(LocationError):
    """Operator ids, keys, state or edge schemas differ from the stored ones."""


class Fenced(LocationError):
    """Another driver took over this location. After that, nothing that this driver does becomes visible."""


class CorruptSnapshot(LocationError):
    """A file of a snapshot is missing or does not match its checksum."""


class ResourceError(PenstockError):
    """Java, Spark slots, disk space or a port is missing."""


class FunctionError(PenstockError):
    """User code raised an exception.

    Args:
        operator: the operator's id and name.
        message: the exception as one line.
        user_traceback: the Python traceback in the worker.
        position: position in the input. If the error occurs again at an equal position, it is deterministic.
    """

    def __init__(self, operator: str, message: str, user_traceback: str = "", position: str = "") -> None:
        super().__init__(operator, message, user_traceback, position)
        self.operator = operator
        self.message = message
        self.user_traceback = user_traceback
        self.position = position

    def __str__(self) -> str:
        text = f"user code of operator {self.operator} raised {self.message}"
        if self.position:
            text += f" at {self.position}"
        return f"{text}\n{self.user_traceback}" if self.user_traceback else text


class DataError(PenstockError):
    """Input rows or files cannot be read as the schema and options declare."""


class UnfitFile(DataError):
    """The driver found an input file that the query cannot read. Every later discovery finds the same file."""


class EvaluationError(DataError):
    """An expression met a value that ANSI mode forbids (overflow, division by zero, a malformed cast)."""


class CheckpointFailed(PenstockError):
    """One checkpoint was declined or aborted. The query continues and loses no data."""


class SinkError(PenstockError):
    """A sink failed to write or commit."""


class CommitFailed(SinkError):
    """The sink guarantees that nothing of the epoch is visible; the commit may be repeated."""


class CommitInterrupted(SinkError):
    """The commit failed midway, and a part of the epoch may be visible. Repeating the commit completes it."""


class CommitUnknown(SinkError):
    """The outcome of a commit is unknown. It must be looked up at the target; the commit must not be repeated."""


class SinkFenced(SinkError):
    """Another driver of this query has taken over the output.

    Nothing that this driver writes there becomes visible any more. If this driver still owns its checkpoint location,
    its next generation takes over the output again.
    """


class ServiceError(PenstockError):
    """A request to a REST service failed."""


class ServiceRefused(ServiceError):
    """A REST service rejected the request.

    Args:
        message: the reason that the service gave.
        status: HTTP status.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ServiceUnreachable(ServiceError):
    """No connection to the address of a REST service; nothing was sent. ``__cause__`` says what was tried."""


class NoAnswer(ServiceError):
    """A REST service sent no readable answer. It may have executed the request nevertheless."""


class QueryFailed(PenstockError):
    """The query gave up. ``__cause__`` is the first cause."""


class GenerationFailed(QueryFailed):
    """One generation failed: a slot or a link was lost. Recovery follows, within the limits of the restart strategy."""


class ProtocolViolation(PenstockError):
    """A state machine received an event that its state forbids. The machine is unchanged.

    Args:
        subject: name of the state machine, for example ``gate(vertex=2, subtask=0)``.
        state: its state when the event arrived.
        event: the forbidden event.
        history: the most recent events, oldest first.
    """

    def __init__(self, subject: str, state: str, event: str, history: tuple[str, ...] = ()) -> None:
        super().__init__(subject, state, event, history)
        self.subject = subject
        self.state = state
        self.event = event
        self.history = history

    def __str__(self) -> str:
        story = "".join(f"\n  {line}" for line in self.history)
        return f"{self.subject} in state {self.state} cannot take {self.event}{story}"


def first_cause(error: BaseException) -> BaseException:
    """Return the first cause that is not itself a wrapper (``QueryFailed`` or ``GenerationFailed``)."""
    while type(error) in (QueryFailed, GenerationFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error
