"""Broken barriers: what a subtask captures, blocks, records, turns unaligned and remembers."""

from __future__ import annotations

from typing import Any

from penstock.model.elements import Barrier, Captured, Element, EndOfPartition
from penstock.model.ids import ChannelId, CheckpointId
from penstock.protocol.alignment import Command, Phase, SubtaskCheckpoints
from penstock.protocol.input import InputChannel
from penstock.snapshots.writing.capture_queue import CaptureQueue
from simulator.mutants.mutation import mutant


def _recording_one_short(original: Any) -> Any:
    def barrier_arrived(self: SubtaskCheckpoints, channel: ChannelId, barrier: Barrier, now_ms: float) -> Any:
        progress = self.active.get(barrier.checkpoint)
        if progress is not None and progress.phase is Phase.DRAINING and channel in progress.awaited:
            mine = [captured for captured in progress.captured if captured.channel == channel]
            if mine:
                progress.captured.remove(mine[-1])
        return original(self, channel, barrier, now_ms)

    return barrier_arrived


def _nothing_captured(original: Any) -> Any:
    def capture(self: InputChannel, before: CheckpointId | None) -> list[Captured]:
        return []

    return capture


def _offset_forgotten(original: Any) -> Any:
    def capture(self: InputChannel, before: CheckpointId | None) -> list[Captured]:
        return [self.reference(captured.buffer) for captured in original(self, before)]

    return capture


def _everything_allowed(original: Any) -> Any:
    def allow(self: CaptureQueue, checkpoint: CheckpointId, size: int) -> bool:
        return True

    return allow


def _nothing_counted(original: Any) -> Any:
    def allow(self: CaptureQueue, checkpoint: CheckpointId, size: int) -> Any:
        self._allowed_bytes.pop(checkpoint, None)
        return original(self, checkpoint, size)

    return allow


def _stays_aligned(original: Any) -> Any:
    def turn_as_allowed(self: SubtaskCheckpoints, progress: Any) -> list[Command]:
        progress.overdue = True
        return []

    return turn_as_allowed


def _before_the_last_barrier(original: Any) -> Any:
    def turn_inputs_as_allowed(self: SubtaskCheckpoints, progress: Any) -> Any:
        waiting = [self._gate.channels[channel] for channel in progress.awaited]
        arrived = [channel for channel in waiting if channel.holds_barrier(progress.checkpoint)]
        ahead = sum(part.cost for channel in arrived for part in channel.capture(progress.checkpoint))
        return self._turn_inputs(progress) if self._allows(progress, ahead) else []

    return turn_inputs_as_allowed


def _once(original: Any) -> Any:
    def turn_outputs_as_allowed(self: SubtaskCheckpoints, progress: Any) -> Any:
        return original(self, progress) if progress.aligned else []

    return turn_outputs_as_allowed


def _all_captured(original: Any) -> Any:
    def capture(self: InputChannel, before: CheckpointId | None) -> Any:
        return original(self, None)

    return capture


def _unblock_each(original: Any) -> Any:
    def reached(self: SubtaskCheckpoints, channel: ChannelId, barrier: Barrier, now_ms: float) -> Any:
        commands = original(self, channel, barrier, now_ms)
        if len(self._gate.channels[channel]._queue) > 1:
            self._gate.unblock(barrier.checkpoint)
        return commands

    return reached


def _ready_with_barriers_queued(original: Any) -> Any:
    """The capture goes out, the checkpoint stays: what the barrier passes later comes too late."""

    def ready(self: SubtaskCheckpoints) -> list[Command]:
        early: dict[CheckpointId, None] = self.__dict__.setdefault("mutant_early", {})
        queued = [p for p in self.active.values() if p.phase is Phase.DRAINING and not p.awaited]
        kept, self._outputs.holds_barrier = self._outputs.holds_barrier, lambda checkpoint: False  # type: ignore[method-assign]
        active = dict(self.active)
        commands: list[Command] = original(self)
        self._outputs.holds_barrier = kept  # type: ignore[method-assign]
        fresh = [c for c, p in zip(commands, queued, strict=True) if p.checkpoint not in early]
        for progress in queued:
            if kept(progress.checkpoint):
                early[progress.checkpoint] = None
                progress.phase = Phase.DRAINING
                self.active[progress.checkpoint] = active[progress.checkpoint]
        self.active = {id_: p for id_, p in active.items() if id_ in self.active}
        return fresh

    return ready


def _no_dead(original: Any) -> Any:
    def abort(self: SubtaskCheckpoints, checkpoint: CheckpointId) -> None:
        original(self, checkpoint)
        self._dead.pop(checkpoint, None)

    return abort


def _gate_not_told(original: Any) -> Any:
    def abort(self: SubtaskCheckpoints, checkpoint: CheckpointId) -> None:
        blocked = [channel for channel in self._gate.channels.values() if channel.blocked_by == checkpoint]
        original(self, checkpoint)
        for channel in blocked:
            channel.block(checkpoint)

    return abort


def _nothing_turned(original: Any) -> Any:
    def turn_older(self: SubtaskCheckpoints, checkpoint: CheckpointId) -> list[Command]:
        return []

    return turn_older


def _inputs_only(original: Any) -> Any:
    def turn(self: SubtaskCheckpoints, progress: Any) -> Any:
        return original(self, progress) if progress.phase is Phase.ALIGNING else []

    return turn


def _barrier_moved_uncaptured(original: Any) -> Any:
    def turn(self: SubtaskCheckpoints, progress: Any) -> Any:
        before = list(progress.captured)
        commands = original(self, progress)
        if progress.phase is Phase.DRAINING:
            progress.captured = before
        return commands

    return turn


def _last_but_one(original: Any) -> Any:
    def may_turn(self: SubtaskCheckpoints, progress: Any) -> bool:
        arrived = [self._gate.channels[c].holds_barrier(progress.checkpoint) for c in progress.awaited]
        return not self._on_last or sum(arrived) >= len(arrived) - 1

    return may_turn


def _nothing_missing(original: Any) -> Any:
    def turn_inputs(self: SubtaskCheckpoints, progress: Any) -> Any:
        commands = original(self, progress)
        if self._on_last:
            progress.awaited = []
        return commands

    return turn_inputs


def _end_is_barrier(original: Any) -> Any:
    def arrived(self: SubtaskCheckpoints, channel: ChannelId, element: Element, now_ms: float) -> Any:
        commands = original(self, channel, element, now_ms)
        if isinstance(element, EndOfPartition):
            for progress in self.active.values():
                if progress.phase is not Phase.ALIGNING and channel in progress.awaited:
                    progress.awaited.remove(channel)
            commands = [*commands, *self.ready()]
        return commands

    return arrived


ALIGNMENT = {
    "recording-stops-one-buffer-early": mutant(
        "the last buffer before a late barrier is not recorded",
        (SubtaskCheckpoints, "_barrier_arrived", _recording_one_short),
    ),
    "input-queue-not-captured": mutant(
        "what waits in front of an unaligned barrier at the consumer is not captured",
        (InputChannel, "capture", _nothing_captured),
    ),
    "row-range-forgotten": mutant(
        "a half-read buffer is captured as a whole",
        (InputChannel, "capture", _offset_forgotten),
    ),
    "captured-beyond-the-barrier": mutant(
        "what has arrived behind a waiting barrier is captured with what lies before it",
        (InputChannel, "capture", _all_captured),
    ),
    "unblocked-early": mutant(
        "a channel that waits for the other barriers is read on if more than one element lies there",
        (SubtaskCheckpoints, "reached", _unblock_each),
    ),
    "acknowledged-before-the-barrier-left": mutant(
        "a capture is handed over although the barrier waits in an output queue, where it may be moved yet",
        (SubtaskCheckpoints, "ready", _ready_with_barriers_queued),
    ),
    "dead-id-forgotten": mutant(
        "an aborted checkpoint's id is not remembered: its late barriers count",
        (SubtaskCheckpoints, "abort", _no_dead),
    ),
    "dead-checkpoint-keeps-channels-blocked": mutant(
        "channels that wait for the other barriers of an aborted checkpoint go on waiting",
        (SubtaskCheckpoints, "abort", _gate_not_told),
    ),
    "older-not-turned": mutant(
        "an older aligned checkpoint stays aligned when a newer one overtakes",
        (SubtaskCheckpoints, "_turn_older", _nothing_turned),
    ),
    "time-out-forgotten-at-the-output": mutant(
        "a barrier that waits in an output queue is not moved when its time is up",
        (SubtaskCheckpoints, "_turn", _inputs_only),
    ),
    "moved-barrier-captures-nothing": mutant(
        "what a barrier passes when it is moved within an output queue is not captured",
        (SubtaskCheckpoints, "_turn", _barrier_moved_uncaptured),
    ),
    "last-barrier-starts-early": mutant(
        "with triggerOn=lastBarrier a checkpoint begins with the last barrier but one",
        (SubtaskCheckpoints, "_may_turn", _last_but_one),
        (SubtaskCheckpoints, "_turn_inputs", _nothing_missing),
    ),
    "limit-ignored": mutant(
        "a checkpoint overtakes although it captures more than checkpoint.maxInflightBytes",
        (CaptureQueue, "allow", _everything_allowed),
    ),
    "limit-for-each-subtask": mutant(
        "each subtask of a slot may capture as much as the slot",
        (CaptureQueue, "allow", _nothing_counted),
    ),
    "limit-never-allows": mutant(
        "with checkpoint.maxInflightBytes a checkpoint stays aligned for ever",
        (SubtaskCheckpoints, "_turn_as_allowed", _stays_aligned),
    ),
    "limit-before-the-last-barrier": mutant(
        "with checkpoint.maxInflightBytes a checkpoint begins before its last barrier has arrived, and records",
        (SubtaskCheckpoints, "_turn_inputs_as_allowed", _before_the_last_barrier),
    ),
    "limit-overtakes-once": mutant(
        "with checkpoint.maxInflightBytes a barrier that has overtaken once waits behind the rows of older ones",
        (SubtaskCheckpoints, "_turn_outputs_as_allowed", _once),
    ),
    "end-of-partition-taken-for-a-barrier": mutant(
        "the end of a channel counts as the barriers that are still missing there",
        (SubtaskCheckpoints, "arrived", _end_is_barrier),
    ),
}
