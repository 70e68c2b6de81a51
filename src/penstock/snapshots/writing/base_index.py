"""Indexes of complete checkpoints of one slot. Later checkpoints may refer to their in-flight rows and tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.ids import CheckpointId
from penstock.snapshots.writing.inflight_index import EMPTY_INDEX, InflightIndex
from penstock.snapshots.writing.state_index import TableBase, TableId

MAX_INDEXES = 16
"""Maximum number of indexes kept, far more than checkpoints in flight. A base without an index is not used."""


@dataclass(frozen=True)
class BaseIndex:
    """Index of the in-flight rows and tables of one checkpoint of one slot."""

    inflight: InflightIndex = EMPTY_INDEX
    tables: Mapping[TableId, TableBase] = field(default_factory=dict)


NO_BASE = BaseIndex()
"""Index for a checkpoint without a base."""


class BaseIndexes:
    """Indexes of one slot by checkpoint."""

    def __init__(self) -> None:
        self._indexes: dict[CheckpointId, BaseIndex] = {}
        self._oldest: CheckpointId = 0

    def __len__(self) -> int:
        return len(self._indexes)

    def add(self, checkpoint: CheckpointId, index: BaseIndex) -> None:
        """Add the index of a possible base: a checkpoint that is durable and acknowledged, or that was restored."""
        self._indexes[checkpoint] = index
        spare = sorted(known for known in self._indexes if known != self._oldest)
        for old in spare[:-MAX_INDEXES]:
            del self._indexes[old]

    def forget(self, checkpoint: CheckpointId) -> None:
        """Remove the index of an aborted checkpoint."""
        self._indexes.pop(checkpoint, None)

    def for_base(self, base: CheckpointId) -> BaseIndex:
        """Return the index of a base; an empty one if it is unknown."""
        return self._indexes.get(base, NO_BASE)

    def drop_older_than(self, base: CheckpointId) -> None:
        """Drop indexes of checkpoints older than the oldest base in use.

        Also let tables forget changes before that base.
        """
        if base <= self._oldest:
            return
        self._oldest = base
        for older in [checkpoint for checkpoint in self._indexes if checkpoint < base]:
            del self._indexes[older]
        for table in self.for_base(base).tables.values():
            table.forget_before()
