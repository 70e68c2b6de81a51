"""Mutants of event time: watermarks that pass unread or held rows, and readers that never get ``AdvanceWatermark``."""

from __future__ import annotations

from typing import Any

from penstock.coordinator.machines.event_time_rounds import EventTimeRounds
from penstock.coordinator.machines.splits import Reader, SplitEvent, SplitsFound
from penstock.operators.python.map_function import MapBatchesOperator
from penstock.worker.chain import Chain
from penstock.worker.source_task import SourceTask
from simulator.mutants.mutation import mutant


def _never(original: Any) -> Any:
    return lambda *args: False


def _frontier_not_read(original: Any) -> Any:
    return lambda self: True


def _no_reader_told(original: Any) -> Any:
    return lambda self, reader: False


def _older_look_counts(original: Any) -> Any:
    def begin(self: EventTimeRounds) -> None:
        original(self)
        assert self._round is not None
        self._round.begun = set(self._assigners)

    return begin


def _waits_for_no_split(original: Any) -> Any:
    def tell(self: EventTimeRounds) -> Any:
        if self._round is not None:
            self._round.unassigned = {vertex: set() for vertex in self._round.unassigned}
        return original(self)

    return tell


def _any_find_ends_it(original: Any) -> Any:
    def handled(self: EventTimeRounds, vertex: int, event: SplitEvent, commands: Any = ()) -> Any:
        if isinstance(event, SplitsFound) and event.discovery.splits and self._round is not None:
            self._round.unassigned[vertex] = set()
        return original(self, vertex, event, commands)

    return handled


def _idle_whatever_is_held(original: Any) -> Any:
    return lambda self, reached_us, announced_us, holds_rows=False: original(self, reached_us, announced_us)


def _told_again(original: Any) -> Any:
    def waits(self: EventTimeRounds, reader: Reader) -> bool:
        reader.target_us = None
        return bool(original(self, reader))

    return waits


def _frontier_anew(original: Any) -> Any:
    def may_rise(self: SourceTask, watermark_us: int) -> None:
        self._rise_us = None
        original(self, watermark_us)

    return may_rise


EVENT_TIME = {
    "rises-before-its-frontier": mutant(
        "a reader that may rise does so at once, in front of what it has not read",
        (SourceTask, "_frontier_passed", _frontier_not_read),
    ),
    "never-told-to-rise": mutant(
        "a reader that shows no event time is not told to rise until everything is read",
        (EventTimeRounds, "_needs_advance", _no_reader_told),
    ),
    "round-without-a-look": mutant(
        "a round waits for the end of a look, and not for one that begins after it",
        (EventTimeRounds, "_begin", _older_look_counts),
    ),
    "round-ends-with-a-find": mutant(
        "a discovery that finds splits ends a round, whenever it began and whichever reader gets them",
        (EventTimeRounds, "handled", _any_find_ends_it),
    ),
    "round-ahead-of-found-splits": mutant(
        "a round does not wait until the splits that were found are handed out",
        (EventTimeRounds, "_advance", _waits_for_no_split),
    ),
    "frontier-pushed-away": mutant(
        "readers are told every new level at once, and each moves the frontier",
        (EventTimeRounds, "_needs_advance", _told_again),
        (SourceTask, "may_rise", _frontier_anew),
    ),
    "idle-with-held-rows": mutant(
        "a reader is idle while functions hold rows that it has read", (SourceTask, "report", _idle_whatever_is_held)
    ),
    "functions-hold-nothing": mutant(
        "a function over batches counts as one that has yielded all that it was given",
        (MapBatchesOperator, "may_hold_rows", _never),
    ),
    "generated-watermark-passes-held-rows": mutant(
        "a watermark that is generated in a chain does not wait for rows that are held in front of its operator",
        (Chain, "_holds_before", _never),
    ),
}
