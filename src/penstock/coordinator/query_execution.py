"""Execution of one query on the driver: the facade of the coordinator service."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from penstock.config import CONF_PREFIX, LEAST_INTERVAL_MS, Options
from penstock.connectors.base import Committing
from penstock.coordinator.claimed_location import ClaimedLocation
from penstock.coordinator.generation_slots import GenerationPlan
from penstock.coordinator.history_writer import HistoryWriter
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.machines.checkpoint_events import SnapshotRequest
from penstock.coordinator.machines.scaling import no_such_parallelism
from penstock.coordinator.metrics import QueryMetrics
from penstock.coordinator.policy import policy_of
from penstock.coordinator.service import CoordinatorService
from penstock.coordinator.snapshot_tickets import DRAINED
from penstock.coordinator.view import EpochProgress, ExecutionState, ExecutionView, RequestedState
from penstock.errors import (
    CheckpointFailed,
    ConfigError,
    PenstockError,
    QueryFailed,
)
from penstock.logs import about
from penstock.model.elements import Alignment
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SnapshotMetadata, checked_words
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.fork import Origin
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.store.store_access import StoreAccess

_POLL_S = 0.2
_RUNNING_POLL_S = 0.02
SUSPENDED = "suspended"
"""Default label of the snapshot of a suspension."""
HISTORY_ENDS_S = 5.0
"""Time limit for writing the history of the last checkpoints at the end of a query."""
_T = TypeVar("_T")


class QueryExecution:
    """Execution of one JobGraph from ``start`` to its end, over as many generations as failures make necessary.

    All methods may be called from any thread. The committers come from the graph's sinks.

    Args:
        graph: the job; it needs ``graph.parallelism`` slots.
        name: the user's name for the query, shown by Spark.
        run_id: a UUID, new per start.
        location: the checkpoint location: a path on a file system shared by driver and slots, or an object store.
        options: parsed options.
        launcher: starts slots.
        until_available: read what is available at the start, commit it and end; open windows stay open.
        origin: start from this snapshot of another query; ignored after the first start at the location.
        access: credentials for an object store; None: those of the environment of driver and slots.
        drains: process the in-flight data of the restored snapshot, take a snapshot without in-flight data, and end. No
            source is read.
        claimed: run here even if this location is a copy of a location that still exists.
        committing: context in which each commit runs.
        on_progress: called on a service thread after each committed epoch; must not raise or block for long.
        on_end: called once on a service thread when the query has ended, with its error if it failed. Not called if
            ``start`` raised.
    """

    def __init__(
        self,
        graph: JobGraph,
        *,
        name: str | None,
        run_id: str,
        location: str,
        options: Options,
        launcher: SlotLauncher,
        until_available: bool = False,
        origin: Origin | None = None,
        access: StoreAccess | None = None,
        claimed: bool = False,
        drains: bool = False,
        committing: Committing = nullcontext,
        on_progress: Callable[[EpochProgress], None] = lambda progress: None,
        on_end: Callable[[PenstockError | None], None] = lambda error: None,
    ) -> None:
        self._graph = graph
        self._name = name
        self._run_id = run_id
        self._location = location
        self._options = options
        self._launcher = launcher
        self._until_available = until_available
        self._origin = origin
        self._access = access
        self._claimed = claimed
        self._drains = drains
        self._committing = committing
        self._on_progress = on_progress
        self._on_end = on_end
        self._query_id = ""
        self._service: CoordinatorService | None = None
        self._metrics = QueryMetrics(graph, "", run_id, name)
        self._changing = threading.Lock()
        self._ended = threading.Event()
        self._claimed_location: ClaimedLocation | None = None
        self._history: HistoryWriter | None = None
        self._resuming = threading.Lock()
        self._parallelism: int | None = None  # of the next start, if it was changed while the query was suspended
        self._suspended_at: SnapshotMetadata | None = None

    @property
    def query_id(self) -> str:
        """Id of the query at its location, the same over restarts. Known after ``start``."""
        return self._query_id

    def start(self) -> None:
        """Open the location, recover and launch the first generation. Return when its slots have been requested.

        Raises:
            LocationError: missing rights, a foreign location, a changed plan, corrupt snapshots.
            ResourceError: too few slots.
            SinkError: the sink's target cannot be written exactly once.
            NotSupported: a source cannot determine what is available.
            ConfigError: keys to a store would leave this machine over links without TLS.
        """
        if self._service is not None:
            raise QueryFailed("an execution is started once; make a new one")
        self._check_links()
        for vertex in self._graph.vertices if self._until_available else ():
            if vertex.source is not None:
                vertex.source.source.check_freezable()
        location = ClaimedLocation(
            self._location, self._access, self._graph, self._options, self._origin, claimed=self._claimed
        )
        self._query_id = location.query_id
        history = self._history = HistoryWriter(SegmentWriter(location.store))
        self._metrics = QueryMetrics(self._graph, self._query_id, self._run_id, self._name, ended=history.ended)
        try:
            self._begin(location)
        except Exception:
            location.give_back()
            raise
        self._claimed_location = location
        try:
            location.confirm()
        except PenstockError:
            self.stop()
            raise

    def _check_links(self) -> None:
        """Refuse keys to a store without TLS: slots get them over the control links, where others could read them."""
        if self._access is None or not self._access.has_keys or self._options.network_tls:
            return
        address = self._launcher.control_address()
        if not address.is_loopback:
            raise ConfigError(
                f"{CONF_PREFIX}s3.secretKey would reach slots on other machines (the driver is at {address.host}) over "
                f"links without encryption: set {CONF_PREFIX}network.tls=true, or leave the keys out and let the "
                "environment of driver and executors give them (AWS_ACCESS_KEY_ID, or the role of the machine)"
            )

    def _begin(self, location: ClaimedLocation) -> None:
        with about(query=self._name or self._query_id, query_id=self._query_id), location.usable():
            self._serve(location)

    def _serve(self, location: ClaimedLocation) -> None:
        forked = location.hand_over()
        parallelism = self.requested_state().parallelism
        plan = GenerationPlan(
            self._query_id,
            self._name or "",
            replace(self._graph, parallelism=parallelism),
            replace(self._options, parallelism=parallelism),
            location.store.root,
            self._until_available,
            forked,
            self._access,
            location.refuse_copy_of,
            self._committing,
        )
        former = self._service

        def on_end(error: PenstockError | None) -> None:
            if not service.suspended:
                self._conclude(error)

        service = CoordinatorService(plan, location.store, self._launcher, self._metrics, self._on_progress, on_end)
        self._service = service
        if self._drains:  # requested before the first generation, whose sources therefore start paused
            service.request_snapshot(DRAINED).add_done_callback(lambda drained: _end_undrained(service, drained))
        try:
            service.start()
        except BaseException:
            self._service = former or service
            raise

    def _conclude(self, error: PenstockError | None) -> None:
        if self._history is not None:
            self._history.close(HISTORY_ENDS_S)
        try:
            self._on_end(error)
        finally:
            self._ended.set()

    @property
    def is_active(self) -> bool:
        """True from the start to the end of the query, also while it is suspended."""
        service = self._service
        return service is not None and not self._ended.is_set() and (service.suspended or not service.ended.is_set())

    @property
    def suspended(self) -> bool:
        """True while the query has no slots and waits for ``resume``."""
        return self._service is not None and self._service.suspended and not self._ended.is_set()

    @property
    def error(self) -> PenstockError | None:
        """Error of a failed query; None while it is active and after an orderly stop."""
        return None if self._service is None else self._service.error

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop without a final checkpoint. Input that is not committed is read again at the next start. Idempotent.

        Return when everything has ended, or after ``timeout_s`` seconds. In a callback, return at once.
        """
        service = self._service
        if service is None:
            return
        service.to_be_suspended = False
        if service.owns_current_thread():
            service.stop()
            return
        with self._resuming:
            service = self._service or service
            if self.suspended:
                self._metrics.ended(failed=False, suspended=False)
                self._conclude(None)
        if not service.ended.is_set():
            service.stop()
            service.ended.wait(timeout_s)
            service.thread.join(_POLL_S)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Read the input that is available now, end event time so that every window closes, commit, and end.

        Blocks until the query has ended; in a callback it returns at once. If the driver fails after a snapshot
        contains the end of event time, the next driver completes the drain.

        Returns:
            False if the query did not end within ``timeout_s``, or in a callback; otherwise True.

        Raises:
            NotSupported: a source cannot determine what is available now; the query continues.
            QueryFailed: a source has ended already, and the query continues; or the query ended without being drained.
        """
        if self._service is not None and self._service.drained:
            return True
        service = self._active()
        begun = service.drain()
        if service.owns_current_thread():
            return False
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._await(service, begun, timeout_s)
        if not service.ended.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
            return False
        if not service.drained:
            raise QueryFailed("the query ended before it was drained") from service.error
        return True

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Block until the query has ended, and return True; return False on time-out.

        The query ends when all its input has ended and is committed, by ``stop``, or by a failure. The method does not
        raise: see ``error``.
        """
        return self._service is not None and self._ended.wait(timeout_s)

    def request_snapshot(
        self,
        label: str = "",
        alignment: Alignment | None = None,
        timeout_s: float | None = None,
        kept: bool = True,
        note: str = "",
    ) -> SnapshotMetadata:
        """Take a snapshot now and wait until it is complete.

        Args:
            timeout_s: time limit for all of it; by default ``checkpoint.timeout`` from the trigger on.
            kept: True if the snapshot is never removed automatically.

        Raises:
            CheckpointFailed: declined, timed out or the query ended; the query itself continues.
        """
        service = self._active()
        future = self._request_snapshot(service, label, alignment, timeout_s, kept, note)
        result = self._await(service, future, timeout_s)
        if result is None:
            raise CheckpointFailed(f"the snapshot was not complete within {timeout_s} s, or the query has ended")
        return result

    def begin_snapshot(
        self, label: str = "", alignment: Alignment | None = None, timeout_s: float | None = None, note: str = ""
    ) -> Future[SnapshotMetadata]:
        """Request a snapshot without waiting for it.

        The future is always resolved, with the snapshot or with ``CheckpointFailed``. Its callbacks are called on a
        service thread and must not block.
        """
        return self._request_snapshot(self._active(), label, alignment, timeout_s, True, note)

    def stop_with_snapshot(self, drain: bool = False) -> SnapshotMetadata | None:
        """Take a snapshot, commit nothing after it, and stop once it is complete and its epochs are committed.

        Returns when everything has ended. In a callback, which must not wait, it returns None at once.

        Args:
            drain: pause the sources and process the in-flight data first, so that the snapshot holds none.

        Raises:
            CheckpointFailed: the snapshot was not taken; the query continues, or has ended without it.
            QueryFailed: the query failed after the snapshot was complete, but before all of its epochs were committed.
                The next start commits them.
        """
        if self.suspended and not drain:
            self.stop()
            return self._suspended_at
        service = self._active()
        service.to_be_suspended = False
        last = SnapshotRequest(self._options.checkpoint_alignment, last=True)
        return self._last_snapshot(service, DRAINED if drain else last)

    def _last_snapshot(self, service: CoordinatorService, request: SnapshotRequest) -> SnapshotMetadata | None:
        future = service.request_snapshot(request)
        if service.owns_current_thread():
            return None
        metadata = future.result()
        service.ended.wait()
        service.thread.join(_POLL_S)
        if service.error is not None:
            text = f"the query failed after its last snapshot, {metadata.id}, from which the next start goes on"
            raise QueryFailed(text) from service.error
        return metadata

    def suspend(self, label: str = "") -> SnapshotMetadata | None:
        """Take a last snapshot as ``stop_with_snapshot`` does, release the slots and wait for ``resume`` or ``stop``.

        If the query is already suspended, return the snapshot of that suspension. A snapshot with a label is never
        removed automatically. Without a label it is labeled ``SUSPENDED``, and retention counts it as a periodic one.

        Raises:
            CheckpointFailed: the snapshot was not taken; the query continues, or has ended.
            QueryFailed: see ``stop_with_snapshot``; or the query was stopped meanwhile, or has ended by itself.
        """
        if self.suspended:
            return self._suspended_at
        checked_words(label, "")
        service = self._active()
        service.to_be_suspended = True
        try:
            request = SnapshotRequest(
                self._options.checkpoint_alignment, label or SUSPENDED, kept=bool(label), last=True
            )
            metadata = self._last_snapshot(service, request)
        except CheckpointFailed:
            service.to_be_suspended = False
            raise
        self._suspended_at = metadata
        if metadata is not None and not service.suspended:
            raise QueryFailed(f"the query has ended instead of being suspended; its last snapshot is {metadata.id}")
        return metadata

    def resume(self, snapshot: str | None = None, output: Output | None = None) -> None:
        """Continue a suspended query. Return when all subtasks run; in a callback, when slots have been requested.

        If the query is running and no snapshot is named, do nothing.

        Args:
            snapshot: id or label of a snapshot to continue from instead, as after ``penstock snapshot rollback``.
            output: handling of the output written after that snapshot; required if there is any.

        Raises:
            QueryFailed: the query has ended, possibly before its subtasks ran; or it is running, and a snapshot was
                named.
            LocationError, SinkError, ResourceError, CorruptSnapshot: as at a start; it stays suspended.
        """
        with self._resuming:
            if self._claimed_location is None or not self.suspended:
                self._active()
                if snapshot is not None:
                    raise QueryFailed("the query runs: suspend it before it is to go on from another snapshot")
                return
            assert self._service is not None
            self._service.ended.wait()
            if snapshot is not None:
                with self._claimed_location.usable():
                    roll_back(self._claimed_location.store, snapshot, output=output)
            self._metrics.resumed()
            try:
                self._begin(self._claimed_location)
            except BaseException:
                self._metrics.ended(failed=False, suspended=True)
                raise
            self._parallelism = None
            service = self._service
        if not service.owns_current_thread():
            self._await_running(service)

    def _await_running(self, service: CoordinatorService) -> None:
        while self._metrics.view().state in (ExecutionState.STARTING, ExecutionState.RESTARTING):
            if service.ended.wait(_RUNNING_POLL_S):
                break
        if service.error is not None:
            raise QueryFailed("the query ended before it ran again") from service.error

    def _request_snapshot(
        self,
        service: CoordinatorService,
        label: str,
        alignment: Alignment | None,
        timeout_s: float | None,
        kept: bool,
        note: str,
    ) -> Future[SnapshotMetadata]:
        checked_words(label, note)
        timeout_ms = None if timeout_s is None else max(1, int(timeout_s * 1000))
        chosen = alignment or self._options.checkpoint_alignment
        return service.request_snapshot(SnapshotRequest(chosen, label, note, timeout_ms, kept))

    def rescale(self, parallelism: int, timeout_s: float | None = None) -> None:
        """Continue at another parallelism, and return when all subtasks run.

        An unaligned snapshot is taken, which backpressure does not delay. Then the generation is given up, and the next
        one restores the snapshot. While no generation runs, the next one begins at this parallelism. A suspended query
        uses it when it is resumed, and the call returns at once.

        Args:
            parallelism: number of slots.
            timeout_s: time limit for the wait; None: no limit.

        Raises:
            ConfigError: not between 1 and ``max_parallelism``.
            ResourceError: fewer slots are available. The query continues as before; if slots were lost after the
                snapshot, it continues with the remaining ones.
            CheckpointFailed: the snapshot cannot be taken; the query continues as before.
            QueryFailed: the query has ended.
            TimeoutError: after ``timeout_s``; the rescale continues nevertheless.
        """
        if self.suspended:
            self._rescale_suspended(parallelism)
            return
        service = self._active()
        future = service.rescale(parallelism)
        self._await(service, future, timeout_s)
        if not future.done():
            if service.ended.is_set():
                raise QueryFailed("the query ended before it was rescaled") from service.error
            raise TimeoutError(f"not all subtasks ran within {timeout_s} s")

    def _rescale_suspended(self, parallelism: int) -> None:
        with self._resuming:
            if not 1 <= parallelism <= self._graph.max_parallelism:
                raise no_such_parallelism(parallelism, self._graph.max_parallelism)
            self._parallelism = parallelism

    def set_checkpoints(self, interval_ms: int | None = None, alignment: Alignment | None = None) -> None:
        """Change the interval or the alignment of periodic checkpoints; None: leave it as it is.

        Checkpoints in flight are not affected. After a restart of the driver its own options apply.

        Raises:
            ConfigError: the interval is shorter than ``LEAST_INTERVAL_MS``.
            QueryFailed: the query has ended.
        """
        if interval_ms is not None and interval_ms < LEAST_INTERVAL_MS:
            raise ConfigError(f"checkpoint.interval must be {LEAST_INTERVAL_MS} ms or longer, not {interval_ms} ms")
        service = self._service if self.suspended else self._active()
        assert service is not None
        with self._changing:
            self._options = replace(
                self._options,
                checkpoint_interval_ms=interval_ms or self._options.checkpoint_interval_ms,
                checkpoint_alignment=alignment or self._options.checkpoint_alignment,
            )
            service.change_policy(policy_of(self._options))

    def requested_state(self) -> RequestedState:
        """Return the requested state of the query. Never blocks."""
        options, service = self._options, self._service
        parallelism = self._parallelism or (self._graph.parallelism if service is None else service.scaling.requested)
        is_rescaling = service is not None and service.scaling.is_rescaling
        return RequestedState(
            parallelism, options.checkpoint_interval_ms, options.checkpoint_alignment.value, is_rescaling
        )

    def process_all_available(self, timeout_s: float | None = None) -> None:
        """Block until all input that the sources could find at the time of the call is committed.

        As in Spark, return also when the query is stopped. Return at once if it was stopped or has ended by itself.

        Raises:
            QueryFailed: the query has failed or is suspended.
            TimeoutError: after ``timeout_s``.
        """
        if self._has_stopped:
            return
        service = self._active()
        future = service.process_all_available()
        self._await(service, future, timeout_s)
        if not future.done():
            if self._has_stopped:  # the service ended before it handled the call
                return
            if service.ended.is_set():
                raise QueryFailed("the query ended before all available data was committed") from service.error
            raise TimeoutError(f"not everything available was committed within {timeout_s} s")

    @property
    def _has_stopped(self) -> bool:
        service = self._service
        return service is not None and service.ended.is_set() and service.error is None and not self.suspended

    def view(self, late_s: float = 0.0) -> ExecutionView:
        """Return the newest metrics. Never blocks. ``late_s``: see ``QueryMetrics.view``."""
        return self._metrics.view(late_s)

    def _active(self) -> CoordinatorService:
        if self.suspended:
            raise QueryFailed("the query is suspended: resume() it first")
        if self._service is None or self._service.ended.is_set():
            raise QueryFailed("the query is not running")
        return self._service

    @staticmethod
    def _await(service: CoordinatorService, future: Future[_T], timeout_s: float | None) -> _T | None:
        """Return the future's result, or None at the time-out or if the query ended without one."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not future.done():
            left = _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
            if left <= 0 or (service.ended.is_set() and not future.done()):
                return None
            concurrent.futures.wait([future], timeout=left)
        return future.result()


def _end_undrained(service: CoordinatorService, drained: Future[SnapshotMetadata]) -> None:
    """End a query that was started to drain if the snapshot failed. Otherwise it would continue and read."""
    problem = drained.exception()
    if problem is not None:
        error = QueryFailed("what was in flight was not drained: start the query in the same way once more")
        error.__cause__ = problem
        service.stop(error)
