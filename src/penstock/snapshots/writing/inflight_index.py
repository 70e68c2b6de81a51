"""Which in-flight rows a checkpoint has durably, so that the next one refers to them instead of writing them again.

A buffer keeps its identity and never changes, wherever it waits; consuming a part of it only moves the first row that
is left. So rows ``[offset, offset + rows)`` of a buffer lie where an earlier checkpoint of this slot put them, and a
reference into that section says all. Only the index of a checkpoint's *base* may be asked: a complete checkpoint that
stays as long as this one is in flight. Whatever the base refers to exists then, older files included.
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
"""Data files that a checkpoint may refer to besides its own. One captured row keeps a whole file; the files of which
the least is left are written anew, so that slow channels do not keep one file per checkpoint."""


class Piece(NamedTuple):
    """Rows ``[offset, offset + rows)`` of a buffer, at rows ``[row_start, row_start + rows)`` of a section.

    ``cost``: their share of the buffer's. ``key_groups``: first and last one of which the section can have rows.
    """

    buffer: BufferId
    offset: int
    rows: int
    cost: int
    section: SectionRef
    row_start: int
    key_groups: tuple[int, int]

    def part(self, offset: int, rows: int) -> Piece:
        """Some of its rows, ``offset`` counted in the buffer."""
        cost = self.cost * rows // self.rows
        row_start = self.row_start + offset - self.offset
        return Piece(self.buffer, offset, rows, cost, self.section, row_start, self.key_groups)


class Fresh(NamedTuple):
    """Rows ``[offset, offset + rows)`` of a captured buffer that are durable nowhere."""

    captured: Captured
    offset: int
    rows: int

    @property
    def cost(self) -> int:
        return replace(self.captured, offset=self.offset, rows=self.rows).cost


class InflightIndex:
    """All in-flight rows of one written checkpoint of one slot, what it only referred to included.

    Args:
        pieces: in any order.
        max_files: rows in others than the fullest so many files are left out.

    Raises:
        ProtocolViolation: a row was captured twice; it would be restored twice.
    """

    def __init__(self, pieces: Iterable[Piece], max_files: int = MAX_FILES) -> None:
        ordered = sorted(pieces, key=lambda p: (p.buffer, p.offset))
        for before, piece in pairwise(ordered):
            if piece.buffer == before.buffer and piece.offset < before.offset + before.rows:
                raise ProtocolViolation(
                    "in-flight rows",
                    f"rows {before.offset} to {before.offset + before.rows - 1} captured",
                    f"rows from {piece.offset} of {piece.buffer} captured again",
                )
        kept = _fullest_files(ordered, max_files)
        self._pieces: dict[BufferId, list[Piece]] = {}
        for piece in ordered:
            if piece.section.path in kept:
                self._pieces.setdefault(piece.buffer, []).append(piece)

    def split(self, captured: Captured) -> Iterator[Piece | Fresh]:
        """The captured rows in order, cut into those that can be referred to and those that cannot."""
        position, end = captured.offset, captured.offset + captured.rows
        for piece in self._pieces.get(captured.buffer.id, ()):
            first, behind = max(position, piece.offset), min(end, piece.offset + piece.rows)
            if first >= behind:
                continue
            if position < first:
                yield Fresh(captured, position, first - position)
            yield piece.part(first, behind - first)
            position = behind
        if position < end:
            yield Fresh(captured, position, end - position)


def _fullest_files(pieces: Iterable[Piece], max_files: int) -> dict[str, int]:
    """Bytes by path, of the files that hold the most."""
    held: dict[str, int] = {}
    for piece in pieces:
        held[piece.section.path] = held.get(piece.section.path, 0) + piece.cost
    return dict(sorted(held.items(), key=lambda item: (-item[1], item[0]))[:max_files])


NOTHING = InflightIndex(())
"""Of a checkpoint without a base."""
