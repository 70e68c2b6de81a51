"""All checkpoints that one slot is writing: their files, and what they may refer to. One thread's, like the store's."""

from __future__ import annotations

from penstock.graph.model import JobGraph
from penstock.ids import CheckpointId, GenerationId
from penstock.snapshot.capture_queue import Recorded
from penstock.snapshot.checkpoint_writer import CheckpointWriter
from penstock.snapshot.handover import SubtaskCapture
from penstock.snapshot.inflight_index import BaseIndexes
from penstock.snapshot.model import SlotManifest
from penstock.snapshot.store import Store


class SlotWriter:
    """Every method may block for as long as the store does.

    Call order for a checkpoint: ``begin``, ``write`` until it returns True, ``finish``, ``confirm``; ``abandon`` at any
    time. ``begin`` may come late or not at all, then more is written than need be.
    """

    def __init__(self, store: Store, graph: JobGraph, generation: GenerationId, slot: int) -> None:
        self._store = store
        self._graph = graph
        self._generation = generation
        self._slot = slot
        self._writers: dict[CheckpointId, CheckpointWriter] = {}
        self._indexes = BaseIndexes()

    def begin(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """Refer to rows that the base has durably, from here on. It must be complete, and stay until this ends."""
        self._writer(checkpoint).refer_to(self._indexes.of_base(base))

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
        self._indexes.add(checkpoint, self._writers.pop(checkpoint).index)

    def abandon(self, checkpoint: CheckpointId) -> None:
        """Nothing will refer to it. Its file is removed; one that was confirmed is left to the driver's collection."""
        self._indexes.forget(checkpoint)
        writer = self._writers.pop(checkpoint, None)
        if writer is not None:
            writer.abandon()

    def close(self) -> None:
        """Give up whatever is not confirmed."""
        for checkpoint in list(self._writers):
            self.abandon(checkpoint)

    def _writer(self, checkpoint: CheckpointId) -> CheckpointWriter:
        if checkpoint not in self._writers:
            self._writers[checkpoint] = CheckpointWriter(
                self._store, self._graph, self._generation, checkpoint, self._slot
            )
        return self._writers[checkpoint]
