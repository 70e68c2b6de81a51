"""Lifecycle of one checkpoint on the driver: its phases, and the table of transitions between them.

A checkpoint is RUNNING from its trigger until every slot has acknowledged it. Before its entry is being logged, it may
be given up at no cost; from then on the log alone decides. Complete and aborted checkpoints are forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SlotManifest
from penstock.protocol.lifecycle import Lifecycle, Transition


class Phase(Enum):
    NONE = "none"
    RUNNING = "running"
    WRITING = "writing"
    LOGGING = "logging"
    COMPLETE = "complete"
    ABORTED = "aborted"


DECLINED = "a slot declined"
TIMED_OUT = "timed out"
NOT_WRITTEN = "metadata not written"
NOT_LOGGED = "not logged"
SUBSUMED = "a newer one completed"
ENDED = "its Generation ended"
GAVE_WAY = "others had waited for an interval"

FAILURES = (DECLINED, TIMED_OUT, NOT_WRITTEN, NOT_LOGGED)
"""Causes that ``checkpoint.tolerableFailures`` counts. The others do not mean that checkpoints cannot be taken."""

TRANSITIONS = (
    Transition(Phase.NONE, "triggered", Phase.RUNNING),
    Transition(Phase.RUNNING, "all slots acknowledged", Phase.WRITING),
    Transition(Phase.RUNNING, DECLINED, Phase.ABORTED),
    Transition(Phase.RUNNING, TIMED_OUT, Phase.ABORTED),
    Transition(Phase.RUNNING, SUBSUMED, Phase.ABORTED),
    Transition(Phase.RUNNING, ENDED, Phase.ABORTED),
    Transition(Phase.RUNNING, GAVE_WAY, Phase.ABORTED),
    Transition(Phase.WRITING, "metadata written", Phase.LOGGING),
    Transition(Phase.WRITING, NOT_WRITTEN, Phase.ABORTED),
    Transition(Phase.WRITING, SUBSUMED, Phase.ABORTED),
    Transition(Phase.WRITING, ENDED, Phase.ABORTED),
    Transition(Phase.LOGGING, "logged", Phase.COMPLETE),
    Transition(Phase.LOGGING, NOT_LOGGED, Phase.ABORTED),
)

LIFECYCLE = Lifecycle("the checkpoint at the coordinator", Phase.NONE, TRANSITIONS)


@dataclass(frozen=True)
class Waiting:
    """A request whose checkpoint is not triggered yet.

    ``deadline_ms`` is None if the request has no time-out of its own. ``cancellations`` is the number of times that its
    checkpoint was canceled for others.
    """

    request: SnapshotRequested
    since_ms: float
    deadline_ms: float | None
    cancellations: int = 0


@dataclass
class Pending:
    """One checkpoint in flight.

    Attributes:
        request: request of the user or of the driver itself; None for a periodic checkpoint.
        base: base checkpoint named in its trigger; 0 for none.
        origin: the newest complete checkpoint at the trigger, which may be the restored one. Unread rows of recovered
            channels are references to it.
        started_ms: time of the request, or of the trigger if it was not requested.
        cancellations: number of times that the request was triggered and canceled before.
    """

    checkpoint: CheckpointId
    generation: GenerationId
    alignment: Alignment
    request: SnapshotRequested | None
    base: CheckpointId
    origin: CheckpointId
    started_ms: float
    deadline_ms: float
    triggered_ms: float
    cancellations: int = 0
    phase: Phase = Phase.NONE
    acks: dict[int, SlotManifest] = field(default_factory=dict)

    @property
    def periodic(self) -> bool:
        return self.request is None

    @property
    def strict(self) -> bool:
        """True if it is strictly aligned: nothing else may be triggered while it is in flight."""
        return self.alignment is Alignment.ALIGNED

    @property
    def gives_way(self) -> bool:
        """True if it makes others wait and may be canceled for them."""
        planned = self.request is not None and self.request.planned
        return self.strict and self.phase is Phase.RUNNING and not planned

    @property
    def last(self) -> bool:
        """True if the query ends with this checkpoint."""
        return self.request is not None and self.request.last

    @property
    def drain(self) -> bool:
        """True if it must have no in-flight data, so that sources do not read."""
        return self.request is not None and self.request.drain

    @property
    def way_out(self) -> str:
        """Advice for a checkpoint that takes too long, as the end of an error message."""
        if self.drain:
            return ". All rows in flight are processed first: raise checkpoint.timeout, or add slots"
        text = ". A strictly aligned snapshot waits for all queued data; an unaligned one does not"
        return text if self.strict else ""

    def missing(self, parallelism: int) -> list[int]:
        """Return the slots that have not acknowledged it."""
        return [slot for slot in range(parallelism) if slot not in self.acks]

    def timeout_text(self, parallelism: int) -> str:
        """Return the reason for its failure after ``deadline_ms``."""
        waited_ms = round(self.deadline_ms - self.started_ms)
        return f"not acknowledged by slots {self.missing(parallelism)} within {waited_ms} ms{self.way_out}"

    def again(self) -> Waiting:
        """Return the request to trigger it again after this checkpoint is aborted."""
        request = self.request
        assert request is not None, "nobody asked for a periodic one"
        deadline_ms = None if request.timeout_ms is None else self.started_ms + request.timeout_ms
        return Waiting(request, self.started_ms, deadline_ms, self.cancellations + 1)

    def step(self, event: str) -> None:
        """Change the phase. Raises ProtocolViolation, without a change, if the event is not allowed in this phase."""
        self.phase = LIFECYCLE.after(self.phase, event, str(self.checkpoint))
