"""Writer of all checkpoints of one slot and of their bases. One thread owns it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SlotManifest, SubtaskManifest
from penstock.snapshots.restoring.local_state import LocalStateStore, entries_by_table
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.base_index import BaseIndex, BaseIndexes
from penstock.snapshots.writing.capture_queue import RecordedRows
from penstock.snapshots.writing.checkpoint_writer import CheckpointWriter
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.snapshots.writing.state_index import TableBase
from penstock.snapshots.writing.state_sections import WHOLE_BYTES


class SlotWriter:
    """Writer of one slot's checkpoints. Every method may block as long as the store does.

    Call order for a checkpoint: ``begin``, ``write`` until it returns True, ``finish``, ``confirm``. ``abandon`` may be
    called at any time. If ``begin`` is late or missing, more than necessary is written. ``restored`` must be called
    before everything else.

    Args:
        whole_bytes: see ``StateWriter``.
        local_state: store for restore points of the tables of durable checkpoints; None to keep none.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: GenerationId,
        slot: int,
        whole_bytes: int = WHOLE_BYTES,
        local_state: LocalStateStore | None = None,
    ) -> None:
        self._local_state = local_state
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
        """Record that the tables were loaded from these entries, so that later checkpoints may refer to the snapshot.

        Tables that have lost columns are excluded: a later reader must not find these columns again.
        """
        tables = {
            table: TableBase.restored(entries)
            for table, entries in entries_by_table(manifests).items()
            if not any(entry.without for entry in entries)
        }
        self._indexes.add(checkpoint, BaseIndex(tables=tables))

    def begin(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """From now on, let the checkpoint refer to the base.

        The base must be complete and must exist until this checkpoint ends. A later checkpoint never has an earlier
        base.
        """
        self._writer(checkpoint).use_base(self._indexes.for_base(base))
        self._bases[checkpoint] = base
        self._newest_base = max(self._newest_base, base)
        self._forget()

    def write(self, work: RecordedRows | SubtaskCapture) -> bool:
        """Append a part. Return True if it completes the captures of all subtasks.

        Raises:
            CheckpointFailed: the store fails. The caller must ``abandon`` the checkpoint.
        """
        writer = self._writer(work.checkpoint)
        if isinstance(work, RecordedRows):
            writer.add_inflight(work.subtask, work.inflight)
            return False
        writer.add_capture(work)
        return writer.captured_subtasks == len(self._graph.vertices)

    def finish(self, checkpoint: CheckpointId) -> SlotManifest:
        """Make the checkpoint durable. The manifest may be passed on after ``confirm``.

        Raises:
            CheckpointFailed: the store fails. The caller must ``abandon`` the checkpoint.
            ProtocolViolation: a row was captured twice.
        """
        return self._writers[checkpoint].finish()

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Keep the files of an acknowledged checkpoint. Later checkpoints may refer to them."""
        writer = self._writers.pop(checkpoint)
        self._indexes.add(checkpoint, writer.index)
        if self._local_state is not None:
            self._local_state.add(checkpoint, writer.retained)
        self._ended(checkpoint)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Abandon a checkpoint and remove its files. The files of a confirmed checkpoint are left to retention."""
        self._indexes.forget(checkpoint)
        writer = self._writers.pop(checkpoint, None)
        if writer is not None:
            writer.abandon()
        elif self._local_state is not None:
            self._local_state.checkpoint_discarded(checkpoint)
        self._ended(checkpoint)

    def close(self) -> None:
        """Abandon all checkpoints that are not confirmed."""
        for checkpoint in list(self._writers):
            self.abandon(checkpoint)

    def _ended(self, checkpoint: CheckpointId) -> None:
        self._bases.pop(checkpoint, None)
        self._forget()

    def _forget(self) -> None:
        """Drop indexes that are older than every base in use. Later checkpoints do not use older bases."""
        self._indexes.drop_older_than(min([*self._bases.values(), self._newest_base]))

    def _writer(self, checkpoint: CheckpointId) -> CheckpointWriter:
        if checkpoint not in self._writers:
            self._writers[checkpoint] = CheckpointWriter(
                self._store,
                self._graph,
                self._generation,
                checkpoint,
                self._slot,
                whole_bytes=self._whole_bytes,
                retain_tables=self._local_state is not None,
            )
        return self._writers[checkpoint]
