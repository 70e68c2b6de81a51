"""Splits of sources, and the result of a discovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.grammar import FreeText
from penstock.model.plain import Plain


class Split(msgspec.Struct, frozen=True):
    """A part of a source that exactly one reader reads at a time.

    Attributes:
        split_id: unique within the source; never reused.
        spec: the data to read (path, partition, offsets...). A relative ``path`` is relative to the checkpoint
            location, where the source keeps that file (``Source.open``). A copy of a snapshot includes the file.
        position: progress of the reader; ``{}`` at the start. Only the reader writes and interprets it.
        home: number of the reader that must read the split, modulo the parallelism. None: the first reader that asks
            gets it. Endless splits must set it, because otherwise one reader would get all of them.
    """

    split_id: FreeText
    spec: dict[FreeText, Plain]
    position: dict[FreeText, Plain] = {}
    home: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


@dataclass(frozen=True)
class Discovery:
    """Result of one discovery: the new splits in reading order, and the source's state after it.

    Attributes:
        finished: True if later discoveries in this run will find nothing. The query then ends when everything is read
            and committed. The value is not stored: a later run discovers again.
    """

    splits: Sequence[Split]
    state: Plain
    finished: bool = False
