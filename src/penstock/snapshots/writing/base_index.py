"""What one slot may refer to: by checkpoint, where that one's in-flight rows and tables lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.ids import CheckpointId
from penstock.snapshots.writing.inflight_index import NOTHING, InflightIndex
from penstock.snapshots.writing.state_index import TableBase, TableId

MAX_INDEXES = 16
"""Indexes kept besides those in use: of what may become a base. Far more than checkpoints may be in flight; without its
index a base is merely of no use."""


@dataclass(frozen=True)
class BaseIndex:
    """Of one checkpoint of one slot."""

    inflight: InflightIndex = NOTHING
    tables: Mapping[TableId, TableBase] = field(default_factory=dict)


NO_BASE = BaseIndex()
"""Of a checkpoint without a base."""


class BaseIndexes:
    """The indexes of one slot by checkpoint."""

    def __init__(self) -> None:
        self._indexes: dict[CheckpointId, BaseIndex] = {}
        self._oldest: CheckpointId = 0

    def __len__(self) -> int:
        return len(self._indexes)

    def add(self, checkpoint: CheckpointId, index: BaseIndex) -> None:
        """The checkpoint is durable here and acknowledged, or was restored; it may become a base."""
        self._indexes[checkpoint] = index
        spare = sorted(known for known in self._indexes if known != self._oldest)
        for old in spare[:-MAX_INDEXES]:
            del self._indexes[old]

    def forget(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: it will never be a base."""
        self._indexes.pop(checkpoint, None)

    def of_base(self, base: CheckpointId) -> BaseIndex:
        """What may be referred to with this base."""
        return self._indexes.get(base, NO_BASE)

    def oldest_in_use(self, base: CheckpointId) -> None:
        """No older one is the base of any checkpoint, or will be: the tables may forget what changed before it."""
        if base <= self._oldest:
            return
        self._oldest = base
        for older in [checkpoint for checkpoint in self._indexes if checkpoint < base]:
            del self._indexes[older]
        for table in self.of_base(base).tables.values():
            table.forget_before()
