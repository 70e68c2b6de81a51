"""In-flight rows at a consumer that is another one than they were captured for: which of an entry's rows are its own.

After a rescale one entry belongs to every subtask that has some of its key groups; each reads all of it and leaves out
what is not its own. How far it has read is counted in rows of the entry all the same, so that a checkpoint taken
meanwhile can refer to the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.model import Edge, JobGraph
from penstock.snapshot.model import InflightEntry
from penstock.snapshot.restore import load_inflight
from penstock.snapshot.store import Store
from penstock.state.hashing import key_groups


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
