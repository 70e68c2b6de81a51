"""Broken event time: watermarks that pass rows which have come in, but not come through."""

from __future__ import annotations

from typing import Any

from penstock.operators.map_function import MapBatchesOperator
from penstock.runtime.chain import Chain
from penstock.runtime.feed import SourceFeed
from penstock.testing.mutation import mutant


def _never(original: Any) -> Any:
    return lambda *args: False


def _always(original: property) -> Any:
    return property(lambda self: True)


def _idle_whatever_is_held(original: Any) -> Any:
    def ask(self: SourceFeed, watermark_us: int | None, holds_rows: bool = False) -> None:
        original(self, watermark_us)

    return ask


EVENT_TIME = {
    "functions-hold-nothing": mutant(
        "a function over batches counts as one that has yielded all that it was given",
        (MapBatchesOperator, "lags", _never),
    ),
    "generated-watermark-passes-held-rows": mutant(
        "a watermark that is generated in a chain does not wait for rows that are held in front of its operator",
        (Chain, "_holds_before", _never),
    ),
    "idle-with-held-rows": mutant(
        "a reader calls itself idle while functions hold its rows, so that event time stops in front of them",
        (SourceFeed, "ask", _idle_whatever_is_held),
    ),
}
