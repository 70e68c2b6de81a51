"""Loader that reads in-flight data of a snapshot for the subtasks of a slot, on its own thread."""

from __future__ import annotations

import queue
from collections.abc import Callable

from penstock.logs import daemon_thread
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import InflightEntry
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.snapshots.store.store import Store
from penstock.worker.host import RecoveredLoaded


class InflightLoader:
    """Answers ``load`` in the order of the calls.

    Args:
        deliver: takes the loaded rows, for the subtask that requested them.
        on_crash: called if a section cannot be read. The slot must end, because nothing may be skipped.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        slot: int,
        deliver: Callable[[SubtaskId, RecoveredLoaded], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._graph = graph
        self._deliver = deliver
        self._on_crash = on_crash
        self._work: queue.SimpleQueue[tuple[SubtaskId, InflightEntry] | None] = queue.SimpleQueue()
        self.thread = daemon_thread(self._run, f"penstock-load-{slot}")

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        """Request an in-flight entry. Any thread may call."""
        self._work.put((subtask, entry))

    def stop(self) -> None:
        self._work.put(None)

    def _run(self) -> None:
        try:
            while (item := self._work.get()) is not None:
                subtask, entry = item
                own = load_consumer_rows(self._store, entry, self._graph)
                self._deliver(subtask, RecoveredLoaded(entry, own.batches, own.reached))  # type: ignore[arg-type]
                del item, own
        except Exception as problem:  # noqa: BLE001 - handed on, whatever it is
            self._on_crash(problem)
