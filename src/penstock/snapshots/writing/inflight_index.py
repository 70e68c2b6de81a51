"""Index of a checkpoint's durable in-flight rows. The next checkpoint refers to them instead of writing them again.

A buffer keeps its identity and never changes while it is queued. Consuming a part of it only advances its first unread
row. So rows ``[offset, offset + rows)`` of a buffer are still where an earlier checkpoint of this slot has written
them, and a reference into that section is enough. Only the index of a checkpoint's *base* may be used. The base is a
complete checkpoint that exists as long as this one is in flight. So everything that the base refers to exists,
including older files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from penstock.errors import ProtocolViolation
from penstock.model.elements import Captured
from penstock.model.ids import BufferId
from penstock.model.manifest import SectionRef

MAX_FILES = 8
"""Maximum number of data files of older checkpoints to which a checkpoint may refer.

One row keeps a whole file alive. So rows of the files with the fewest remaining bytes are written again. Otherwise slow
channels would keep one file per checkpoint.
"""


class DurableRange(NamedTuple):
    """Rows ``[offset, offset + rows)`` of a buffer, stored as rows from ``row_start`` of a section.

    Attributes:
        cost: share of the buffer's cost in bytes.
        key_groups: first and last key group that rows of the section may have.
    """

    buffer: BufferId
    offset: int
    rows: int
    cost: int
    section: SectionRef
    row_start: int
    key_groups: tuple[int, int]

    def part(self, offset: int, rows: int) -> DurableRange:
        """Return a part of the range. ``offset`` is a row of the buffer."""
        cost = self.cost * rows // self.rows
        row_start = self.row_start + offset - self.offset
        return DurableRange(self.buffer, offset, rows, cost, self.section, row_start, self.key_groups)


class NewRange(NamedTuple):
    """Rows ``[offset, offset + rows)`` of a captured buffer that are not durable yet."""

    captured: Captured
    offset: int
    rows: int

    @property
    def cost(self) -> int:
        return replace(self.captured, offset=self.offset, rows=self.rows).cost


class InflightIndex:
    """Index of all in-flight rows of one written checkpoint of one slot, including the rows it only refers to.

    Args:
        pieces: ranges in any order.
        max_files: keep only rows of this many files, those with the highest total cost.

    Raises:
        ProtocolViolation: a row was captured twice; it would be restored twice.
    """

    def __init__(self, pieces: Iterable[DurableRange], max_files: int = MAX_FILES) -> None:
        ordered = sorted(pieces, key=lambda p: (p.buffer, p.offset))
        for before, piece in pairwise(ordered):
            if piece.buffer == before.buffer and piece.offset < before.offset + before.rows:
                raise ProtocolViolation(
                    "in-flight rows",
                    f"rows {before.offset} to {before.offset + before.rows - 1} captured",
                    f"rows from {piece.offset} of {piece.buffer} captured again",
                )
        kept = _fullest_files(ordered, max_files)
        self._pieces: dict[BufferId, list[DurableRange]] = {}
        for piece in ordered:
            if piece.section.path in kept:
                self._pieces.setdefault(piece.buffer, []).append(piece)

    def split(self, captured: Captured) -> Iterator[DurableRange | NewRange]:
        """Split captured rows, in order, into durable ranges and new ones."""
        position, end = captured.offset, captured.offset + captured.rows
        for piece in self._pieces.get(captured.buffer.id, ()):
            first, stop = max(position, piece.offset), min(end, piece.offset + piece.rows)
            if first >= stop:
                continue
            if position < first:
                yield NewRange(captured, position, first - position)
            yield piece.part(first, stop - first)
            position = stop
        if position < end:
            yield NewRange(captured, position, end - position)


def _fullest_files(pieces: Iterable[DurableRange], max_files: int) -> dict[str, int]:
    """Return the files with the highest total cost, with the cost by path."""
    held: dict[str, int] = {}
    for piece in pieces:
        held[piece.section.path] = held.get(piece.section.path, 0) + piece.cost
    return dict(sorted(held.items(), key=lambda item: (-item[1], item[0]))[:max_files])


EMPTY_INDEX = InflightIndex(())
"""Index for a checkpoint without a base."""
