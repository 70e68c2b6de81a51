"""Writer of keyed tables. It writes the changes since the base, new bases of a few key groups, or the whole table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.manifest import SectionRef, StateEntry
from penstock.snapshots.format.sections import SectionWriter
from penstock.snapshots.writing.state_index import (
    BASE,
    DELTA,
    KeyGroups,
    Rebase,
    TableBase,
    TableId,
    merge_ranges,
    plan_rebase,
    subtract,
    without_groups,
)
from penstock.state.stored_form import delta_schema
from penstock.state.table import TableCapture

SECTION_BYTES = 8 << 20
"""Size in bytes at which a section ends, after the last row of the key group that reaches it.

A subtask that owns a part of the key groups then reads few others. A restore holds this much in memory at a time.
"""

WHOLE_BYTES = 64 << 10
"""Maximum stored bytes of a table that is written as a whole: references to its deltas would be as large."""


class StateWriter:
    """Writer of the tables of one checkpoint to a data file. One thread owns it.

    Args:
        file: writer of the data file.
        prefix: prefix of the sections' identities.
        max_parallelism: number of key groups.
        whole_bytes: see ``WHOLE_BYTES``.
    """

    def __init__(self, file: SectionWriter, prefix: str, max_parallelism: int, whole_bytes: int = WHOLE_BYTES) -> None:
        self._file = file
        self._prefix = prefix
        self._groups = 0, max_parallelism - 1
        self._whole_bytes = whole_bytes
        self._tables: dict[TableId, TableBase] = {}

    @property
    def tables(self) -> Mapping[TableId, TableBase]:
        """Tables that were written or referred to so far, for checkpoints that use this one as their base."""
        return self._tables

    def write(self, table: TableId, captured: TableCapture, base: TableBase | None) -> Sequence[StateEntry]:
        """Store a capture. Return the entries that hold it, including the entries of ``base`` that still apply.

        Args:
            table: the table.
            captured: its capture, which is not released here.
            base: the table in a complete checkpoint that exists as long as this one is in flight.

        Raises:
            CheckpointFailed: the store fails.
        """
        written = self._written(table, captured, base)
        self._tables[table] = written
        return written.entries

    def _written(self, table: TableId, captured: TableCapture, base: TableBase | None) -> TableBase:
        changed = None if base is None else captured.changed_since(base.serial)
        if base is None or changed is None:
            return self._whole(table, captured)
        if changed == 0:
            return TableBase(base.entries, captured.serial, captured.forget_before, base.cursor, base.credit)
        rebase = None if base.stored_bytes <= self._whole_bytes else plan_rebase(base, changed, captured.rows)
        return self._whole(table, captured) if rebase is None else self._incremental(table, captured, base, rebase)

    def _whole(self, table: TableId, captured: TableCapture) -> TableBase:
        entries = self._base(table, captured, self._groups)
        if not entries:  # Record that the table is empty.
            section = self._file.append(self._identity(table), captured.schema, ())
            entries = [StateEntry(table.operator_id, table.table, BASE, 0, 0, -1, section)]
        return TableBase(entries, captured.serial, captured.forget_before)

    def _incremental(self, table: TableId, captured: TableCapture, base: TableBase, rebase: Rebase) -> TableBase:
        kept = list(without_groups(base.entries, rebase.ranges))
        bases = [entry for groups in rebase.ranges for entry in self._base(table, captured, groups)]
        deltas = self._delta(table, captured, base.serial, merge_ranges(rebase.ranges))
        entries = [
            *(entry for entry in kept if entry.kind == BASE),
            *bases,
            *(entry for entry in kept if entry.kind == DELTA),
            *deltas,
        ]
        return TableBase(entries, captured.serial, captured.forget_before, rebase.cursor, rebase.credit)

    def _base(self, table: TableId, captured: TableCapture, groups: KeyGroups) -> list[StateEntry]:
        found = self._append(table, captured.schema, captured.base(*groups))
        return [
            StateEntry(table.operator_id, table.table, BASE, content.rows, content.first, content.last, section)
            for section, content in found
        ]

    def _delta(
        self, table: TableId, captured: TableCapture, since: int, rebased: Sequence[KeyGroups]
    ) -> list[StateEntry]:
        batches = chain.from_iterable(captured.delta(since, *groups) for groups in subtract(self._groups, rebased))
        return [
            StateEntry(table.operator_id, table.table, DELTA, content.rows, first, last, section)
            for section, content in self._append(table, delta_schema(captured.schema), batches)
            for first, last in subtract((content.first, content.last), rebased)
        ]

    def _append(
        self, table: TableId, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[tuple[SectionRef, SectionRows]]:
        """Write as many sections as necessary; none if there are no batches."""
        return [
            (self._file.append(self._identity(table), schema, ((batch, None) for batch in content)), content)
            for content in split_into_sections(batches)
        ]

    def _identity(self, table: TableId) -> str:
        offset = f"{self._file.written:x}"  # The offset distinguishes the sections of a table.
        return f"{self._prefix}/{table.subtask}/state/{table.operator_id}/{table.table}/{offset}"


class SectionRows:
    """Batches of the next section. It must be iterated over once.

    Attributes:
        rest: first batch of the following section. Valid after the iteration, as are the other attributes.
        rows: number of rows of the section.
        first, last: first and last key group of the section.
    """

    def __init__(self, begin: pa.RecordBatch, others: Iterator[pa.RecordBatch], limit: int) -> None:
        self.rest: pa.RecordBatch | None = begin
        self.rows = 0
        self.first = self.last = -1
        self._others = others
        self._room = limit

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while (batch := self.rest) is not None:
            groups = batch.column(0).to_numpy(zero_copy_only=False)
            count = self._fitting(batch, groups)
            if count == 0:
                return
            self._room -= batch.nbytes
            self.rows += count
            self.first = int(groups[0]) if self.first < 0 else self.first
            self.last = int(groups[count - 1])
            self.rest = next(self._others, None) if count == batch.num_rows else batch.slice(count)
            yield batch.slice(0, count)

    def _fitting(self, batch: pa.RecordBatch, groups: npt.NDArray[np.int16]) -> int:
        """Return the number of rows of a batch that belong to this section.

        A key group is never in two sections. The section always includes its first key group.
        """
        if batch.nbytes <= self._room:
            return len(groups)
        whole = max(0, batch.num_rows * self._room // batch.nbytes)
        begun = self.last if self.last >= 0 else groups[0]
        return int(np.searchsorted(groups, groups[whole - 1] if whole else begun, "right"))


def split_into_sections(batches: Iterable[pa.RecordBatch], limit: int = SECTION_BYTES) -> Iterator[SectionRows]:
    """Split batches of a table, by ascending key group, into sections of about ``limit`` bytes.

    The caller must read each section to its end before it requests the next one. Only one batch is in memory.
    """
    others = iter(batches)
    rest = next(others, None)
    while rest is not None:
        section = SectionRows(rest, others, limit)
        yield section
        rest = section.rest
