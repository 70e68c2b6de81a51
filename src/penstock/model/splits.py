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
            the source keeps that file (``Source.open``): whoever copies a snapshot takes it along.
        position: how far it was read; ``{}`` at the start. Only its reader writes and reads it.
        home: counted round the readers, the one that is to read it; None: whoever asks first. Endless splits need one,
            or the reader that asks first would read them all.
    """

    split_id: FreeText
    spec: dict[FreeText, Plain]
    position: dict[FreeText, Plain] = {}
    home: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] | None = None


@dataclass(frozen=True)
class Discovery:
    """What one look at the outside found: new splits in the order they are to be read, and the state after it.

    ``finished``: no later look in this run will find anything; the query ends once everything is read and committed.
    It is not stored: a later run looks again.
    """

    splits: Sequence[Split]
    state: Plain
    finished: bool = False
