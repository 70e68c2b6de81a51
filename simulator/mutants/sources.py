"""Broken sources: splits and positions that are in a snapshot twice or not at all, event time that runs ahead."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock.coordinator.commands import Output
from penstock.coordinator.machines.checkpoint_events import CheckpointCommand, WriteMetadata
from penstock.coordinator.machines.job import JobCoordinator
from penstock.coordinator.machines.splits import SourceCapture, SplitAssigner, SplitCommand, SplitEvent
from penstock.model.messages import AssignSplits, RequestSplit
from penstock.model.splits import Split
from penstock.protocol.alignment import CaptureReady
from penstock.worker.subtask import Subtask
from simulator.mutants.mutation import mutant


def _captured_when_complete(original: Any) -> Any:
    def carry_out(self: JobCoordinator, command: CheckpointCommand, now_ms: float) -> list[Output]:
        if (
            isinstance(command, WriteMetadata) and command.checkpoint > 1
        ):  # a discovery may run during the first one, also in a calm schedule
            self._captures[command.checkpoint] = [assigner.capture() for assigner in self.assigners]
        return original(self, command, now_ms)  # type: ignore[no-any-return]

    return carry_out


def _handed_out_but_kept(original: Any) -> Any:
    """The driver's side keeps the split that it handed out last until the reader asks for the next one."""

    def capture(self: SplitAssigner) -> SourceCapture:
        taken: SourceCapture = original(self)
        more = bool(taken.manifest.pending)  # otherwise calm schedules fail as well
        kept: list[Split] = [
            s for s in getattr(self, "mutant_handed_out", ()) if more and s not in taken.manifest.pending
        ]
        manifest = msgspec.structs.replace(taken.manifest, pending=[*kept, *taken.manifest.pending])
        return dataclasses.replace(taken, manifest=manifest)

    return capture


def _remember_handed_out(original: Any) -> Any:
    def handle(self: SplitAssigner, event: SplitEvent, now_ms: float) -> list[SplitCommand]:
        commands: list[SplitCommand] = original(self, event, now_ms)
        for command in commands:
            if isinstance(command, AssignSplits):
                self.mutant_handed_out = command.splits  # type: ignore[attr-defined]
        if isinstance(event, RequestSplit) and not any(isinstance(c, AssignSplits) for c in commands):
            self.mutant_handed_out = ()  # type: ignore[attr-defined]
        return commands

    return handle


def _position_at_the_end(original: Any) -> Any:
    def hand_over(self: Subtask, ready: CaptureReady) -> None:
        end = self._epoch_ends.get(ready.checkpoint)
        if end is not None and self._source_task is not None:
            self._epoch_ends[ready.checkpoint] = dataclasses.replace(
                end, splits=self._source_task.end_epoch(ready.checkpoint)
            )
        original(self, ready)

    return hand_over


def _pending_not_restored(original: Any) -> Any:
    def restored(self: SplitAssigner) -> None:
        original(self)
        self._pending.clear()

    return restored


SOURCES = {
    "enumerator-captured-late": mutant(
        "the driver's side of a source is captured when all slots have acknowledged, not at the trigger",
        (JobCoordinator, "_carry_out", _captured_when_complete),
    ),
    "split-with-reader-and-enumerator": mutant(
        "a split that was handed out stays in the driver's capture until its reader asks again",
        (SplitAssigner, "capture", _handed_out_but_kept),
        (SplitAssigner, "handle", _remember_handed_out),
    ),
    "source-position-taken-late": mutant(
        "a source's position is taken when its capture is handed over, not when the epoch ends",
        (Subtask, "_hand_over", _position_at_the_end),
    ),
    "pending-splits-not-restored": mutant(
        "splits that were found but not handed out are not restored",
        (SplitAssigner, "__post_init__", _pending_not_restored),
    ),
}
