"""In-flight rows of narrowed entries, and the selection of the rows that belong to a consumer after a rescale.

After a rescale, an entry belongs to every subtask that owns some of its key groups. Each of these subtasks reads all
rows and skips those of the others. The read position still counts all rows of the entry, so that a checkpoint can refer
to the rest.
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
class ConsumerRows:
    """Rows of an entry that belong to its consumer.

    Attributes:
        batches: the rows in order, without empty batches.
        reached: only for a narrowed entry: for each row of each batch, the number of the entry's rows up to and
            including this one.
    """

    batches: Sequence[pa.RecordBatch]
    reached: Sequence[npt.NDArray[np.int64]] = ()


def load_consumer_rows(store: Store, entry: InflightEntry, graph: JobGraph) -> ConsumerRows:
    """Read an in-flight entry for its consumer in ``graph``. Raises as ``load_inflight``."""
    edge = graph.edge(entry.edge)
    batches = load_inflight(store, entry, edge.schema)
    return _narrow(entry, batches, edge, graph.max_parallelism) if entry.narrowed else ConsumerRows(batches)


def rows_to_replay(store: Store, slots: Iterable[Iterable[SubtaskManifest]], graph: JobGraph, *, exactly: bool) -> int:
    """Return the number of in-flight rows that the slots restore.

    Args:
        exactly: read the sections that several subtasks share. If it is False, or if a section cannot be read, the
            number is an upper bound.
    """
    entries = [entry for slot in slots for subtask in slot for entry in subtask.inflight]
    if exactly:
        try:
            return count_consumer_rows(store, entries, graph)
        except (CorruptSnapshot, OSError) as problem:  # The slot that reads the section raises the same error.
            log.warning("the number of rows in flight is an upper bound, because a section cannot be read: %s", problem)
    return distinct_rows(entries)


def count_consumer_rows(store: Store, entries: Iterable[InflightEntry], graph: JobGraph) -> int:
    """Return the number of rows of the entries for their consumers.

    Reads each section of narrowed entries once. Raises as ``load_inflight``.
    """
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


def consumer_row_positions(
    batch: pa.RecordBatch, keys: Sequence[int], max_parallelism: int, entry: InflightEntry
) -> npt.NDArray[np.int64]:
    """Return the positions of a narrowed entry's rows that belong to its consumer.

    Args:
        keys: positions of the key columns of the edge.
    """
    groups = key_groups(batch, keys, max_parallelism)
    return np.flatnonzero((groups >= entry.key_group_first) & (groups <= entry.key_group_last))


def _narrow(entry: InflightEntry, batches: Sequence[pa.RecordBatch], edge: Edge, max_parallelism: int) -> ConsumerRows:
    kept, reached = [], []
    before = 0
    for batch in batches:
        own = consumer_row_positions(batch, edge.key_columns, max_parallelism, entry)
        if len(own):
            kept.append(batch if len(own) == batch.num_rows else batch.take(pa.array(own)))
            reached.append(before + own + 1)
        before += batch.num_rows
    return ConsumerRows(kept, reached)
