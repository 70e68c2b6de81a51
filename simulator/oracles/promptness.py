"""Oracle of promptness: no barrier waits for data to be processed.

One step after the first barrier of an unaligned checkpoint has arrived (or its budget was used up), a subtask has sent
the barrier on every output. One step after the last barrier has arrived, it has handed its capture over. So the
duration of a checkpoint depends on the number of hops only, not on queued data or slow sinks.

With ``checkpoint.maxInflightBytes`` it may have to wait, but no longer than until what it would capture fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.config import TriggerOn
from penstock.model.elements import Alignment, Barrier
from penstock.model.ids import ChannelId, CheckpointId
from penstock.model.messages import TriggerCheckpoint
from penstock.testing.failure import SimulationFailure
from penstock.worker.subtask import Subtask
from simulator.engine.scheduler import NEVER

if TYPE_CHECKING:
    from simulator.engine.world import World


@dataclass
class _CheckpointProgress:
    """Barriers of one checkpoint that arrived and left. ``due_ms``: time from which on it must not wait any more."""

    due_ms: float = NEVER
    arrived: dict[ChannelId, None] = field(default_factory=dict)
    sent: dict[ChannelId, None] = field(default_factory=dict)


class Promptness:
    """Check of one subtask. Also checks that barrier ids rise on every channel it sends on."""

    def __init__(self, subtask: Subtask, world: World) -> None:
        self._subtask = subtask
        self._on_last = world.options.checkpoint_trigger_on is TriggerOn.LAST_BARRIER
        self._seen: dict[CheckpointId, _CheckpointProgress] = {}
        self._over: CheckpointId = 0
        self._before: list[tuple[CheckpointId, bool]] = []
        self._newest_sent: dict[ChannelId, CheckpointId] = {}
        self._ended: dict[CheckpointId, None] = {}

    def triggered(self, trigger: TriggerCheckpoint, now_ms: float) -> None:
        barrier = Barrier(trigger.checkpoint, trigger.alignment, trigger.remaining_ms)
        self._due(barrier, now_ms)

    def arrived(self, channel: ChannelId, barrier: Barrier, now_ms: float) -> None:
        """It is in the inbox."""
        seen = self._due(barrier, now_ms)
        if seen is not None:
            seen.arrived[channel] = None

    def sent(self, channel: ChannelId, barrier: Barrier) -> None:
        if barrier.checkpoint <= self._newest_sent.get(channel, 0):
            raise SimulationFailure(
                f"{channel}: barrier {barrier.checkpoint} after {self._newest_sent[channel]}", "barriers"
            )
        self._newest_sent[channel] = barrier.checkpoint
        seen = self._seen.get(barrier.checkpoint)
        if seen is not None:
            seen.sent[channel] = None

    def over(self, checkpoint: CheckpointId) -> None:
        """Forget a checkpoint that was captured, declined or aborted."""
        self._seen.pop(checkpoint, None)
        self._ended[checkpoint] = None
        while len(self._ended) > 64:
            del self._ended[next(iter(self._ended))]

    def step_begins(self, now_ms: float) -> None:
        """Note which checkpoints are due now and whether all their barriers have arrived."""
        if self._seen:
            inputs = len(self._subtask.gate.channels)
            self._before = [
                (checkpoint, len(seen.arrived) == inputs)
                for checkpoint, seen in self._seen.items()
                if seen.due_ms <= now_ms and (not self._on_last or len(seen.arrived) == inputs)
            ]

    def step_ended(self) -> None:
        for checkpoint, all_here in self._before:
            seen = self._seen.get(checkpoint)
            if seen is None:
                continue
            name = f"{self._subtask.subtask}, a step after the barrier of checkpoint {checkpoint} came"
            missing = [channel for channel in self._subtask.outputs.channels if channel not in seen.sent]
            if missing:
                raise SimulationFailure(f"{name}: it has not left on {missing[0]}", "progress")
            if all_here:
                raise SimulationFailure(f"{name} on every input: not captured", "progress")
        self._before = []

    def _due(self, barrier: Barrier, now_ms: float) -> _CheckpointProgress | None:
        if barrier.checkpoint in self._ended:
            return None
        seen = self._seen.setdefault(barrier.checkpoint, _CheckpointProgress())
        if barrier.alignment is Alignment.UNALIGNED:
            seen.due_ms = min(seen.due_ms, now_ms)
        elif barrier.remaining_ms is not None:
            seen.due_ms = min(seen.due_ms, now_ms + barrier.remaining_ms)
        return seen


class PromptnessWithinLimit(Promptness):
    """Check with an in-flight limit. ``room``: number of bytes that a checkpoint may still capture in this slot."""

    def __init__(self, subtask: Subtask, world: World, room: Callable[[CheckpointId], int]) -> None:
        super().__init__(subtask, world)
        self._room = room
        self._costs: list[tuple[CheckpointId, str, int]] = []

    def step_begins(self, now_ms: float) -> None:
        due = [checkpoint for checkpoint, seen in sorted(self._seen.items()) if seen.due_ms <= now_ms]
        self._costs = [(checkpoint, side, cost) for checkpoint in due for side, cost in self._waiting(checkpoint)]

    def step_ended(self) -> None:
        for checkpoint, side, cost in self._costs:
            still = dict(self._waiting(checkpoint)).get(side)
            # The rows that an older one has overtaken are then in front of this one, until they leave.
            overtaken = sum(other for older, its_side, other in self._costs if older < checkpoint and its_side == side)
            if still is not None and max(cost + overtaken, still) <= self._room(checkpoint):
                name = f"{self._subtask.subtask}: checkpoint {checkpoint} still waits at its {side}"
                raise SimulationFailure(f"{name}, and {cost} bytes fit", "progress")

    def _waiting(self, checkpoint: CheckpointId) -> Iterator[tuple[str, int]]:
        """Yield the sides on which a checkpoint could overtake now, with the bytes that it would capture there."""
        if checkpoint not in self._seen:
            return
        channels = self._subtask.gate.channels.values()
        arrived = [c for c in channels if c.blocked_by == checkpoint or c.holds_barrier(checkpoint)]
        if arrived and len(arrived) == len(channels) and checkpoint == min(self._seen):  # older ones go first
            ahead = [part for c in arrived if c.holds_barrier(checkpoint) for part in c.capture(checkpoint)]
            yield "input", sum(part.cost for part in ahead)
        outputs = self._subtask.outputs
        ahead_bytes = outputs.bytes_ahead_of_waiting(checkpoint)
        if ahead_bytes:
            yield "output", ahead_bytes
