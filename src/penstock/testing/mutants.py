"""Ways to break the code on purpose. The simulator is worth something only if it catches every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.ids import ChannelId
from penstock.protocol import coordinator_types as ct
from penstock.protocol.alignment import Command, Phase, SubtaskCheckpoints
from penstock.protocol.commits import CommitLedger
from penstock.protocol.coordinator import Coordinator
from penstock.protocol.elements import Barrier, Captured
from penstock.protocol.input import InputChannel
from penstock.protocol.output import OutputChannel
from penstock.protocol.recovered import RecoveredRows
from penstock.runtime.subtask import Subtask
from penstock.snapshot.model import InflightEntry


@dataclass(frozen=True)
class Mutant:
    """``patches``: (class, method name, function of the original method that makes the broken one)."""

    text: str
    patches: tuple[tuple[type, str, Callable[[Any], Any]], ...]


def _no_output_capture(original: Callable[[OutputChannel, Barrier], list[Captured]]) -> Any:
    def overtake(self: OutputChannel, barrier: Barrier) -> list[Captured]:
        original(self, barrier)
        return []

    return overtake


def _recording_one_short(original: Any) -> Any:
    def barrier_arrived(self: SubtaskCheckpoints, channel: ChannelId, barrier: Barrier, now_ms: float) -> list[Command]:
        progress = self._active.get(barrier.checkpoint)
        if progress is not None and progress.phase is Phase.DRAINING and channel in progress.awaited:
            mine = [c for c in progress.consumer_side if c.channel == channel]
            if mine:
                progress.consumer_side.remove(mine[-1])
        return original(self, channel, barrier, now_ms)  # type: ignore[no-any-return]

    return barrier_arrived


def _commit_on_last_ack(original: Any) -> Any:
    def on_ack(self: Coordinator, event: ct.Ack, now_ms: float) -> list[ct.Command]:
        commands: list[ct.Command] = original(self, event, now_ms)
        for command in commands:
            if isinstance(command, ct.WriteMetadata):
                self._ledger.completed(command.checkpoint, command.slots)
        return commands

    return on_ack


def _offset_forgotten(original: Any) -> Any:
    def capture(self: InputChannel, before: int | None) -> list[Captured]:
        return [self.reference(captured.buffer) for captured in original(self, before)]

    return capture


def _nothing_carried(original: Any) -> Any:
    def carried(self: RecoveredRows) -> list[InflightEntry]:
        return []

    return carried


def _live_before_recovered(original: Any) -> Any:
    return property(lambda self: not self._loaded)


def _only_own_message(original: Any) -> Any:
    def end_epoch(self: Subtask, barrier: Barrier, elapsed_ms: float) -> Any:
        self._pending_messages.clear()
        return original(self, barrier, elapsed_ms)

    return end_epoch


def _covered_stays(original: Any) -> Any:
    def completed(self: CommitLedger, checkpoint: int, slots: Any) -> None:
        if checkpoint > self._covered:
            original(self, checkpoint, slots)

    return completed


MUTANTS = {
    "output-queue-not-captured": Mutant(
        "what an unaligned barrier overtakes in the output queue is not captured",
        ((OutputChannel, "overtake", _no_output_capture),),
    ),
    "recording-stops-one-buffer-early": Mutant(
        "the last buffer before a late barrier is not recorded",
        ((SubtaskCheckpoints, "_barrier_arrived", _recording_one_short),),
    ),
    "commit-before-completeness": Mutant(
        "epochs are committed when all slots acknowledged, before the snapshot is logged",
        ((Coordinator, "_on_ack", _commit_on_last_ack), (CommitLedger, "completed", _covered_stays)),
    ),
    "row-range-forgotten": Mutant(
        "a half-read buffer is captured as a whole",
        ((InputChannel, "capture", _offset_forgotten),),
    ),
    "recovered-rows-not-carried": Mutant(
        "a checkpoint during recovery forgets what is not read yet",
        ((RecoveredRows, "carried", _nothing_carried),),
    ),
    "live-before-recovered": Mutant(
        "live rows are read while recovered ones are still being loaded",
        ((RecoveredRows, "drained", _live_before_recovered),),
    ),
    "messages-of-aborted-epochs-lost": Mutant(
        "a capture reports the commit message of its own epoch only",
        ((Subtask, "_end_epoch", _only_own_message),),
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Break the code while the context is open."""
    patches = MUTANTS[name].patches
    originals = [(owner, attribute, vars(owner)[attribute]) for owner, attribute, _ in patches]
    for (owner, attribute, original), (_, _, make) in zip(originals, patches, strict=True):
        setattr(owner, attribute, make(original))
    try:
        yield
    finally:
        for owner, attribute, original in originals:
            setattr(owner, attribute, original)
