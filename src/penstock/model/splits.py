"""Splits of sources, and what one discovery finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from penstock.grammar import FreeText
from penstock.model.plain import Plain


class Split(msgspec.Struct, frozen=True):
    """A unit of a source, read by exactly one reader at a time.

    Attributes:
        split_id: unique within the source for ever.
        spec: what to read (path, partition, offsets...). A relative ``path`` is below the checkpoint location, where
            the source keeps that file (``Source.open``). A copy of a snapshot includes the file.
        position: progress of its reader; ``{}`` at the start. Only the reader writes and reads it.
        home: number of the reader that must read it, modulo the parallelism; None: the first reader that asks. An
            endless split needs one, or one reader would get all of them.
    """

    split_id: FreeText
    spec: dict[FreeText, Plain]
    position: dict[FreeText, Plain] = {}
    home: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


@dataclass(frozen=True)
class Discovery:
    """Result of one discovery: new splits in reading order, and the source's state after it.

    Attributes:
        finished: later discoveries in this run find nothing, so the query ends once everything is read and committed.
            It is not stored: a later run discovers again.
    """

    splits: Sequence[Split]
    state: Plain
    finished: bool = False
