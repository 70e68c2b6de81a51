"""Recovered in-flight rows of one subtask. They are read before live input and loaded entry by entry.

Entries come in restore order. Entries are requested ahead, at least one and as many as fit into the rest of the gate's
budget. Each entry uses the bytes of its whole section until its last row is read, because its batches are views of the
section. A checkpoint taken meanwhile references the unread rows again, in their old layer, with a narrowed row range.

Only some rows of a narrowed entry belong to this consumer, perhaps none. Its read position counts all of its rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from penstock.errors import ProtocolViolation
from penstock.model.elements import Payload
from penstock.model.ids import ChannelId
from penstock.model.manifest import InflightEntry
from penstock.protocol.input import RowRange

MAX_AHEAD = 64
"""Maximum number of entries that are requested or loaded at once. A small entry costs more than its bytes."""


class RecoveredRows:
    """Recovered channels of one subtask.

    Args:
        entries: in restore order; entries without rows are skipped.
        measure: returns the bytes of a payload.
        key_groups: number of all key groups; used only for ``rows_left`` of narrowed entries.

    Attributes:
        budget: bytes that may be requested or loaded together. A single entry may exceed it. The gate sets it.
        reserved_bytes: bytes requested or loaded at present.
        rows_read: number of this consumer's rows that were read.
    """

    def __init__(
        self, entries: Sequence[InflightEntry], measure: Callable[[Payload], int], key_groups: int = 1
    ) -> None:
        self._entries = deque(e for e in entries if e.rows > 0)
        self._measure = measure
        self._key_groups = key_groups
        self.budget = 0
        self.reserved_bytes = 0
        self._reserved: deque[int] = deque()
        self._loaded: deque[deque[tuple[Payload, Sequence[int] | None]]] = deque()
        self.rows_read = 0
        self._read_in_first = 0
        self._offset = 0
        self.loaded_bytes = 0
        self._finished_bytes = 0
        self._own_left = sum(e.rows for e in self._entries if not e.narrowed)
        self._not_loaded = sum(map(_weight, self._entries))
        self._own_loaded = self._loaded_weight = 0

    @property
    def rows_left(self) -> int:
        """Number of this consumer's rows that are not read yet.

        For narrowed entries that are not loaded yet, it is an estimate, because the owner of a row follows from its
        key. The estimate assumes as many rows per key group as in the loaded entries. Before any is loaded, rows are
        assumed to be spread over all key groups.
        """
        if not self._loaded_weight:
            return self._own_left + self._not_loaded // self._key_groups
        return self._own_left + self._not_loaded * self._own_loaded // self._loaded_weight

    @property
    def drained(self) -> bool:
        """True if no recovered rows are left, so that live input may be read."""
        return not self._entries

    @property
    def readable(self) -> bool:
        return bool(self._loaded)

    @property
    def taken_bytes(self) -> int:
        """Bytes in memory of all rows that were ever taken, computed from the read positions."""
        if not self._offset:
            return self._finished_bytes
        batch, _ = self._loaded[0][0]
        return self._finished_bytes + self._measure(batch) * self._offset // batch.num_rows

    def to_load(self) -> list[InflightEntry]:
        """Return the entries to request from the host now. Each is returned once."""
        asked: list[InflightEntry] = []
        while len(self._reserved) < min(MAX_AHEAD, len(self._entries)):
            entry = self._entries[len(self._reserved)]
            if self._reserved and self.reserved_bytes + entry.section.length > self.budget:
                break
            self._reserved.append(entry.section.length)
            self.reserved_bytes += entry.section.length
            asked.append(entry)
        return asked

    def loaded(self, entry: InflightEntry, batches: Sequence[Payload], reached: Sequence[Sequence[int]] = ()) -> None:
        """Accept the rows of the oldest requested entry that is not loaded yet.

        Args:
            reached: for a narrowed entry: per batch and row, the number of the entry's rows that are processed once
                this row is read.
        """
        position = len(self._loaded)
        rows = sum(b.num_rows for b in batches)
        asked = len(self._reserved)
        whole = [len(r) for r in reached] == [b.num_rows for b in batches] if entry.narrowed else rows == entry.rows
        if position >= asked or self._entries[position] != entry or not whole:
            raise ProtocolViolation("recovered rows", f"{position} of {asked} asked loaded", f"{rows} rows of {entry}")
        marks = reached if entry.narrowed else [None] * len(batches)
        self._loaded.append(deque((b, r) for b, r in zip(batches, marks, strict=True) if b.num_rows))
        if entry.narrowed:
            self._not_loaded -= _weight(entry)
            self._loaded_weight += _weight(entry)
            self._own_loaded += rows
            self._own_left += rows
        loaded = sum(self._measure(b) for b in batches if b.num_rows)
        self.loaded_bytes += loaded
        # A compressed section is larger in memory.
        grown = max(0, loaded - self._reserved[position])
        self._reserved[position] += grown
        self.reserved_bytes += grown
        self._leave_what_is_read()

    def take(self, max_rows: int) -> RowRange | None:
        """Take at most ``max_rows`` rows of the oldest batch. Return None while it is being loaded."""
        if not self._loaded:
            return None
        entry, batches = self._entries[0], self._loaded[0]
        batch, reached = batches[0]
        rows = min(max_rows, batch.num_rows - self._offset)
        channel = ChannelId(entry.edge, entry.producer, entry.consumer)
        start = entry.row_start + self._read_in_first
        taken = RowRange(
            channel,
            batch.slice(self._offset, rows),
            rows,
            f"{channel} recovered {entry.section.identity}[{start}:+{rows}]",
        )
        self._offset += rows
        self._own_left -= rows
        self.rows_read += rows
        self._read_in_first = start - entry.row_start + rows if reached is None else int(reached[self._offset - 1])
        if self._offset == batch.num_rows:
            batch_bytes = self._measure(batch)
            self.loaded_bytes -= batch_bytes
            self._finished_bytes += batch_bytes
            batches.popleft()
            self._offset = 0
        self._leave_what_is_read()
        return taken

    def _leave_what_is_read(self) -> None:
        while self._loaded and not self._loaded[0]:
            self._loaded.popleft()
            self._entries.popleft()
            self.reserved_bytes -= self._reserved.popleft()
            self._read_in_first = 0

    def carried(self) -> list[InflightEntry]:
        """Return the unread entries in restore order, with narrowed row ranges and their old layers."""
        entries = list(self._entries)
        if entries and self._read_in_first:
            first = entries[0]
            read = self._read_in_first
            entries[0] = msgspec.structs.replace(first, row_start=first.row_start + read, rows=first.rows - read)
        return entries

    def check_invariants(self) -> None:
        loaded_rows = sum(batch.num_rows for batches in self._loaded for batch, _ in batches) - self._offset
        rest = list(self._entries)[len(self._loaded) :]
        assert self._own_left == loaded_rows + sum(e.rows for e in rest if not e.narrowed)
        assert self._not_loaded == sum(map(_weight, rest))
        assert len(self._loaded) <= len(self._reserved) <= min(MAX_AHEAD, len(self._entries))
        assert self.reserved_bytes == sum(self._reserved)
        assert self.loaded_bytes <= self.reserved_bytes


def _weight(entry: InflightEntry) -> int:
    """Return the number of a narrowed entry's rows times its consumer's key groups; 0 for other entries."""
    return entry.rows * (entry.key_group_last - entry.key_group_first + 1) if entry.narrowed else 0
