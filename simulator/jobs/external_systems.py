"""The world outside a simulated query: what survives every crash, and what a reader of the sinks sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from penstock.model.commits import EpochCommit
from penstock.model.ids import CheckpointId
from penstock.testing.failure import SimulationFailure
from simulator.jobs.reference import Expected
from simulator.jobs.rows import Columns
from simulator.oracles.log import LogWatch

Staged = tuple[tuple[int, ...], ...]
"""Rows as ``rows.ROW`` has them."""


class Table:
    """Visible output of one sink.

    Args:
        vertex: vertex of the sink.
        expected: its final contents; None: known only later, see ``judge``.
    """

    def __init__(self, vertex: int, expected: Expected | None) -> None:
        self.vertex = vertex
        self._expected = expected
        self.epochs: dict[int, dict[int, bytes]] = {}
        self._content: dict[int, list[tuple[int, Staged]]] = {}
        self._reset()

    def _reset(self) -> None:
        expected = self._expected or Expected()
        self._missing = Counter(expected.rows)
        self._missing_notes = Counter(expected.notes)
        self.left = sum(self._missing.values())
        self._newest: dict[tuple[int, int], int] = {}

    def show(self, epoch: int, messages: Mapping[int, bytes], content: list[tuple[int, Staged]]) -> None:
        """Make the rows of an epoch visible; ``content`` by the subtask that staged them."""
        self.epochs[epoch] = dict(messages)
        self._content[epoch] = content
        for subtask, rows in content:
            for row in rows:
                self._show(subtask, row)

    def _show(self, subtask: int, row: tuple[int, ...]) -> None:
        origin, key, time, note, emitter, seq = row
        channel = subtask, emitter
        if seq <= self._newest.get(channel, 0):
            raise SimulationFailure(
                f"sink v{self.vertex}[{subtask}]: row {seq} of {emitter} after {self._newest[channel]}", "order"
            )
        self._newest[channel] = seq
        if self._expected is not None and self._missing[origin, key, time] <= 0:
            raise SimulationFailure(f"sink v{self.vertex}: row {row} is wrong or there already", "output")
        if self._expected is not None and self._missing_notes[key, note] <= 0:
            raise SimulationFailure(f"sink v{self.vertex}: note of {row} is wrong or there already", "output")
        self._missing[origin, key, time] -= 1
        self._missing_notes[key, note] -= 1
        self.left -= 1

    def truncate(self, checkpoint: CheckpointId) -> None:
        """Take back what became visible after a checkpoint."""
        kept = [(epoch, self.epochs[epoch], self._content[epoch]) for epoch in self.epochs if epoch <= checkpoint]
        self.epochs, self._content = {}, {}
        self._reset()
        for epoch, messages, content in kept:
            self.show(epoch, messages, content)

    def judge(self, expected: Expected) -> None:
        """Check the output against the expected contents, now that they are known."""
        rows, notes = Counter(expected.rows), Counter(expected.notes)
        rows.update(self._missing)
        notes.update(self._missing_notes)
        missing = [row for row, count in rows.items() if count > 0][:3]
        wrong = [row for row, count in rows.items() if count < 0][:3]
        if missing or wrong or any(notes.values()):
            raise SimulationFailure(
                f"sink v{self.vertex} has ended without {missing}, but with {wrong}; notes that are not as expected:"
                f" {[note for note, count in notes.items() if count][:3]}",
                "output",
            )

    def some_missing(self) -> list[tuple[int, int, int]]:
        return [row for row, count in self._missing.items() if count][:3]


class BatchIds:
    """Batch ids that sinks have got, including those of epochs that are rolled back later.

    A sink that is idempotent by batch id remembers these as well. It would skip another epoch with the same id.
    """

    def __init__(self) -> None:
        self._by_epoch: dict[int, int] = {}
        self._rolled_back_to: list[CheckpointId] = []

    def copy(self) -> BatchIds:
        other = BatchIds()
        other._by_epoch, other._rolled_back_to = dict(self._by_epoch), list(self._rolled_back_to)
        return other

    def seen(self, epoch: int, batch: int) -> None:
        """Check the id of an epoch that a sink gets: its known id, or the next one if it has none yet."""
        known = self._by_epoch.get(epoch)
        if known is not None and known != batch:
            raise SimulationFailure(f"epoch {epoch} was batch {known} and comes as {batch}", "batches")
        next_batch = max(self._by_epoch.values(), default=-1) + 1
        may_skip = any(checkpoint < epoch for checkpoint in self._rolled_back_to)
        if known is None and (batch < next_batch or (batch > next_batch and not may_skip)):
            raise SimulationFailure(f"epoch {epoch} comes as batch {batch} behind {self._by_epoch}", "batches")
        if known is None:
            self._rolled_back_to = [checkpoint for checkpoint in self._rolled_back_to if checkpoint >= epoch]
        self._by_epoch[epoch] = batch

    def rolled_back(self, checkpoint: CheckpointId) -> None:
        """Allow the first epoch after this checkpoint to skip ids.

        The snapshots after it are dropped, and sinks may never have got their ids. An epoch that is still pending in
        this snapshot must keep its id.
        """
        self._rolled_back_to.append(checkpoint)


class ExternalSystems:
    """Sinks outside of the job.

    Args:
        expected: final contents of each sink, by vertex; None: known only later, see ``judge``.
    """

    def __init__(self, expected: Mapping[int, Expected | None]) -> None:
        self.tables = {vertex: Table(vertex, one) for vertex, one in expected.items()}
        self._expected = expected
        self._staged: dict[str, Staged] = {}
        self._staged_by: dict[str, int] = {}
        self._batches = BatchIds()
        self.log: LogWatch | None = None
        self.recommits = 0

    def copy(self, expected: Mapping[int, Expected | None] | None = None) -> ExternalSystems:
        """Return a copy in the current state with other expected contents."""
        other = ExternalSystems(expected or self._expected)
        for vertex, table in self.tables.items():
            for epoch, messages in table.epochs.items():
                other.tables[vertex].show(epoch, messages, table._content[epoch])
        other._staged = dict(self._staged)
        other._staged_by = dict(self._staged_by)
        other._batches = self._batches.copy()
        return other

    @property
    def complete(self) -> bool:
        """Everything is visible."""
        return all(table.left == 0 for table in self.tables.values())

    @property
    def left(self) -> int:
        return sum(table.left for table in self.tables.values())

    def judge(self, expected: Mapping[int, Expected]) -> None:
        """Check that all sinks have exactly the expected contents."""
        for vertex, table in self.tables.items():
            table.judge(expected[vertex])

    def stage(self, key: str, generation: int, columns: Columns) -> None:
        if key in self._staged:
            raise SimulationFailure(f"{key} is staged twice", "epochs")
        self._staged[key] = tuple(zip(*columns, strict=True))
        self._staged_by[key] = generation

    def handed_over(self, permit: EpochCommit) -> None:
        """Record the batch id of an epoch that a sink is asked to make visible. The commit may still fail."""
        self._batches.seen(permit.epoch, permit.batch)

    def commit(self, vertex: int, permit: EpochCommit) -> None:
        """Make an epoch of one sink visible, once; a repeated commit must say the same."""
        table = self.tables[vertex]
        known = table.epochs.get(permit.epoch)
        if known is not None:
            if known != dict(permit.messages):
                raise SimulationFailure(f"epoch {permit.epoch} is committed again with other messages", "epochs")
            self.recommits += 1
            return
        if not self._may_commit(vertex, permit):
            return
        newest = max(table.epochs, default=0)
        if permit.epoch < newest:
            raise SimulationFailure(f"epoch {permit.epoch} becomes visible after epoch {newest}", "epochs")
        content = []
        for subtask, message in permit.messages.items():
            staged = self._staged.get(message.decode())
            if staged is None:
                raise SimulationFailure(
                    f"epoch {permit.epoch}: {message.decode()} was abandoned or never staged", "epochs"
                )
            content.append((subtask, staged))
        table.show(permit.epoch, permit.messages, content)

    def commits_logged(self, epoch: int) -> None:
        """Note that epochs up to this one are logged as committed."""
        assert self.log is not None
        if epoch > self.log.view.committed_epoch:
            raise SimulationFailure(
                f"epoch {epoch} is settled, but the log says {self.log.view.committed_epoch}", "epochs"
            )

    def abandon(self, generation: int, pending: Sequence[str] = ()) -> None:
        """Drop what Generations up to this one staged, except what is visible or named by ``pending``."""
        needed = set(pending)
        for table in self.tables.values():
            needed.update(message.decode() for messages in table.epochs.values() for message in messages.values())
        for key in [k for k, g in self._staged_by.items() if g <= generation and k not in needed]:
            del self._staged[key]
            del self._staged_by[key]

    def truncate(self, checkpoint: CheckpointId) -> None:
        """The query was rolled back to this checkpoint: what it puts out from here on replaces what was put out."""
        self._batches.rolled_back(checkpoint)
        for table in self.tables.values():
            table.truncate(checkpoint)

    def _may_commit(self, vertex: int, permit: EpochCommit) -> bool:
        """Only what a complete snapshot of the lineage says; False for what was rolled back meanwhile."""
        assert self.log is not None
        covering = next((c for c in self.log.lineage if c >= permit.epoch), None)
        if covering is None:
            if any(c >= permit.epoch for c in self.log.passed_over):
                return False
            raise SimulationFailure(f"epoch {permit.epoch} becomes visible before a snapshot covers it", "epochs")
        subtasks = [s for slot in self.log.complete[covering].slots for s in slot.subtasks if s.vertex == vertex]
        promised = {s.index: s.pending_messages[permit.epoch] for s in subtasks if permit.epoch in s.pending_messages}
        promised |= {
            kept.index: kept.message for s in subtasks for kept in s.inherited_messages if kept.epoch == permit.epoch
        }
        if promised != dict(permit.messages):
            raise SimulationFailure(
                f"epoch {permit.epoch}: {sorted(permit.messages)} become visible, but checkpoint {covering} says"
                f" {sorted(promised)}",
                "epochs",
            )
        return True
