"""All checkpoints that one slot is writing: their files, and what they may refer to. One thread's, like the store's."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SlotManifest, SubtaskManifest
from penstock.snapshots.restoring.local_state import KeptTables, entries_by_table
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.base_index import BaseIndex, BaseIndexes
from penstock.snapshots.writing.capture_queue import Recorded
from penstock.snapshots.writing.checkpoint_writer import CheckpointWriter
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.snapshots.writing.state_index import TableBase
from penstock.snapshots.writing.state_sections import WHOLE_BYTES


class SlotWriter:
    """Every method may block for as long as the store does.

    Call order for a checkpoint: ``begin``, ``write`` until it returns True, ``finish``, ``confirm``; ``abandon`` at any
    time. ``begin`` may come late or not at all, then more is written than need be. ``restored`` before everything else,
    if at all.

    Args:
        whole_bytes: see ``StateWriter``.
        kept: takes the way back to the tables of checkpoints that are durable; None: they need not go back.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: GenerationId,
        slot: int,
        whole_bytes: int = WHOLE_BYTES,
        kept: KeptTables | None = None,
    ) -> None:
        self._kept = kept
        self._store = store
        self._graph = graph
        self._generation = generation
        self._slot = slot
        self._whole_bytes = whole_bytes
        self._writers: dict[CheckpointId, CheckpointWriter] = {}
        self._indexes = BaseIndexes()
        self._bases: dict[CheckpointId, CheckpointId] = {}
        self._newest_base: CheckpointId = 0

    def restored(self, checkpoint: CheckpointId, manifests: Iterable[SubtaskManifest]) -> None:
        """The subtasks' tables are loaded from these entries and hold nothing else; the snapshot may become a base. Not
        of tables that have lost columns: who reads them later must not find these again."""
        tables = {
            table: TableBase.restored(entries)
            for table, entries in entries_by_table(manifests).items()
            if not any(entry.without for entry in entries)
        }
        self._indexes.add(checkpoint, BaseIndex(tables=tables))

    def begin(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """Refer to what the base has durably, from here on. It must be complete, and stay until this ends. Bases rise
        with checkpoints."""
        self._writer(checkpoint).refer_to(self._indexes.of_base(base))
        self._bases[checkpoint] = base
        self._newest_base = max(self._newest_base, base)
        self._forget()

    def write(self, work: Recorded | SubtaskCapture) -> bool:
        """Append a part; True with the last subtask's capture.

        Raises:
            CheckpointFailed: the store fails; ``abandon`` the checkpoint.
        """
        writer = self._writer(work.checkpoint)
        if isinstance(work, Recorded):
            writer.add_inflight(work.subtask, work.inflight)
            return False
        writer.add_capture(work)
        return writer.captures == len(self._graph.vertices)

    def finish(self, checkpoint: CheckpointId) -> SlotManifest:
        """Make it durable; the manifest may be passed on once it is confirmed.

        Raises:
            CheckpointFailed: the store fails; ``abandon`` the checkpoint.
            ProtocolViolation: a row was captured twice.
        """
        return self._writers[checkpoint].finish()

    def confirm(self, checkpoint: CheckpointId) -> None:
        """It is acknowledged: the file stays, and later checkpoints may refer to it."""
        writer = self._writers.pop(checkpoint)
        self._indexes.add(checkpoint, writer.index)
        if self._kept is not None:
            self._kept.add(checkpoint, writer.kept)
        self._ended(checkpoint)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Nothing will refer to it. Its files are removed; those of one that was confirmed are left to the driver's
        collection."""
        self._indexes.forget(checkpoint)
        writer = self._writers.pop(checkpoint, None)
        if writer is not None:
            writer.abandon()
        elif self._kept is not None:
            self._kept.ended(checkpoint)
        self._ended(checkpoint)

    def close(self) -> None:
        """Give up whatever is not confirmed."""
        for checkpoint in list(self._writers):
            self.abandon(checkpoint)

    def _ended(self, checkpoint: CheckpointId) -> None:
        self._bases.pop(checkpoint, None)
        self._forget()

    def _forget(self) -> None:
        """What is older than every base in use is of no use any more; newer checkpoints have no older bases."""
        self._indexes.oldest_in_use(min([*self._bases.values(), self._newest_base]))

    def _writer(self, checkpoint: CheckpointId) -> CheckpointWriter:
        if checkpoint not in self._writers:
            self._writers[checkpoint] = CheckpointWriter(
                self._store,
                self._graph,
                self._generation,
                checkpoint,
                self._slot,
                whole_bytes=self._whole_bytes,
                keep=self._kept is not None,
            )
        return self._writers[checkpoint]
