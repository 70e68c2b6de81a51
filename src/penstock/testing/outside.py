"""The world outside a simulated query: what survives every crash, and what a reader of the sink sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.connectors.base import EpochCommit
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.store import MemoryStore

Row = tuple[int, int, int, int]
"""(kind, key, value, count); see ``penstock.testing.job``."""


class SimulationFailure(AssertionError):
    """The simulated job did something that it must never do. ``oracle``: what noticed it."""

    def __init__(self, message: str, oracle: str = "output") -> None:
        super().__init__(f"{oracle}: {message}")
        self.oracle = oracle


class Outside:
    """Staged and visible output.

    Args:
        store: the checkpoint location, to check that nothing becomes visible before its snapshot is complete.
        rows_per_split: to tell which rows one producer read in order.
    """

    def __init__(self, store: MemoryStore, rows_per_split: int) -> None:
        self._store = store
        self._rows_per_split = rows_per_split
        self._staged: dict[str, list[Row]] = {}
        self._staged_by: dict[str, int] = {}
        self._visible: dict[int, dict[int, bytes]] = {}
        self.rows: list[Row] = []
        self.epochs: list[int] = []
        self._newest_count: dict[int, int] = {}
        self._newest_value: dict[tuple[int, int], int] = {}

    def stage(self, key: str, generation: int, rows: list[Row]) -> None:
        if key in self._staged:
            raise SimulationFailure(f"{key} is staged twice")
        self._staged[key] = rows
        self._staged_by[key] = generation

    def commit(self, permit: EpochCommit) -> None:
        """Make an epoch visible, once; a repeated commit must say the same."""
        messages = dict(permit.messages)
        known = self._visible.get(permit.epoch)
        if known is not None:
            if known != messages:
                raise SimulationFailure(f"epoch {permit.epoch} is committed again with other messages")
            return
        newest = max(self.epochs, default=0)
        if permit.epoch < newest:
            raise SimulationFailure(f"epoch {permit.epoch} becomes visible after epoch {newest}")
        self._check_complete(permit.epoch)
        rows = []
        for subtask, message in messages.items():
            key = message.decode()
            if key not in self._staged:
                raise SimulationFailure(
                    f"epoch {permit.epoch}: {key} of subtask {subtask} was abandoned or never staged"
                )
            rows += self._staged[key]
        self._visible[permit.epoch] = messages
        self.epochs.append(permit.epoch)
        self._check_order(rows)
        self.rows += rows

    def abandon(self, generation: int, pending: Sequence[str] = ()) -> None:
        """Drop what Generations up to this one staged, nobody made visible and ``pending`` does not name."""
        needed = {message.decode() for messages in self._visible.values() for message in messages.values()}
        needed.update(pending)
        for key in [k for k, g in self._staged_by.items() if g <= generation and k not in needed]:
            del self._staged[key]
            del self._staged_by[key]

    def check(self, expected: Counter[Row]) -> bool:
        """Whether everything is visible, exactly once.

        Raises:
            SimulationFailure: there are rows that should not be there.
        """
        found = Counter((kind, key, value, 0 if kind == 0 else count) for kind, key, value, count in self.rows)
        wrong = found - expected
        if wrong:
            raise SimulationFailure(f"visible rows that are wrong or duplicates: {sorted(wrong.items())[:5]}")
        return found == expected

    def _check_complete(self, epoch: int) -> None:
        hook, self._store.hook = self._store.hook, None
        try:
            view = SnapshotLog(self._store, lambda: "reader").refresh()
        finally:
            self._store.hook = hook
        if epoch > max((record.checkpoint for record in view.lineage), default=0):
            raise SimulationFailure(f"epoch {epoch} becomes visible before a snapshot covers it")

    def _check_order(self, rows: list[Row]) -> None:
        """The count of a key rises by one with every row, and rows of one key and split come in their order."""
        for kind, key, value, count in rows:
            if kind != 0:
                continue
            before = self._newest_count.get(key, 0)
            if count != before + 1:
                raise SimulationFailure(f"key {key}: count {count} becomes visible after {before}")
            self._newest_count[key] = count
            producer = key, value // self._rows_per_split
            if value <= self._newest_value.get(producer, -1):
                raise SimulationFailure(f"key {key}: {value} comes after {self._newest_value[producer]} of its split")
            self._newest_value[producer] = value
