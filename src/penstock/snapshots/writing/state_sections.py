"""Writes keyed tables: what changed since the base, a few key groups anew, everything if there is no other way."""

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
    Rebasing,
    TableBase,
    TableId,
    merged,
    minus,
    narrowed,
    rebasing,
)
from penstock.state.stored_form import delta_schema
from penstock.state.table import TableCapture

SECTION_BYTES = 8 << 20
"""A section ends with the key group in which it reaches this size, so that a subtask that owns a part of the groups
reads little else. Also what a restore holds in memory at a time."""

WHOLE_BYTES = 64 << 10
"""A table of which so little is stored is written whole: the references to a chain would be as large."""


class StateWriter:
    """Appends the tables of one checkpoint to a data file, one after the other; one thread's.

    Args:
        file: where to.
        prefix: what the identities of sections begin with.
        max_parallelism: the number of key groups.
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
        """What was written or referred to so far, for checkpoints whose base this one will be."""
        return self._tables

    def write(self, table: TableId, captured: TableCapture, base: TableBase | None) -> Sequence[StateEntry]:
        """Store a capture; returns the entries that hold it, ``base``'s among them as far as they still count.

        Args:
            table: whose.
            captured: of it; not released here.
            base: the table as a complete checkpoint has it that stays as long as this one is in flight.

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
        anew = None if base.stored_bytes <= self._whole_bytes else rebasing(base, changed, captured.rows)
        return self._whole(table, captured) if anew is None else self._incremental(table, captured, base, anew)

    def _whole(self, table: TableId, captured: TableCapture) -> TableBase:
        entries = self._base(table, captured, self._groups)
        if not entries:  # of an empty table one can say that it is
            section = self._file.append(self._identity(table), captured.schema, ())
            entries = [StateEntry(table.operator_id, table.table, BASE, 0, 0, -1, section)]
        return TableBase(entries, captured.serial, captured.forget_before)

    def _incremental(self, table: TableId, captured: TableCapture, base: TableBase, anew: Rebasing) -> TableBase:
        kept = list(narrowed(base.entries, anew.ranges))
        bases = [entry for groups in anew.ranges for entry in self._base(table, captured, groups)]
        deltas = self._delta(table, captured, base.serial, merged(anew.ranges))
        entries = [
            *(entry for entry in kept if entry.kind == BASE),
            *bases,
            *(entry for entry in kept if entry.kind == DELTA),
            *deltas,
        ]
        return TableBase(entries, captured.serial, captured.forget_before, anew.cursor, anew.credit)

    def _base(self, table: TableId, captured: TableCapture, groups: KeyGroups) -> list[StateEntry]:
        found = self._append(table, captured.schema, captured.base(*groups))
        return [
            StateEntry(table.operator_id, table.table, BASE, content.rows, content.first, content.last, section)
            for section, content in found
        ]

    def _delta(
        self, table: TableId, captured: TableCapture, since: int, rebased: Sequence[KeyGroups]
    ) -> list[StateEntry]:
        batches = chain.from_iterable(captured.delta(since, *groups) for groups in minus(self._groups, rebased))
        return [
            StateEntry(table.operator_id, table.table, DELTA, content.rows, first, last, section)
            for section, content in self._append(table, delta_schema(captured.schema), batches)
            for first, last in minus((content.first, content.last), rebased)
        ]

    def _append(
        self, table: TableId, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
    ) -> list[tuple[SectionRef, SectionCut]]:
        """As many sections as it takes; none for no batches."""
        return [
            (self._file.append(self._identity(table), schema, ((batch, None) for batch in content)), content)
            for content in cut(batches)
        ]

    def _identity(self, table: TableId) -> str:
        place = f"{self._file.written:x}"  # tells the sections of a table apart
        return f"{self._prefix}/{table.subtask}/state/{table.operator_id}/{table.table}/{place}"


class SectionCut:
    """The next section's batches, to be iterated over once; then ``rows``, ``first`` and ``last`` (key groups) are what
    was in it, and ``rest`` begins the next one."""

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
        """How many of its rows belong here: no key group is in two sections, and the first one is in any case."""
        if batch.nbytes <= self._room:
            return len(groups)
        whole = max(0, batch.num_rows * self._room // batch.nbytes)
        begun = self.last if self.last >= 0 else groups[0]
        return int(np.searchsorted(groups, groups[whole - 1] if whole else begun, "right"))


def cut(batches: Iterable[pa.RecordBatch], limit: int = SECTION_BYTES) -> Iterator[SectionCut]:
    """Batches of a table, by key group ascending, as sections of about ``limit`` bytes; each has to be read to its end
    before the next one is asked for. Nothing is kept but the batch at hand."""
    others = iter(batches)
    rest = next(others, None)
    while rest is not None:
        section = SectionCut(rest, others, limit)
        yield section
        rest = section.rest
