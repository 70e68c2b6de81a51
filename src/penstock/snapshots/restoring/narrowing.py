"""In-flight rows at a consumer that is another one than they were captured for: which of an entry's rows are its own.

After a rescale one entry belongs to every subtask that has some of its key groups; each reads all of it and leaves out
what is not its own. How far it has read is counted in rows of the entry all the same, so that a checkpoint taken
meanwhile can refer to the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import CorruptSnapshot
from penstock.logs import get_logger
from penstock.model.job_graph import Edge, JobGraph
from penstock.model.manifest import InflightEntry, SectionRef, SubtaskManifest
from penstock.snapshots.format.inflight_counts import distinct_rows
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.parallel_reads import read_in_parallel
from penstock.snapshots.store.store import Store
from penstock.state.hashing import key_groups

log = get_logger(__name__)


@dataclass(frozen=True)
class OwnRows:
    """The rows of an entry that are its consumer's.

    Attributes:
        batches: in order, none empty.
        reached: of a narrowed entry, for each row of each batch: how many of the entry's rows are dealt with once this
        one
            is. Empty otherwise: each row is one.
    """

    batches: Sequence[pa.RecordBatch]
    reached: Sequence[npt.NDArray[np.int64]] = ()


def load_own(store: Store, entry: InflightEntry, graph: JobGraph) -> OwnRows:
    """Read an in-flight entry for its consumer in ``graph``; see ``load_inflight`` for errors."""
    edge = graph.edge(entry.edge)
    batches = load_inflight(store, entry, edge.schema)
    return _narrow(entry, batches, edge, graph.max_parallelism) if entry.narrowed else OwnRows(batches)


def rows_to_replay(store: Store, slots: Iterable[Iterable[SubtaskManifest]], graph: JobGraph, *, exactly: bool) -> int:
    """Return the number of rows in flight in what the slots restore.

    Args:
        exactly: read the sections that several subtasks share. Otherwise, and if one cannot be read, the number is an
            upper bound.
    """
    entries = [entry for slot in slots for subtask in slot for entry in subtask.inflight]
    if exactly:
        try:
            return count_own(store, entries, graph)
        except (CorruptSnapshot, OSError) as problem:  # the slot that reads the section fails with it
            log.warning("rows in flight are shown as an upper bound: %s", problem)
    return distinct_rows(entries)


def count_own(store: Store, entries: Iterable[InflightEntry], graph: JobGraph) -> int:
    """Return the number of rows that the entries have for their consumers. Reads each section of narrowed ones once;
    see ``load_inflight`` for errors."""
    count = 0
    narrowed: dict[SectionRef, list[InflightEntry]] = {}
    for entry in entries:
        if entry.narrowed:
            narrowed.setdefault(entry.section, []).append(entry)
        else:
            count += entry.rows

    def of_section(sharing: Sequence[InflightEntry]) -> int:
        edge = graph.edge(sharing[0].edge)
        start = min(entry.row_start for entry in sharing)
        end = max(entry.row_start + entry.rows for entry in sharing)
        all_rows = msgspec.structs.replace(sharing[0], row_start=start, rows=end - start)
        batches = load_inflight(store, all_rows, edge.schema)
        groups = np.concatenate([key_groups(batch, edge.key_columns, graph.max_parallelism) for batch in batches])
        own = 0
        for entry in sharing:
            first = entry.row_start - start
            those = groups[first : first + entry.rows]
            own += int(np.count_nonzero((those >= entry.key_group_first) & (those <= entry.key_group_last)))
        return own

    return count + sum(read_in_parallel(store, of_section, list(narrowed.values())))


def own_positions(
    batch: pa.RecordBatch, keys: Sequence[int], max_parallelism: int, entry: InflightEntry
) -> npt.NDArray[np.int64]:
    """Return the positions of the rows of a narrowed entry that are its consumer's. ``keys``: positions of the columns
    of the edge's key."""
    groups = key_groups(batch, keys, max_parallelism)
    return np.flatnonzero((groups >= entry.key_group_first) & (groups <= entry.key_group_last))


def _narrow(entry: InflightEntry, batches: Sequence[pa.RecordBatch], edge: Edge, max_parallelism: int) -> OwnRows:
    kept, reached = [], []
    before = 0
    for batch in batches:
        own = own_positions(batch, edge.key_columns, max_parallelism, entry)
        if len(own):
            kept.append(batch if len(own) == batch.num_rows else batch.take(pa.array(own)))
            reached.append(before + own + 1)
        before += batch.num_rows
    return OwnRows(kept, reached)
