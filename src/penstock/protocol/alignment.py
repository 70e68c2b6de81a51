"""Checkpoints of one subtask, from the first barrier (or trigger) to the complete capture.

*Unaligned*: the epoch ends with the *arrival* of the first barrier, between two steps. The queued rows in front of the
barrier on each input are captured. Channels whose barrier is missing record arriving rows until it comes. The barrier
goes to the head of all outputs and captures the rows that it overtakes. Nothing blocks. *Aligned*: the barrier is
consumed in order, and its channel blocks. When all have arrived, the barrier goes to the tail of the outputs.

*Time-out*: an aligned barrier may carry a time budget. When that is used up, checkpoints that are still aligning here
turn unaligned, and a barrier that is still in an output queue moves to its head. The input side and the output side do
so independently.

*Last barrier*: with ``on_last`` an unaligned checkpoint begins when its last barrier has arrived. Until then channels
whose barrier was read are blocked, and nothing has to be recorded.

*Limit*: with an ``allowance``, an unaligned barrier is treated as an aligned one whose deadline has passed. A
checkpoint stays aligned after its deadline until the allowance covers the rows that it would capture. Input side and
output side are decided separately. The input side also waits until its last barrier has arrived, so that nothing has to
be recorded.

Before a newer checkpoint overtakes, older checkpoints that are still aligning are turned unaligned, oldest first,
because a barrier never overtakes an older one. If a newer barrier comes on a channel that still lacks an older one, the
older checkpoint is declined: its barrier was dropped upstream, so it can never complete.

Every channel carries every barrier, also after its end.

The state machine owns no rows and calls only the ``allowance``. It returns commands that its owner must execute in
order::

    EndEpoch(barrier)   run finish_epoch through the chain, with its rows going to the outputs; snapshot operators,
                        sink and source; then call ``ended(barrier)`` before anything else
    Record(...)         pass on this part of the in-flight data, to be written while the rest is still being captured
    CaptureReady(...)   all input barriers came and all output barriers left: pass the capture to the host
    Declined(...)       the checkpoint cannot complete here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer, Captured, Element, EndOfPartition, Watermark
from penstock.model.ids import ChannelId, CheckpointId
from penstock.protocol.gate import InputGate
from penstock.protocol.lifecycle import Lifecycle, Transition
from penstock.protocol.output import Outputs

MAX_DEAD = 128
"""Maximum number of aborted checkpoint ids remembered.

A barrier of an aborted checkpoint is delayed at most by the contents of the channels, and the coordinator has far fewer
checkpoints in flight.
"""

MAX_ACTIVE = 32
"""Maximum number of checkpoints in flight at one subtask; the coordinator allows far fewer."""

PART_BYTES = 1 << 20
"""Size of the parts in which in-flight data is passed on.

A smaller part is not worth a write of its own. A larger one would be held here while the disk is idle.
"""


Allowance = Callable[[CheckpointId, int], bool]
"""Reserves this many bytes for the in-flight data of a checkpoint. Returns False if the limit does not allow it."""


class Phase(Enum):
    NONE = "none"
    ALIGNING = "aligning"
    ENDING = "ending"
    DRAINING = "draining"
    READY = "ready"
    DEAD = "dead"


LIFECYCLE = Lifecycle(
    "the checkpoint at a subtask",
    Phase.NONE,
    (
        Transition(Phase.NONE, "trigger", Phase.ENDING),
        Transition(Phase.NONE, "first barrier", Phase.ALIGNING),
        Transition(Phase.ALIGNING, "last barrier read", Phase.ENDING),
        Transition(Phase.ALIGNING, "turned unaligned", Phase.ENDING),
        Transition(Phase.ENDING, "epoch ended", Phase.DRAINING),
        Transition(Phase.DRAINING, "barriers in and out", Phase.READY),
        Transition(Phase.ALIGNING, "abort", Phase.DEAD),
        Transition(Phase.ENDING, "abort", Phase.DEAD),
        Transition(Phase.DRAINING, "abort", Phase.DEAD),
    ),
)


@dataclass(frozen=True, slots=True)
class EndEpoch:
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Record:
    """Captured data that is complete. It is passed on only once."""

    checkpoint: CheckpointId
    inflight: Sequence[Captured]


@dataclass(frozen=True, slots=True)
class CaptureReady:
    """Announces the complete capture of a checkpoint. Times are on the caller's clock.

    Attributes:
        inflight: captured data that was not recorded before.
        processed_bytes: bytes of the rows consumed between the first barrier and the moment when the last barrier was
            read or took effect on arrival.
    """

    checkpoint: CheckpointId
    inflight: Sequence[Captured]
    unaligned: bool
    start_delay_ms: float
    first_barrier_ms: float
    last_barrier_ms: float
    processed_bytes: int


@dataclass(frozen=True, slots=True)
class Declined:
    checkpoint: CheckpointId
    reason: str


Command = EndEpoch | Record | CaptureReady | Declined


@dataclass
class _Progress:
    """One checkpoint in flight.

    Attributes:
        barrier: the barrier as it will be sent.
        awaited: channels whose barrier has not arrived (while aligning: has not been read).
        deadline_ms: time at which alignment ends.
        captured: captured data that was not passed on yet.
        taken_before_bytes: bytes that the gate had consumed when the checkpoint began.
        processed_bytes: bytes consumed since then, while channels were awaited.
        overdue: True if the deadline has passed and the allowance did not cover the capture.
        overtook: True if rows of input channels were captured.
    """

    barrier: Barrier
    awaited: list[ChannelId]
    first_barrier_ms: float
    last_barrier_ms: float
    deadline_ms: float | None
    taken_before_bytes: int
    processed_bytes: int = 0
    began_aligned: bool = False
    phase: Phase = Phase.NONE
    captured: list[Captured] = field(default_factory=list)
    captured_bytes: int = 0
    overdue: bool = False
    overtook: bool = False

    @property
    def checkpoint(self) -> CheckpointId:
        return self.barrier.checkpoint

    @property
    def aligned(self) -> bool:
        return self.barrier.alignment is Alignment.ALIGNED

    def late(self, now_ms: float) -> bool:
        """Return True if it must no longer be aligned."""
        if self.overdue:
            return True  # The clock does not matter here: another thread may have timed the arrival of a barrier.
        return not self.aligned or (self.deadline_ms is not None and now_ms >= self.deadline_ms)

    def move(self, event: str) -> None:
        self.phase = LIFECYCLE.after(self.phase, event, f"checkpoint {self.checkpoint}")

    def capture(self, captured: Iterable[Captured]) -> None:
        for part in captured:
            self.captured.append(part)
            self.captured_bytes += part.cost

    def record(self, part_bytes: int) -> list[Command]:
        """Return a command with the captured data once it is large enough."""
        if self.captured_bytes < part_bytes:
            return []
        part, self.captured, self.captured_bytes = self.captured, [], 0
        return [Record(self.checkpoint, part)]


class SubtaskCheckpoints:
    """All checkpoints in flight at one subtask.

    Args:
        subject: name of the state machine in errors.
        gate: the subtask's inputs; without channels for a source.
        outputs: the subtask's outputs; without channels for a sink.
        on_last: begin unaligned checkpoints with their last barrier instead of their first.
        part_bytes: size of the parts in which in-flight data is passed on; None for the default.
        allowance: limits the captured bytes; None for no limit.

    Attributes:
        active: checkpoints by id, ascending; only this state machine changes it.
        turned_at_input, turned_at_output: how often an aligned checkpoint was turned unaligned at that side.
    """

    def __init__(
        self,
        subject: str,
        gate: InputGate,
        outputs: Outputs,
        on_last: bool = False,
        part_bytes: int | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self._subject = subject
        self._gate = gate
        self._outputs = outputs
        self._on_last = on_last
        self._part_bytes = part_bytes or PART_BYTES
        self._allowance = allowance
        self.active: dict[CheckpointId, _Progress] = {}
        self._dead: dict[CheckpointId, None] = {}
        self._newest: CheckpointId = 0
        self.turned_at_input = 0
        self.turned_at_output = 0

    def phase(self, checkpoint: CheckpointId) -> Phase:
        """Return the phase of a checkpoint. It is NONE also after the checkpoint's end."""
        return self.active[checkpoint].phase if checkpoint in self.active else Phase.NONE

    # -- events ---------------------------------------------------------------------------------------------------

    def triggered(self, barrier: Barrier, now_ms: float) -> list[Command]:
        """Handle the coordinator's trigger at a source, like a barrier that arrives on all channels at once."""
        checkpoint = barrier.checkpoint
        if self._gate.channels:
            raise ProtocolViolation(self._subject, "has inputs", f"trigger of checkpoint {checkpoint}")
        if checkpoint in self._dead:
            return []
        if checkpoint <= self._newest:
            raise ProtocolViolation(self._subject, f"after checkpoint {self._newest}", f"trigger of {checkpoint}")
        turns = barrier.alignment is Alignment.UNALIGNED and self._allowance is None
        commands = self._turn_older(checkpoint) if turns else []
        progress = self._begin(barrier, now_ms)
        progress.move("trigger")
        return [*commands, EndEpoch(barrier)]

    def arrived(self, channel: ChannelId, element: Element, now_ms: float) -> list[Command]:
        """Handle an element that the gate has queued.

        Barriers that take effect at once or belong to an aborted checkpoint are removed from the queue. Elements other
        than barriers matter only while checkpoints are ``active``.
        """
        match element:
            case Barrier():
                return self._barrier_arrived(channel, element, now_ms)
            case Buffer():
                return self._record(channel, element)
            case Watermark() | EndOfPartition():
                return []
            case _:
                assert_never(element)

    def reached(self, channel: ChannelId, barrier: Barrier, now_ms: float) -> list[Command]:
        """Handle a barrier that the gate consumed in order. Its channel is blocked."""
        progress = self.active.get(barrier.checkpoint)
        if progress is None or progress.phase is not Phase.ALIGNING or channel not in progress.awaited:
            raise ProtocolViolation(
                self._subject, f"checkpoints {list(self.active)}", f"{barrier} reached on {channel}"
            )
        self._came(progress, channel, now_ms)
        if progress.awaited:
            return []
        commands = [] if progress.aligned else self._turn_older(progress.checkpoint)
        progress.move("last barrier read")
        self._gate.unblock(progress.checkpoint)
        return [*commands, EndEpoch(progress.barrier)]

    def turn_timed_out(self, now_ms: float) -> list[Command]:
        """Turn checkpoints unaligned that were aligned for too long, each after all older ones.

        With an allowance, call it also after rows have been consumed or have left.
        """
        commands: list[Command] = []
        turn = self._turn_with_older if self._allowance is None else self._turn_as_allowed
        for progress in list(self.active.values()):
            if progress.late(now_ms) and (progress.aligned or self._allowance is not None):
                commands += turn(progress)
        return commands

    def deadline_ms(self) -> float | None:
        """Return the time at which ``turn_timed_out`` must be called even without another event, or None."""
        timed = [p for p in self.active.values() if p.aligned and not p.overdue]
        return min((p.deadline_ms for p in timed if p.deadline_ms is not None), default=None)

    def ended(self, barrier: Barrier) -> list[Command]:
        """Put the barrier into the outputs. The owner calls it after executing ``EndEpoch``."""
        progress = self.active.get(barrier.checkpoint)
        if progress is None or progress.phase is not Phase.ENDING or progress.barrier != barrier:
            raise ProtocolViolation(self._subject, f"checkpoints {list(self.active)}", f"end of epoch {barrier}")
        if not progress.aligned and not self._allows(progress, self._outputs.bytes_ahead(progress.checkpoint)):
            progress.barrier = _aligned(progress.barrier)
            progress.deadline_ms = progress.first_barrier_ms
        if progress.aligned:
            self._outputs.append(progress.barrier)
        else:
            progress.capture(self._outputs.overtake(barrier))
        progress.move("epoch ended")
        return [*progress.record(self._part_bytes), *self.ready()]

    def leaving(self, barrier: Barrier, now_ms: float) -> Barrier:
        """Return the barrier to send, updated with the time that was spent here. Call it before ``ready``."""
        progress = self.active[barrier.checkpoint]
        spent_ms = max(0.0, now_ms - progress.first_barrier_ms)
        remaining_ms = None
        if barrier.alignment is Alignment.ALIGNED and progress.deadline_ms is not None:
            remaining_ms = max(0, int(progress.deadline_ms - now_ms))
        return Barrier(
            barrier.checkpoint, barrier.alignment, remaining_ms, progress.barrier.elapsed_ms + round(spent_ms)
        )

    def ready(self) -> list[Command]:
        """Return the captures that are complete now. Call it whenever barriers may have left the outputs."""
        done = [
            p
            for p in self.active.values()
            if p.phase is Phase.DRAINING and not p.awaited and not self._outputs.holds_barrier(p.checkpoint)
        ]
        for progress in done:
            progress.move("barriers in and out")
            del self.active[progress.checkpoint]
        return [_capture_of(progress) for progress in done]

    def abort(self, checkpoint: CheckpointId) -> None:
        """Remove an aborted checkpoint. Its barriers are dropped when they come."""
        progress = self.active.pop(checkpoint, None)
        if progress is not None:
            progress.move("abort")
        self._gate.drop(checkpoint)
        self._outputs.drop(checkpoint)
        self._dead[checkpoint] = None
        while len(self._dead) > MAX_DEAD:
            del self._dead[next(iter(self._dead))]

    def check_invariants(self) -> None:
        """Raise AssertionError if the state is inconsistent or an aborted checkpoint still holds anything."""
        assert len(self.active) <= MAX_ACTIVE
        assert len(self._dead) <= MAX_DEAD
        assert list(self.active) == sorted(self.active), f"{self._subject}: {list(self.active)}"
        for checkpoint, progress in self.active.items():
            assert checkpoint not in self._dead
            assert 0 <= progress.processed_bytes <= self._gate.taken_bytes
            assert progress.aligned or self._on_last or progress.phase is not Phase.ALIGNING
            assert progress.phase is not Phase.ALIGNING or not progress.captured
        for channel in self._gate.channels.values():
            blocker = channel.blocked_by
            assert blocker is None or self.phase(blocker) is Phase.ALIGNING, f"{channel.channel} blocked by {blocker}"

    # -- barriers -------------------------------------------------------------------------------------------------

    def _barrier_arrived(self, channel: ChannelId, barrier: Barrier, now_ms: float) -> list[Command]:
        checkpoint = barrier.checkpoint
        if self._allowance is not None and barrier.alignment is Alignment.UNALIGNED:
            barrier = _aligned(barrier)
        input_channel = self._gate.channel(channel, barrier)
        if checkpoint in self._dead:
            input_channel.drop(checkpoint)
            return []
        if checkpoint < self._newest and checkpoint not in self.active:
            # A newer checkpoint already ran here without this one, so it cannot complete.
            return self._kill(checkpoint, f"its barrier came on {channel} behind checkpoint {self._newest}")
        commands = self._kill_missing_before(channel, checkpoint)
        progress = self.active.get(checkpoint)
        if progress is not None and progress.phase is not Phase.ALIGNING:
            # The epoch already ended here, unaligned. This barrier ends the recording of its channel and is not
            # forwarded.
            input_channel.drop(checkpoint)
            self._came(progress, channel, now_ms)
            return [*commands, *self.ready()]
        if progress is None:
            progress = self._begin(barrier, now_ms)
            progress.move("first barrier")
        self._take_over(progress, barrier, now_ms)
        if not progress.aligned and self._may_turn(progress):
            commands += self._turn_with_older(progress)
        return commands

    def _begin(self, barrier: Barrier, now_ms: float) -> _Progress:
        if len(self.active) >= MAX_ACTIVE:
            raise ProtocolViolation(self._subject, f"{len(self.active)} checkpoints in flight", str(barrier))
        aligned = barrier.alignment is Alignment.ALIGNED
        progress = _Progress(
            barrier,
            list(self._gate.channels),
            now_ms,
            now_ms,
            _deadline_ms(barrier, now_ms),
            self._gate.taken_bytes,
            began_aligned=aligned,
        )
        self.active[barrier.checkpoint] = progress
        self._newest = barrier.checkpoint
        return progress

    def _came(self, progress: _Progress, channel: ChannelId, now_ms: float) -> None:
        """Record that the awaited barrier of a channel came."""
        progress.awaited.remove(channel)
        progress.last_barrier_ms = max(progress.last_barrier_ms, now_ms)
        progress.processed_bytes = self._gate.taken_bytes - progress.taken_before_bytes

    def _take_over(self, progress: _Progress, barrier: Barrier, now_ms: float) -> None:
        """Handle a further barrier of a checkpoint that is aligning.

        The shortest time budget applies; unaligned wins.
        """
        progress.last_barrier_ms = max(progress.last_barrier_ms, now_ms)
        if barrier.alignment is Alignment.UNALIGNED:
            progress.barrier = _unaligned(progress.barrier)
            return
        deadline_ms = _deadline_ms(barrier, now_ms)
        if deadline_ms is not None and progress.deadline_ms is not None:
            progress.deadline_ms = min(progress.deadline_ms, deadline_ms)

    def _may_turn(self, progress: _Progress) -> bool:
        """Return True if an unaligned checkpoint may begin.

        It begins with its first barrier or, with ``on_last``, when the last one has arrived.
        """
        if not self._on_last:
            return True
        return all(self._gate.channels[c].holds_barrier(progress.checkpoint) for c in progress.awaited)

    # -- turning unaligned ----------------------------------------------------------------------------------------

    def _allows(self, progress: _Progress, captured_bytes: int) -> bool:
        allowed = self._allowance is None or self._allowance(progress.checkpoint, captured_bytes)
        progress.overdue = progress.overdue or not allowed
        return allowed

    def _turn_as_allowed(self, progress: _Progress) -> list[Command]:
        """Turn a checkpoint unaligned, after all older ones, as far as the allowance covers their captures."""
        commands: list[Command] = []
        for older in [p for p in self.active.values() if p.checkpoint <= progress.checkpoint]:
            if older.phase is Phase.DRAINING:
                commands += self._turn_outputs_as_allowed(older)
            elif older.phase is Phase.ALIGNING:
                turned = self._turn_inputs_as_allowed(older)
                if not turned:
                    progress.overdue = True
                    break
                commands += turned
        return commands

    def _turn_inputs_as_allowed(self, progress: _Progress) -> list[Command]:
        checkpoint = progress.checkpoint
        waiting = [self._gate.channels[channel] for channel in progress.awaited]
        if not all(channel.holds_barrier(checkpoint) for channel in waiting):
            progress.overdue = True
            return []
        ahead = sum(captured.cost for channel in waiting for captured in channel.capture(checkpoint))
        return self._turn_inputs(progress) if self._allows(progress, ahead) else []

    def _turn_outputs_as_allowed(self, progress: _Progress) -> list[Command]:
        """Let the barrier overtake.

        This may happen repeatedly: the barrier waits after older barriers, which may overtake later.
        """
        ahead = self._outputs.bytes_ahead_of_waiting(progress.checkpoint)
        return self._overtake_waiting(progress) if ahead and self._allows(progress, ahead) else []

    def _turn_with_older(self, progress: _Progress) -> list[Command]:
        progress.barrier = _unaligned(progress.barrier) if progress.phase is Phase.ALIGNING else progress.barrier
        if progress.phase is Phase.ALIGNING and not self._may_turn(progress):
            return []
        return [*self._turn_older(progress.checkpoint), *self._turn(progress)]

    def _turn_older(self, checkpoint: CheckpointId) -> list[Command]:
        older = [progress for id_, progress in self.active.items() if id_ < checkpoint]
        return [command for progress in older for command in self._turn(progress)]

    def _turn(self, progress: _Progress) -> list[Command]:
        """Turn a checkpoint unaligned: its inputs or, after the end of its epoch, its outputs."""
        if progress.phase is Phase.ALIGNING:
            return self._turn_inputs(progress)
        if progress.phase is Phase.DRAINING and progress.aligned:
            return self._overtake_waiting(progress)
        return []

    def _overtake_waiting(self, progress: _Progress) -> list[Command]:
        self.turned_at_output += progress.aligned
        progress.barrier = _unaligned(progress.barrier)
        progress.capture(self._outputs.overtake_waiting(progress.barrier))
        return progress.record(self._part_bytes)

    def _turn_inputs(self, progress: _Progress) -> list[Command]:
        checkpoint = progress.checkpoint
        progress.barrier = _unaligned(progress.barrier)
        missing = []
        for channel in progress.awaited:
            input_channel = self._gate.channels[channel]
            arrived = input_channel.holds_barrier(checkpoint)
            progress.capture(input_channel.capture(checkpoint if arrived else None))
            input_channel.drop(checkpoint)
            if not arrived:
                missing.append(channel)
        progress.awaited = missing
        progress.processed_bytes = self._gate.taken_bytes - progress.taken_before_bytes
        progress.overtook = True
        progress.move("turned unaligned")
        self._gate.unblock(checkpoint)
        self.turned_at_input += progress.began_aligned
        return [*progress.record(self._part_bytes), EndEpoch(progress.barrier)]

    def _record(self, channel: ChannelId, buffer: Buffer) -> list[Command]:
        commands: list[Command] = []
        for progress in self.active.values():
            if progress.phase is not Phase.ALIGNING and channel in progress.awaited:
                progress.capture([self._gate.channels[channel].reference(buffer)])
                commands += progress.record(self._part_bytes)
        return commands

    # -- aborted checkpoints --------------------------------------------------------------------------------------

    def _kill_missing_before(self, channel: ChannelId, checkpoint: CheckpointId) -> list[Command]:
        commands: list[Command] = []
        for id_, older in list(self.active.items()):
            if id_ < checkpoint and channel in older.awaited and not self._gate.channels[channel].holds_barrier(id_):
                commands += self._kill(id_, f"barrier {checkpoint} came on {channel} where {id_} never did")
        return commands

    def _kill(self, checkpoint: CheckpointId, reason: str) -> list[Command]:
        self.abort(checkpoint)
        return [Declined(checkpoint, reason)]


def _unaligned(barrier: Barrier) -> Barrier:
    return Barrier(barrier.checkpoint, Alignment.UNALIGNED, None, barrier.elapsed_ms)


def _aligned(barrier: Barrier) -> Barrier:
    """Return the aligned barrier with a deadline that has passed."""
    return Barrier(barrier.checkpoint, Alignment.ALIGNED, 0, barrier.elapsed_ms)


def _deadline_ms(barrier: Barrier, now_ms: float) -> float | None:
    return None if barrier.remaining_ms is None else now_ms + barrier.remaining_ms


def _capture_of(progress: _Progress) -> CaptureReady:
    return CaptureReady(
        progress.checkpoint,
        progress.captured,
        unaligned=progress.overtook or not progress.aligned,
        start_delay_ms=progress.barrier.elapsed_ms,
        first_barrier_ms=progress.first_barrier_ms,
        last_barrier_ms=progress.last_barrier_ms,
        processed_bytes=progress.processed_bytes,
    )
