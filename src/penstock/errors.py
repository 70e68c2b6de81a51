"""Every error a user can meet, as one tree.

::

    PenstockError
    ├── ConfigError            an option or argument is unknown or out of range
    ├── NotSupported           the plan holds something Penstock will not run; names the node and the workaround
    │   └── NotYet             ... that is planned
    ├── LocationError          the checkpoint location is missing, foreign, held by another or incompatible
    │   ├── PlanChanged        the stored state does not fit the new plan
    │   ├── Fenced             another driver took the location over; this one stopped
    │   └── CorruptSnapshot    a section or metadata file does not match its checksum; it is named
    ├── ResourceError          Java, slots, disk or ports are missing
    ├── FunctionError          user code raised; carries operator and Python traceback
    ├── DataError              input rows or files cannot be read as declared
    │   ├── UnfitFile          an input file cannot be read by the query, or is in a directory where it cannot be read
    │   └── EvaluationError    an expression met a value that ANSI mode forbids; the message is Spark's
    ├── CheckpointFailed       one checkpoint was declined or aborted; the query goes on
    ├── SinkError
    │   ├── CommitFailed       the sink says that nothing of the epoch is visible
    │   ├── CommitInterrupted  a part of the epoch may be visible; repeating the commit finishes it
    │   └── CommitUnknown      the outcome must be looked up, never resent
    ├── ServiceError           what a REST service was asked for did not come about
    │   ├── ServiceRefused     it said no, and why; carries the HTTP status
    │   ├── ServiceUnreachable nothing was sent: nobody answers at its address
    │   └── NoAnswer           none came that can be read; what was asked for may have been done
    ├── QueryFailed            the query gave up; ``__cause__`` is the first cause
    │   └── GenerationFailed   one execution attempt ended (lost slot, lost link); recovery follows
    └── ProtocolViolation      a machine was handed an event its state forbids: a bug in Penstock

Leaves say what the user can do. All of them survive pickling: the constructor's arguments are ``args``. Where PySpark
raises an error of its own for the same mistake, a subclass in ``penstock.spark.errors`` is that error as well.
"""

from __future__ import annotations


class PenstockError(Exception):
    """The root. ``str(error)`` is one message that names the thing and the way out."""


def name_of(error: BaseException) -> str:
    """Return the name of the error's class in the tree above, for a subclass elsewhere too; else that of its class."""
    return next((one.__name__ for one in type(error).__mro__ if one.__module__ == __name__), type(error).__name__)


class ConfigError(PenstockError):
    """An option or argument is unknown, of the wrong type or out of range."""


class NotSupported(PenstockError):
    """The DataFrame, mode or environment holds something that Penstock refuses, by name."""


class NotYet(NotSupported):
    """Refused for now; a later release is planned to run it."""


class LocationError(PenstockError):
    """The checkpoint location cannot be used as it is."""


class PlanChanged(LocationError):
    """Operator ids, keys, state or edge schemas differ from the stored ones."""


class Fenced(LocationError):
    """Another driver took over this location. Nothing this driver does is visible from then on."""


class CorruptSnapshot(LocationError):
    """A file of a snapshot is missing or does not match its checksum."""


class ResourceError(PenstockError):
    """Java, Spark slots, disk space or a port is missing."""


class FunctionError(PenstockError):
    """User code raised.

    Args:
        operator: the operator's id and name.
        message: the exception as one line.
        user_traceback: the Python traceback in the worker.
        position: where in the input it happened; equal positions mean a deterministic error.
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
    """One checkpoint was declined or aborted. The query goes on; nothing is lost."""


class SinkError(PenstockError):
    """A sink refused to write or commit."""


class CommitFailed(SinkError):
    """The sink guarantees that nothing of the epoch is visible; the commit may be repeated."""


class CommitInterrupted(SinkError):
    """The commit failed on its way, and a part of the epoch may be visible. Repeating the commit finishes it."""


class CommitUnknown(SinkError):
    """The outcome of a commit is not known; it is resolved by looking, never by sending again."""


class SinkFenced(SinkError):
    """Another driver of this query has taken over the output.

    Nothing that this driver writes there becomes visible any more. If this driver still owns its checkpoint location,
    its next Generation takes over the output again.
    """


class ServiceError(PenstockError):
    """A request to a REST service failed."""


class ServiceRefused(ServiceError):
    """A REST service said no.

    Args:
        message: what it said.
        status: HTTP's.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ServiceUnreachable(ServiceError):
    """Nobody answers at the address of a REST service; nothing was sent. ``__cause__`` says what was tried."""


class NoAnswer(ServiceError):
    """A REST service gave no answer that can be read. What it was asked for it may have done all the same."""


class QueryFailed(PenstockError):
    """The query gave up. ``__cause__`` is the first cause."""


class GenerationFailed(QueryFailed):
    """One execution attempt ended: a slot or a link was lost. Recovery follows, within the restart bounds."""


class ProtocolViolation(PenstockError):
    """A protocol machine was handed an event that its state forbids; the machine is unchanged.

    Args:
        subject: which machine, for example ``gate(vertex=2, subtask=0)``.
        state: the state it was in.
        event: what it was handed.
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
    """Return what users want to read: the first cause below wrappers that say that a query or Generation ended."""
    while type(error) in (QueryFailed, GenerationFailed) and error.__cause__ is not None:
        error = error.__cause__
    return error
