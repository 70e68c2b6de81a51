"""Mutants of event time: watermarks that pass unread or held rows, and readers that are never told to rise."""

from __future__ import annotations

from typing import Any

from penstock.operators.map_function import MapBatchesOperator
from penstock.protocol.rounds import EventTimeRounds
from penstock.runtime.chain import Chain
from penstock.runtime.feed import SourceFeed
from penstock.testing.mutation import mutant


def _never(original: Any) -> Any:
    return lambda *args: False


def _always(original: property) -> Any:
    return property(lambda self: True)


def _frontier_not_read(original: Any) -> Any:
    return lambda self: True


def _no_reader_told(original: Any) -> Any:
    return lambda self, reader: False


EVENT_TIME = {
    "rises-before-its-frontier": mutant(
        "a reader that may rise does so at once, in front of what it has not read",
        (SourceFeed, "_frontier_passed", _frontier_not_read),
    ),
    "never-told-to-rise": mutant(
        "a reader that shows no event time is not told to rise until everything is read",
        (EventTimeRounds, "_waits", _no_reader_told),
    ),
    "functions-hold-nothing": mutant(
        "a function over batches counts as one that has yielded all that it was given",
        (MapBatchesOperator, "lags", _never),
    ),
    "generated-watermark-passes-held-rows": mutant(
        "a watermark that is generated in a chain does not wait for rows that are held in front of its operator",
        (Chain, "_holds_before", _never),
    ),
}
