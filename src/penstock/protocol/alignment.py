"""The checkpoints of one subtask: from the first barrier (or trigger) to the complete capture.

Unaligned: with the first barrier's *arrival*, between two steps, the epoch ends: what waits in front of the barrier on
each input is captured, channels whose barrier is missing record what arrives until it comes, and the barrier goes to
the head of all outputs, capturing what it passes. Nothing blocks. Aligned: the barrier is consumed in order, its
channel blocks, and when all have arrived it goes to the tail of the outputs.

Older checkpoints that are still aligning are turned unaligned before a newer unaligned one starts, oldest first: a
barrier never overtakes an older one. A channel on which a newer barrier comes while an older is missing kills the
older one: it was dropped upstream and can never complete.

The machine owns no rows and calls nobody. It tells its owner what to do with commands, to be carried out in order::

    EndEpoch(barrier)   run finish_epoch through the chain, its rows into the outputs; snapshot operators, sink and
                        source; then call ``ended(barrier)``, before anything else
    CaptureReady(...)   all input barriers came and all output barriers left: hand the capture to the host
    Declined(...)       the checkpoint cannot complete here

Lifecycle of one checkpoint::

    (none) --aligned barrier--> ALIGNING --all reached--> ENDING --ended--> DRAINING --barriers left--> ready
    (none) --unaligned barrier, trigger--> ENDING --ended--> DRAINING --all arrived, barriers left--> ready
    ALIGNING --a newer unaligned one, or an unaligned barrier of its own--> ENDING
    any --abort, killed--> dead
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.errors import ProtocolViolation
from penstock.ids import ChannelId, CheckpointId
from penstock.protocol.elements import Alignment, Barrier, Buffer, Captured, Element, EndOfPartition
from penstock.protocol.gate import InputGate
from penstock.protocol.output import Outputs

MAX_DEAD = 128
"""Dead ids remembered. A barrier of a dead checkpoint can only be as late as the channels hold, and the coordinator has
far fewer checkpoints in flight."""

MAX_ACTIVE = 32
"""Checkpoints in flight at one subtask; the coordinator allows far fewer."""


class Phase(Enum):
    ALIGNING = "aligning"
    ENDING = "ending"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class EndEpoch:
    barrier: Barrier


@dataclass(frozen=True, slots=True)
class CaptureReady:
    """``inflight`` in restore order per channel; times in the caller's clock."""

    checkpoint: CheckpointId
    inflight: Sequence[Captured]
    first_barrier_ms: float
    last_barrier_ms: float


@dataclass(frozen=True, slots=True)
class Declined:
    checkpoint: CheckpointId
    reason: str


Command = EndEpoch | CaptureReady | Declined


@dataclass
class _Progress:
    """One checkpoint in flight. ``awaited``: channels whose barrier has not come (aligned: not been consumed)."""

    barrier: Barrier
    phase: Phase
    awaited: list[ChannelId]
    first_barrier_ms: float
    last_barrier_ms: float
    consumer_side: list[Captured] = field(default_factory=list)
    producer_side: list[Captured] = field(default_factory=list)
    recorded_bytes: int = 0


class SubtaskCheckpoints:
    """All checkpoints in flight at one subtask.

    Args:
        subject: names the machine in errors.
        gate: the subtask's inputs; without channels for a source.
        outputs: the subtask's outputs; without channels for a sink.
        max_recorded_bytes: a checkpoint whose recording exceeds this is declined.
    """

    def __init__(self, subject: str, gate: InputGate, outputs: Outputs, max_recorded_bytes: int) -> None:
        self._subject = subject
        self._gate = gate
        self._outputs = outputs
        self._max_recorded_bytes = max_recorded_bytes
        self._active: dict[CheckpointId, _Progress] = {}
        self._dead: dict[CheckpointId, None] = {}
        self._newest: CheckpointId = 0

    @property
    def active(self) -> tuple[CheckpointId, ...]:
        return tuple(self._active)

    def triggered(self, checkpoint: CheckpointId, alignment: Alignment, now_ms: float) -> list[Command]:
        """The coordinator's trigger, at a source: as a barrier that arrives everywhere at once."""
        if self._gate.channels:
            raise ProtocolViolation(self._subject, "has inputs", f"trigger of checkpoint {checkpoint}")
        if checkpoint in self._dead:
            return []
        if checkpoint <= self._newest:
            raise ProtocolViolation(self._subject, f"after checkpoint {self._newest}", f"trigger of {checkpoint}")
        barrier = Barrier(checkpoint, alignment)
        commands = self._turn_older(checkpoint) if alignment is Alignment.UNALIGNED else []
        self._begin(barrier, Phase.ENDING, now_ms)
        return [*commands, EndEpoch(barrier)]

    def arrived(self, channel: ChannelId, element: Element, now_ms: float) -> list[Command]:
        """An element came in on a channel; the gate queues it, except for barriers that act at once or are dead."""
        if isinstance(element, Barrier):
            return self._barrier_arrived(channel, element, now_ms)
        self._gate.arrive(channel, element)
        if isinstance(element, Buffer):
            return self._record(channel, element)
        if isinstance(element, EndOfPartition):
            return self._end_arrived(channel, now_ms)
        return []

    def reached(self, channel: ChannelId, barrier: Barrier, now_ms: float) -> list[Command]:
        """The gate consumed an aligned barrier in order and blocked its channel."""
        progress = self._active.get(barrier.checkpoint)
        if progress is None or progress.phase is not Phase.ALIGNING or channel not in progress.awaited:
            raise ProtocolViolation(self._subject, f"{self._active}", f"{barrier} reached on {channel}")
        progress.awaited.remove(channel)
        progress.last_barrier_ms = now_ms
        return self._aligned_end(progress)

    def channel_ended(self, channel: ChannelId, now_ms: float) -> list[Command]:
        """The gate consumed the end of a channel: it counts as reached by every checkpoint that still aligns."""
        commands: list[Command] = []
        for progress in list(self._active.values()):
            if progress.phase is Phase.ALIGNING and channel in progress.awaited:
                progress.awaited.remove(channel)
                progress.last_barrier_ms = now_ms
                commands += self._aligned_end(progress)
        return commands

    def ended(self, barrier: Barrier) -> list[Command]:
        """The owner carried out ``EndEpoch``: the barrier goes into the outputs."""
        progress = self._active.get(barrier.checkpoint)
        if progress is None or progress.phase is not Phase.ENDING or progress.barrier != barrier:
            raise ProtocolViolation(self._subject, f"{self._active}", f"end of epoch {barrier}")
        if barrier.alignment is Alignment.UNALIGNED:
            progress.producer_side += self._outputs.overtake(barrier)
        else:
            self._outputs.append(barrier)
        progress.phase = Phase.DRAINING
        return self.ready()

    def ready(self) -> list[Command]:
        """The captures that are complete now; to be asked for whenever barriers may have left the outputs."""
        done = [
            p
            for p in self._active.values()
            if p.phase is Phase.DRAINING and not p.awaited and not self._outputs.waits(p.barrier.checkpoint)
        ]
        for progress in done:
            del self._active[progress.barrier.checkpoint]
        return [
            CaptureReady(
                p.barrier.checkpoint, [*p.consumer_side, *p.producer_side], p.first_barrier_ms, p.last_barrier_ms
            )
            for p in done
        ]

    def abort(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is dead: nothing of it stays, and its barriers are dropped when they come."""
        self._active.pop(checkpoint, None)
        self._gate.drop(checkpoint)
        self._outputs.drop(checkpoint)
        self._dead[checkpoint] = None
        while len(self._dead) > MAX_DEAD:
            del self._dead[next(iter(self._dead))]

    def is_dead(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._dead

    def check_invariants(self) -> None:
        """Raise AssertionError if the machine is inconsistent or a dead checkpoint holds anything."""
        assert len(self._active) <= MAX_ACTIVE
        assert len(self._dead) <= MAX_DEAD
        assert list(self._active) == sorted(self._active), f"{self._subject}: {list(self._active)}"
        for checkpoint, progress in self._active.items():
            assert checkpoint not in self._dead
            aligned = progress.barrier.alignment is Alignment.ALIGNED
            assert aligned or progress.phase is not Phase.ALIGNING
        for channel in self._gate.channels.values():
            blocker = channel.blocked_by
            assert blocker is None or self._active[blocker].phase is Phase.ALIGNING, f"{channel.channel} blocked"

    def _barrier_arrived(self, channel: ChannelId, barrier: Barrier, now_ms: float) -> list[Command]:
        checkpoint = barrier.checkpoint
        input_channel = self._gate.channel(channel, str(barrier))
        if checkpoint in self._dead:
            return []
        if checkpoint < self._newest and checkpoint not in self._active:
            # A newer one already ran here without it: it cannot complete.
            return self._kill(checkpoint, f"its barrier came on {channel} behind checkpoint {self._newest}")
        input_channel.arrive(barrier)
        commands = self._kill_missing_before(channel, checkpoint)
        progress = self._active.get(checkpoint)
        unaligned = barrier.alignment is Alignment.UNALIGNED
        if progress is not None and progress.phase is not Phase.ALIGNING:
            # Already ended here, unaligned: this barrier ends the recording of its channel and goes no further.
            input_channel.drop(checkpoint)
            progress.awaited.remove(channel)
            progress.last_barrier_ms = now_ms
            return [*commands, *self.ready()]
        if unaligned:
            commands += self._turn_older(checkpoint)
        if progress is None:
            progress = self._begin(barrier, Phase.ALIGNING, now_ms)
        progress.last_barrier_ms = now_ms
        if unaligned:
            commands += self._turn(progress)
        return commands

    def _begin(self, barrier: Barrier, phase: Phase, now_ms: float) -> _Progress:
        if len(self._active) >= MAX_ACTIVE:
            raise ProtocolViolation(self._subject, f"{len(self._active)} checkpoints in flight", str(barrier))
        awaited = [c.channel for c in self._gate.channels.values() if not c.ended]
        progress = _Progress(barrier, phase, awaited, now_ms, now_ms)
        self._active[barrier.checkpoint] = progress
        self._newest = barrier.checkpoint
        return progress

    def _turn_older(self, checkpoint: CheckpointId) -> list[Command]:
        return [
            c
            for older in list(self._active.values())
            if older.barrier.checkpoint < checkpoint
            for c in self._turn(older)
        ]

    def _turn(self, progress: _Progress) -> list[Command]:
        """Make a checkpoint unaligned from here on: its inputs and, if it got that far, its outputs."""
        checkpoint = progress.barrier.checkpoint
        barrier = Barrier(checkpoint, Alignment.UNALIGNED)
        if progress.phase is not Phase.ALIGNING:
            if progress.barrier.alignment is Alignment.ALIGNED:
                progress.barrier = barrier
                progress.producer_side += self._outputs.overtake_waiting(barrier)
            return []
        progress.barrier = barrier
        progress.phase = Phase.ENDING
        missing = []
        for channel in progress.awaited:
            input_channel = self._gate.channels[channel]
            arrived = input_channel.holds_barrier(checkpoint)
            progress.consumer_side += input_channel.capture(checkpoint if arrived else None)
            input_channel.drop(checkpoint)
            if not arrived and not input_channel.end_arrived:
                missing.append(channel)
        progress.awaited = missing
        self._gate.unblock(checkpoint)
        return [EndEpoch(barrier)]

    def _aligned_end(self, progress: _Progress) -> list[Command]:
        if progress.awaited:
            return []
        progress.phase = Phase.ENDING
        self._gate.unblock(progress.barrier.checkpoint)
        return [EndEpoch(progress.barrier)]

    def _record(self, channel: ChannelId, buffer: Buffer) -> list[Command]:
        commands: list[Command] = []
        for progress in list(self._active.values()):
            if progress.phase is Phase.ALIGNING or channel not in progress.awaited:
                continue
            progress.consumer_side.append(self._gate.channels[channel].reference(buffer))
            progress.recorded_bytes += buffer.cost
            if progress.recorded_bytes > self._max_recorded_bytes:
                commands += self._kill(
                    progress.barrier.checkpoint,
                    f"recorded more than {self._max_recorded_bytes} bytes of in-flight data",
                )
        return commands

    def _end_arrived(self, channel: ChannelId, now_ms: float) -> list[Command]:
        for progress in self._active.values():
            if progress.phase is not Phase.ALIGNING and channel in progress.awaited:
                progress.awaited.remove(channel)
                progress.last_barrier_ms = now_ms
        return self.ready()

    def _kill_missing_before(self, channel: ChannelId, checkpoint: CheckpointId) -> list[Command]:
        commands: list[Command] = []
        for older in list(self._active.values()):
            id_ = older.barrier.checkpoint
            if id_ >= checkpoint or channel not in older.awaited:
                continue
            if not self._gate.channels[channel].holds_barrier(id_):
                commands += self._kill(id_, f"barrier {checkpoint} came on {channel} where {id_} never did")
        return commands

    def _kill(self, checkpoint: CheckpointId, reason: str) -> list[Command]:
        self.abort(checkpoint)
        return [Declined(checkpoint, reason)]
