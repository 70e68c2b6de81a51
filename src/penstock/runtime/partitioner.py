"""Which consumer gets which rows of a batch. The order of a producer's rows is kept within every channel."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa

from penstock.graph.model import Edge, EdgeKind, JobGraph
from penstock.runtime.payloads import compact
from penstock.state.hashing import key_groups

REBALANCE_CUT_ROWS = 4_096
"""Batches of at least this many rows per consumer are dealt out in pieces; smaller ones whole, in turns."""


class Partitioner(ABC):
    """Splits the batches of one producer on one edge. Owned by the producing subtask's thread."""

    @abstractmethod
    def split(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        """(consumer index, its rows) for every consumer that gets any, by ascending index; no row twice or missing
        (broadcast: every row once per consumer). A slice pins at most twice its own bytes."""


class HashPartitioner(Partitioner):
    """By the owner of each row's key group (the rule of ``graph.keygroups.owner``)."""

    def __init__(self, key_columns: tuple[int, ...], parallelism: int, max_parallelism: int) -> None:
        self._key_columns = key_columns
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        groups = np.arange(max_parallelism, dtype=np.int64)
        self._owner = (groups * parallelism // max_parallelism).astype(np.min_scalar_type(parallelism))

    def split(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        if self._parallelism == 1:
            return [(0, compact(batch))]
        owners = self._owner[key_groups(batch, self._key_columns, self._max_parallelism)]
        counts = np.bincount(owners, minlength=self._parallelism)
        if counts.max() == batch.num_rows:
            return [(int(counts.argmax()), compact(batch))]
        # A stable sort of small integers is a radix sort. Taking each part by itself makes it compact at once.
        order = np.argsort(owners, kind="stable")
        ends = np.cumsum(counts)
        return [
            (consumer, batch.take(pa.array(order[end - count : end])))
            for consumer, (count, end) in enumerate(zip(counts, ends, strict=True))
            if count
        ]


class RebalancePartitioner(Partitioner):
    """In turns, starting with the consumer of the producer's own index."""

    def __init__(self, parallelism: int, producer: int) -> None:
        self._parallelism = parallelism
        self._turn = producer

    def split(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        count = self._parallelism
        if batch.num_rows < REBALANCE_CUT_ROWS * count:
            self._turn = (self._turn + 1) % count
            return [(self._turn, compact(batch))]
        cuts = [batch.num_rows * i // count for i in range(count + 1)]
        return [(i, compact(batch.slice(cuts[i], cuts[i + 1] - cuts[i]))) for i in range(count)]


class BroadcastPartitioner(Partitioner):
    """Everything to everyone."""

    def __init__(self, parallelism: int) -> None:
        self._parallelism = parallelism

    def split(self, batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
        compacted = compact(batch)
        return [(consumer, compacted) for consumer in range(self._parallelism)]


def partitioner(edge: Edge, producer: int, graph: JobGraph) -> Partitioner:
    """The partitioner of one producer subtask on an edge."""
    match edge.kind:
        case EdgeKind.HASH:
            return HashPartitioner(edge.key_columns, graph.parallelism, graph.max_parallelism)
        case EdgeKind.REBALANCE:
            return RebalancePartitioner(graph.parallelism, producer)
        case EdgeKind.BROADCAST:
            return BroadcastPartitioner(graph.parallelism)
