"""Makes a slot's captures durable, then acknowledges the checkpoint. One thread; files are its only business."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.errors import CheckpointFailed
from penstock.graph.model import JobGraph
from penstock.ids import CheckpointId, SubtaskId
from penstock.protocol.elements import Captured
from penstock.runtime.host import SubtaskCapture
from penstock.runtime.messages import CheckpointAck, CheckpointDecline
from penstock.snapshot.capture import write_captures
from penstock.snapshot.store import Store

MAX_ENDED = 64
"""Checkpoints whose end is remembered, so that a late capture of one is dropped; more are never in flight."""


@dataclass(frozen=True)
class _Ended:
    checkpoint: CheckpointId
    reason: str | None


class Uploader:
    """Collects one capture per subtask and checkpoint.

    Args:
        answer: takes exactly one message per checkpoint that all subtasks captured or one declined.
        on_crash: an error that is not the store's: a bug; the slot must end.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: int,
        slot: int,
        answer: Callable[[CheckpointAck | CheckpointDecline], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._graph = graph
        self._generation = generation
        self._slot = slot
        self._answer = answer
        self._on_crash = on_crash
        self._work: queue.SimpleQueue[SubtaskCapture | _Ended | None] = queue.SimpleQueue()
        self._parts: dict[CheckpointId, list[SubtaskCapture]] = {}
        self._ended: dict[CheckpointId, None] = {}
        self.thread = threading.Thread(target=self._run, name=f"penstock-upload-{slot}", daemon=True)

    # -- from any thread ------------------------------------------------------------------------------------------

    def triggered(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """``base``: the complete checkpoint whose sections may be referred to (0: none)."""

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        """A part of what is in flight, before ``captured`` of the same subtask."""
        raise NotImplementedError

    def captured(self, capture: SubtaskCapture) -> None:
        self._work.put(capture)

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        """One subtask cannot take the checkpoint: what the others captured is of no use."""
        self._work.put(_Ended(checkpoint, reason))

    def aborted(self, checkpoint: CheckpointId) -> None:
        """The driver gave the checkpoint up: hold nothing for it."""
        self._work.put(_Ended(checkpoint, None))

    def stop(self) -> None:
        self._work.put(None)

    # -- on the upload thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (item := self._work.get()) is not None:
                if isinstance(item, _Ended):
                    self._end(item.checkpoint, item.reason)
                elif item.checkpoint not in self._ended:
                    self._add(item)
                del item  # or its rows would be held until the next checkpoint
        except Exception as problem:  # noqa: BLE001 - handed on, whatever it is
            self._on_crash(problem)

    def _add(self, capture: SubtaskCapture) -> None:
        parts = self._parts.setdefault(capture.checkpoint, [])
        parts.append(capture)
        if len(parts) == len(self._graph.vertices):
            del self._parts[capture.checkpoint]
            self._write(capture.checkpoint, parts)

    def _write(self, checkpoint: CheckpointId, parts: list[SubtaskCapture]) -> None:
        started = time.monotonic()
        try:
            manifest = write_captures(self._store, self._graph, self._generation, self._slot, parts)
        except CheckpointFailed as problem:
            self._end(checkpoint, str(problem))
            return
        written_ms = (time.monotonic() - started) * 1000
        metrics = [msgspec.structs.replace(m, async_ms=written_ms) for m in manifest.metrics]
        self._remember(checkpoint)
        self._answer(CheckpointAck(checkpoint, msgspec.structs.replace(manifest, metrics=metrics)))

    def _end(self, checkpoint: CheckpointId, reason: str | None) -> None:
        self._parts.pop(checkpoint, None)
        if reason is not None and checkpoint not in self._ended:
            self._answer(CheckpointDecline(self._slot, checkpoint, reason))
        self._remember(checkpoint)

    def _remember(self, checkpoint: CheckpointId) -> None:
        self._ended[checkpoint] = None
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
