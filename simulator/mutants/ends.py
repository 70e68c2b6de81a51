"""Broken ends: runs that read on, or not enough, or whose event time ends in front of rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from penstock.coordinator.commands import GenerationReady, Output
from penstock.coordinator.machines.job import JobCoordinator
from penstock.coordinator.machines.splits import Freeze, SourceCapture, SplitAssigner, SplitCommand
from penstock.model.messages import ReaderStatus, RequestSplit
from simulator.mutants.mutation import mutant


def _recovered_unfrozen(original: Any) -> Any:
    def on_ready(self: JobCoordinator, event: GenerationReady, now_ms: float) -> list[Output]:
        freeze = self._freeze
        if event.restored is not None and not any(source.drained for source in event.restored.sources):
            self._freeze = None
        outputs: list[Output] = original(self, event, now_ms)
        self._freeze = freeze or self._freeze
        return outputs

    return on_ready


def _counts_as_frozen(original: Any) -> Any:
    def handler(self: SplitAssigner, event: RequestSplit | ReaderStatus) -> Any:
        return original(self, msgspec.structs.replace(event, frozen=True))

    return handler


def _requests_kept(original: Any) -> Any:
    def on_freeze(self: SplitAssigner, event: Freeze, now_ms: float) -> list[SplitCommand]:
        before = [(reader.requests, reader.status) for reader in self._readers]
        commands: list[SplitCommand] = original(self, event, now_ms)
        for reader, (requests, status) in zip(self._readers, before, strict=True):
            reader.requests, reader.status = requests, status
        return commands

    return on_freeze


def _nothing_unread_is_finished(original: Any) -> Any:
    def on_freeze(self: SplitAssigner, event: Freeze, now_ms: float) -> list[SplitCommand]:
        if self.restored is not None and not self._pending and not self.restored_unread:
            self._finished = True
        return original(self, event, now_ms)  # type: ignore[no-any-return]

    return on_freeze


def _all_given_is_all_read(original: property) -> Any:
    def readers_idle(self: SplitAssigner) -> bool:
        given = self._drain and self._frozen and self._running and self._finished and not self._pending
        return given or original.fget(self)  # type: ignore[misc]

    return property(readers_idle)


def _not_stored(original: Any) -> Any:
    def capture(self: SplitAssigner) -> SourceCapture:
        taken: SourceCapture = original(self)
        return dataclasses.replace(taken, manifest=msgspec.structs.replace(taken.manifest, drained=False))

    return capture


def _nothing_said(original: Any) -> Any:
    def say_dry(self: SplitAssigner, watermark_us: int | None) -> list[SplitCommand]:
        return original(self, None if self._watermark_us is None and not self._drain else watermark_us)  # type: ignore[no-any-return]

    return say_dry


ENDS = {
    "not-frozen-after-a-recovery": mutant(
        "a restored source of a run that is to end with what is there is not told so",
        (JobCoordinator, "_on_ready", _recovered_unfrozen),
    ),
    "finished-restored": mutant(
        "a restored source of which nothing was left unread counts as finished, and is not looked at again",
        (SplitAssigner, "_on_freeze", _nothing_unread_is_finished),
    ),
    "idle-before-the-freeze": mutant(
        "a reader that was idle before it was frozen counts as one that has read what was there then",
        (SplitAssigner, "_on_requested", _counts_as_frozen),
        (SplitAssigner, "_on_status", _counts_as_frozen),
        (SplitAssigner, "_on_freeze", _requests_kept),
    ),
    "event-time-ends-before-the-last-rows": mutant(
        "event time ends when everything is handed out, though it is not read yet",
        (SplitAssigner, "readers_idle", _all_given_is_all_read),
    ),
    "end-of-event-time-not-stored": mutant(
        "a snapshot does not say that event time has ended at a source: a restored one is read on",
        (SplitAssigner, "capture", _not_stored),
    ),
    "empty-source-holds-nobody-back": mutant(
        "a source that ends without a row says nothing of event time, so that others go ahead of a later run",
        (SplitAssigner, "_report_idle", _nothing_said),
    ),
}
