"""Output of a sink subtask: the writer, and the messages of epochs that are not committed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.connectors.base import SinkWriter
from penstock.model.ids import CheckpointId
from penstock.model.manifest import InheritedMessage


class SinkTask:
    """Sink output of one subtask. Owned by the subtask's thread.

    Args:
        writer: opened; None in a subtask without a sink.
        pending: restored messages of this subtask by epoch.
        inherited: restored messages of subtasks that no longer exist.
    """

    def __init__(
        self, writer: SinkWriter | None, pending: Mapping[CheckpointId, bytes], inherited: Sequence[InheritedMessage]
    ) -> None:
        self._writer = writer
        self._pending = dict(pending)
        self._inherited = list(inherited)
        self._committed_epoch = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Pass rows to the writer."""
        if self._writer is not None:
            self._writer.write(batch)

    def end_epoch(self, epoch: CheckpointId, is_replaced: bool) -> None:
        """Stage the rows of the epoch. ``is_replaced``: they are a whole result that replaces the previous one."""
        if self._writer is None:
            return
        if is_replaced:
            self._writer.replace()
        message = self._writer.prepare(epoch)
        if message is not None:
            self._pending[epoch] = message

    def pending_until(self, epoch: CheckpointId) -> dict[CheckpointId, bytes]:
        """Return the messages of this subtask up to an epoch, as stored in a snapshot."""
        return {e: message for e, message in self._pending.items() if self._committed_epoch < e <= epoch}

    @property
    def inherited(self) -> list[InheritedMessage]:
        """Inherited messages that are not committed yet."""
        return [kept for kept in self._inherited if kept.epoch > self._committed_epoch]

    def committed(self, epoch: CheckpointId) -> None:
        """Forget the messages up to an epoch."""
        self._committed_epoch = max(self._committed_epoch, epoch)
        self._pending = {e: message for e, message in self._pending.items() if e > self._committed_epoch}
        self._inherited = self.inherited
