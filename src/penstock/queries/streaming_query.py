"""Handle of a running query: PySpark's ``StreamingQuery`` with Penstock's additions."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, overload

from pyspark.errors import StreamingQueryException

from penstock.config import Options, SnapshotFormat, snapshot_format
from penstock.config import alignment as parse_alignment
from penstock.config import checkpoint_duration_ms as parse_interval
from penstock.connectors import foreach
from penstock.connectors.base import Committing
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.query_execution import QueryExecution
from penstock.coordinator.view import EpochProgress, ExecutionState, ExecutionView, Outage, RequestedState
from penstock.errors import CheckpointFailed, ConfigError, FunctionError, PenstockError, QueryFailed, first_cause
from penstock.logs import log_on_driver
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SnapshotMetadata
from penstock.queries.checkpoint_traces import CheckpointTraces
from penstock.queries.decommission import Executors, move_when_executors_leave
from penstock.queries.facts import QueryFacts, shape_of
from penstock.queries.html import query_html
from penstock.queries.interrupts import interruptible
from penstock.queries.listeners import EventBus, QueryEvents
from penstock.queries.plan_text import explain_graph
from penstock.queries.progress import ProgressHistory, QueryProgress, for_listeners, iso_timestamp, progress_json
from penstock.queries.query_logs import QUERY_LOGS
from penstock.queries.spark_settings import ObeyedSettings
from penstock.snapshots.commands.rolling_back import Output
from penstock.snapshots.fork import Origin
from penstock.snapshots.portable.portable_form import future_with_portable_form, with_portable_form
from penstock.snapshots.store.store_access import StoreAccess
from penstock.spark.errors import check_flags, check_numbers, check_seconds, check_texts, pysparks_refusals

PROGRESS_TIMEOUT_S = 5.0
"""Time for which ``processAllAvailable`` waits for the progress of the last commit, which another thread reports."""
LISTENER_END_TIMEOUT_S = 5.0
"""Time for which ``stop`` and ``awaitTermination`` wait for slow listeners to process the end of the query."""
VIEW_DELAY_S = 0.25
"""Allowed delay of ``facts``. Each step of a checkpoint changes metrics. Without this delay the driver would encode all
answers of the REST service again at each step, which would slow the checkpoint down."""


class StreamingQuery:
    """Handle of a query that runs in the background. All methods are thread-safe.

    Names and meanings are those of ``pyspark.sql.streaming.StreamingQuery``. Penstock adds, for example, ``snapshot``,
    ``generation`` and ``view``. Created by ``DataStreamWriter.start``.

    Args:
        graph: the dataflow graph to run.
        name: the user's name for the query.
        location: the checkpoint location.
        options: parsed options.
        launcher: launcher of slots.
        until_available: read the rows that are available at the start, commit them and end.
        origin: snapshot of another query to start from.
        claimed: run here even if this location is a copy of a location that still exists.
        drains: see ``QueryExecution``.
        bus: target of listener events.
        settings: settings of the session, read at the start.
        committing: takes the run id and returns the context in which each commit of the run is made.
        on_commit: called after each committed epoch, on a service thread.
        on_end: called once after the query has ended, on a service thread, with the error if it failed. It cleans up
            registries and temporary files.
    """

    def __init__(
        self,
        graph: JobGraph,
        *,
        name: str | None,
        location: str,
        options: Options,
        launcher: SlotLauncher,
        bus: EventBus,
        until_available: bool = False,
        origin: Origin | None = None,
        access: StoreAccess | None = None,
        settings: ObeyedSettings,
        claimed: bool = False,
        drains: bool = False,
        committing: Callable[[str], Committing] = lambda run_id: nullcontext,
        on_commit: Callable[[], None] = lambda: None,
        on_end: Callable[[PenstockError | None], None] = lambda error: None,
    ) -> None:
        self._graph = graph
        self._shape = shape_of(graph, options)
        self._name = name
        self._location = location
        self._access = access
        self._run_id = str(uuid.uuid4())
        self._history = ProgressHistory(settings.recent_progresses)
        self._traces = CheckpointTraces(self._shape)
        self._events = QueryEvents(bus, self._run_id, settings.idle_event_interval_s)
        self._options = options
        self._on_commit = on_commit
        self._on_end = on_end
        self._ended = threading.Event()
        self._reported = threading.Condition()
        self._reported_epoch = 0
        self._facts: tuple[object, QueryFacts] | None = None
        self._execution = QueryExecution(
            graph,
            name=name,
            run_id=self._run_id,
            location=location,
            options=options,
            launcher=launcher,
            until_available=until_available,
            origin=origin,
            access=access,
            claimed=claimed,
            drains=drains,
            committing=committing(self._run_id),
            on_progress=self._progressed,
            on_end=self._finished,
        )

    def _start(self, leaving: Executors | None = None) -> None:
        """Start the query. ``leaving``: source of decommissioned executors; None if there are none to watch."""
        started_ms = time.time() * 1000
        log_on_driver(self._options.log_format)
        QUERY_LOGS.listen()
        self._execution.start()
        self._events.started(self.id, self._name, iso_timestamp(started_ms))
        if leaving is not None:
            move_when_executors_leave(self._execution, leaving)

    @property
    def id(self) -> str:
        """The query's id, which stays the same over restarts from one checkpoint location."""
        return self._execution.query_id

    @property
    def runId(self) -> str:  # noqa: N802 - PySpark's name
        """Id of this run, new for every start."""
        return self._run_id

    @property
    def name(self) -> str | None:
        """The name given with ``queryName``, or None."""
        return self._name

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True while the query runs, recovers from a failure or is suspended."""
        return self._execution.is_active

    @property
    def generation(self) -> int:
        """Current generation: 1 for the first, plus 1 after each recovery. A fork counts on from its snapshot's."""
        return self._execution.view().generation

    @property
    def parallelism(self) -> int:
        """Number of slots used now. It is lower than requested while slots are missing (``restart.allowScaleDown``)."""
        return self._execution.view().parallelism

    @property
    def status(self) -> dict[str, Any]:
        """``message``, ``isDataAvailable`` and ``isTriggerActive``, as in Spark.

        Both flags are False for an idle query: its sources have nothing left to read, and all rows that were read are
        committed. The next checkpoint detects this, so it may take one ``checkpoint.interval``.
        """
        return self._status(self._execution.view())

    def _status(self, view: ExecutionView) -> dict[str, Any]:
        running = view.state is ExecutionState.RUNNING
        waits = "" if view.slots else f", waiting for slots ({view.parallelism} needed)"
        messages = {
            ExecutionState.STARTING: "Initializing sources and slots",
            ExecutionState.RUNNING: "Waiting for data to arrive" if view.idle else "Processing new data",
            ExecutionState.RESTARTING: f"Recovering as generation {view.generation}{waits}",
            ExecutionState.SUSPENDED: "Suspended: no slots are taken until it is resumed",
            ExecutionState.STOPPED: "Stopped",
            ExecutionState.FAILED: f"Terminated with exception: {self._execution.error}",
        }
        return {
            "message": "; ".join([messages[view.state], *map(_outage_text, view.outages)]),
            "isDataAvailable": running and not view.sources_idle,
            "isTriggerActive": running and not view.idle,
        }

    @property
    def recentProgress(self) -> list[QueryProgress]:  # noqa: N802
        """Progress of the most recent committed epochs, oldest first. Idle epochs are left out."""
        return self._history.recent()

    @property
    def lastProgress(self) -> QueryProgress | None:  # noqa: N802
        """The newest of ``recentProgress``, or None. It has Spark's fields and Penstock's section ``checkpoint``."""
        return self._history.last()

    def exception(self) -> StreamingQueryException | None:
        """Return the error that ended the query, or None.

        As in Spark, its condition is ``STREAM_FAILED``, and its message parameter ``message`` has the reason. For
        errors in functions of ``foreach`` and ``foreachBatch`` the reason includes Spark's error class; for errors in
        user code, the operator and the user's traceback. The Penstock error itself is the exception's ``__cause__``.
        """
        error = self._execution.error
        if error is None:
            return None
        cause = first_cause(error)
        whole = str(error) if str(error).startswith(str(cause)) else str(cause)  # the reason for giving up follows
        reason = f"{type(cause).__name__}: {whole}"
        if isinstance(cause, FunctionError) and cause.operator.endswith(foreach.NAME):
            reason = f"{foreach.SPARKS_CONDITION} Reason: {reason}"
        exception = StreamingQueryException(
            f"Query [id = {self.id}, runId = {self._run_id}] terminated with exception: {reason}",
            "STREAM_FAILED",
            {"id": self.id, "runId": self._run_id, "message": reason},
        )
        exception.__cause__ = cause
        return exception

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Block until the query ends, at most ``timeout`` seconds. With a time-out, return True if it has ended.

        Ctrl-C ends the wait, not the query. The same holds for ``processAllAvailable``, ``snapshot`` and ``stop``; the
        action that they requested continues.

        Raises:
            StreamingQueryException: the query failed.
        """
        check_seconds(timeout, zero=True)
        with interruptible():
            ended = self._execution.await_termination(timeout)
            if ended:
                self._events.join(LISTENER_END_TIMEOUT_S)
        if ended:
            self._raise_if_failed()
        return None if timeout is None else ended

    def processAllAvailable(self) -> None:  # noqa: N802
        """Block until all rows that the sources can find now are committed. Meant for tests, as in Spark.

        After that, ``lastProgress`` and a memory sink's table include these rows. The watermark has reached the newest
        event time minus the delay, and windows before it are emitted. Return at once if the query was stopped;
        ``stop()`` also ends a wait.

        With the ``rate`` source, wait for the rows that were due at the time of the call. With ``rate-micro-batch``,
        which always has a next batch, return only when the query is stopped. Both are as in Spark.

        Raises:
            StreamingQueryException: the query has failed.
            QueryFailed: the query is suspended.
        """
        with self._own_failure(), interruptible():
            self._execution.process_all_available()
        committed_epoch = self._execution.view().committed_epoch
        with interruptible(), self._reported:
            self._reported.wait_for(lambda: self._reported_epoch >= committed_epoch, PROGRESS_TIMEOUT_S)

    @pysparks_refusals()
    def stop(
        self,
        drain: bool = False,
        snapshot: bool = False,
        inflight: str | None = None,
        format: str | None = None,  # noqa: A002 - as of ``snapshot()``
    ) -> SnapshotMetadata | None:
        """Stop without a final checkpoint: the next start reads uncommitted rows again. Idempotent.

        Args:
            snapshot: first take a snapshot like ``snapshot()``, and stop when it is complete and all that it covers is
                committed. Nothing later is committed, so the next start, or a fork of the snapshot, continues exactly
                there. The snapshot is returned; None in a callback of the query itself, which does not wait.
            drain: read what the sources have now, close every window, commit everything and end. There is no time
                limit. Not allowed in a callback of the query itself. The query cannot be restarted from its location.
            inflight: ``"drain"``, with ``snapshot``: first pause the sources and process the in-flight data. Then the
                snapshot has no in-flight data, and an edited query can start from it (docs/draining.md).
            format: with ``snapshot``: ``native`` or ``portable``, as for ``snapshot()``. The portable form is written
                after the query has ended, and not in a callback of the query itself.

        Raises:
            ConfigError: arguments exclude each other, or need ``snapshot``.
            CheckpointFailed: the snapshot cannot be taken, and the query continues; the query is not running; or it has
                ended with a native snapshot, but the portable form cannot be written.
            NotSupported: a source cannot tell what it has now; the query continues.
            QueryFailed: a source has already ended, and the query continues; or the query ended before it was drained.
            StreamingQueryException: the query failed before everything was committed. The next start commits the rest.
        """
        check_flags(drain=drain, snapshot=snapshot)
        check_texts(format=format)
        portable = self._is_portable(format)
        if format is not None and not snapshot:
            raise ConfigError(f"stop(format={format!r}): it is the format of a snapshot, so say snapshot=True")
        if drain and snapshot:
            raise ConfigError("stop(drain=True, snapshot=True): choose one; a drained query has no restart")
        if inflight not in (None, "drain") or (inflight and not snapshot):
            raise ConfigError(f"stop(inflight={inflight!r}, snapshot={snapshot}): say 'drain', with snapshot=True")
        with interruptible():
            with self._own_failure():
                taken = self._stop_with_snapshot(drain=inflight is not None) if snapshot else None
                if drain:
                    self._execution.drain()
                elif not snapshot:
                    self._execution.stop()
            self._events.join(LISTENER_END_TIMEOUT_S)
            return with_portable_form(self._location, taken, self._access) if taken is not None and portable else taken

    def _stop_with_snapshot(self, drain: bool) -> SnapshotMetadata | None:
        if not self._execution.is_active:
            raise CheckpointFailed("no snapshot was taken: the query is not running")
        return self._execution.stop_with_snapshot(drain)

    @contextmanager
    def _own_failure(self) -> Iterator[None]:
        """Raise the query's own exception instead of ``QueryFailed`` if the query has failed."""
        try:
            yield
        except QueryFailed:
            self._raise_if_failed()
            raise

    def explain(self, extended: bool = False) -> None:
        """Print the vertices with their operators and the edges between them. ``extended`` adds the schemas."""
        print(explain_graph(self._graph, extended))

    @pysparks_refusals()
    def rescale(self, parallelism: int, timeout: float | None = None) -> None:
        """Continue with ``parallelism`` slots, and return when all subtasks run.

        The query restarts from an unaligned snapshot, which full queues do not delay. No row is lost or duplicated.

        Args:
            parallelism: 1 to ``maxParallelism``. Later starts at this location use it unless an option sets another.
            timeout: seconds to wait; no limit by default.

        Raises:
            ConfigError: the parallelism is out of range; nothing is changed.
            ResourceError, CheckpointFailed: too few slots are free; the snapshot cannot be taken. The query continues
                as before; if slots were lost after the snapshot, with those that are left.
            QueryFailed: the query has ended.
            TimeoutError: not all subtasks run yet; the rescale continues.
        """
        check_numbers(parallelism=parallelism)
        check_seconds(timeout)
        with interruptible():
            self._execution.rescale(parallelism, timeout)

    @pysparks_refusals()
    def suspend(self, label: str | None = None) -> SnapshotMetadata | None:
        """Take a snapshot like ``stop(snapshot=True)`` and release the slots. ``resume`` continues exactly there.

        A suspended query reads and writes nothing. ``isActive`` stays True; ``snapshot``, ``processAllAvailable`` and
        ``stop(drain=True)`` are refused. Its snapshots can be managed like those of a stopped query.

        Args:
            label: name for the snapshot, which is then never collected. Without it the snapshot is labeled
                ``suspended`` and collected like periodic ones (``snapshots.retained``).

        Returns:
            The snapshot, also if the query is already suspended. None in a callback of the query itself.

        Raises:
            CheckpointFailed: the snapshot cannot be taken, and the query continues; or it has ended.
            QueryFailed: the query was stopped meanwhile, or its input ended.
            StreamingQueryException: the query failed before all that the snapshot covers was committed.
        """
        check_texts(label=label)
        with interruptible():
            try:
                with self._own_failure():
                    return self._execution.suspend(label or "")
            except QueryFailed:
                if not self._execution.is_active:
                    raise CheckpointFailed("the query was not suspended: it has ended") from None
                raise

    @pysparks_refusals()
    def resume(self, snapshot: str | None = None, output: str | None = None) -> None:
        """Resume a suspended query with the parallelism and checkpoint settings requested last.

        Return when all subtasks run. Do nothing if the query runs.

        Args:
            snapshot: id or label of an older snapshot to continue from: a rollback. Newer ones leave the lineage.
            output: with ``snapshot``: treatment of output written after it. ``retract`` takes it back before anything
                runs (files and tables support this). ``keep`` leaves it, and its rows are written a second time.

        Raises:
            QueryFailed: the query has ended; or it runs, and a snapshot was named.
            ConfigError: ``output`` is neither, or is given without ``snapshot``.
            LocationError, ResourceError, SinkError: there is no such snapshot, or ``output`` is needed; too few slots
                are free; the output cannot be taken back. The query stays suspended.
        """
        check_texts(snapshot=snapshot, output=output)
        chosen = None if output is None else parse_output(output)
        if chosen is not None and snapshot is None:
            raise ConfigError(f"output={output!r} says nothing without a snapshot to go on from; give that, too")
        with interruptible():
            self._execution.resume(snapshot, chosen)

    @pysparks_refusals()
    def setCheckpoints(self, interval: str | None = None, alignment: str | None = None) -> None:  # noqa: N802
        """Change the periodic checkpoints from now on. A later start uses its own options.

        Args:
            interval: ``checkpoint.interval``, for example ``"5s"``; None leaves it unchanged.
            alignment: ``auto``, ``aligned`` or ``unaligned``; None leaves it unchanged.

        Raises:
            ConfigError: an argument is out of range; nothing is changed.
            QueryFailed: the query has ended.
        """
        check_texts(interval=interval, alignment=alignment)
        interval_ms = None if interval is None else parse_interval("interval", interval)
        chosen = None if alignment is None else parse_alignment("alignment", alignment)
        self._execution.set_checkpoints(interval_ms, chosen)

    def facts(self) -> QueryFacts:
        """Return the current state of the query as one value. Never blocks. The same object while nothing changes.

        Metrics of subtasks and pending checkpoints may be ``VIEW_DELAY_S`` late.
        """
        execution = self._execution
        of = self.id, execution.error, self.lastProgress, execution.requested_state(), execution.view(VIEW_DELAY_S)
        kept = self._facts
        if kept is None or kept[0] != of:
            kept = self._facts = of, self._facts_of(*of)
        return kept[1]

    def _facts_of(
        self,
        query_id: str,
        error: PenstockError | None,
        progress: QueryProgress | None,
        requested: RequestedState,
        view: ExecutionView,
    ) -> QueryFacts:
        cause = None if error is None else first_cause(error)
        return QueryFacts(
            id=query_id,
            run_id=self._run_id,
            name=self._name,
            location=self._location,
            access=self._access,
            shape=self._shape,
            requested=requested,
            view=view,
            message=str(self._status(view)["message"]),
            error_kind="" if cause is None else type(cause).__name__,
            error_text="" if cause is None else str(cause),
            last_progress=None if progress is None else progress.json,
            options=self._options,
        )

    @overload
    def snapshot(
        self,
        label: str | None = None,
        alignment: str | None = None,
        timeout: float | None = None,
        note: str | None = None,
        wait: Literal[True] = True,
        format: str | None = None,
    ) -> SnapshotMetadata: ...

    @overload
    def snapshot(
        self,
        label: str | None = None,
        alignment: str | None = None,
        timeout: float | None = None,
        note: str | None = None,
        *,
        wait: Literal[False],
        format: str | None = None,
    ) -> Future[SnapshotMetadata]: ...

    @pysparks_refusals()
    def snapshot(
        self,
        label: str | None = None,
        alignment: str | None = None,
        timeout: float | None = None,
        note: str | None = None,
        wait: bool = True,
        format: str | None = None,  # noqa: A002 - as `DataFrameWriter.format`
    ) -> SnapshotMetadata | Future[SnapshotMetadata]:
        """Take a snapshot now and wait until it is complete. It is never collected.

        Args:
            label: a name to find it by, at most 200 characters.
            alignment: ``auto``, ``aligned`` or ``unaligned``; by default the query's. A strictly ``aligned`` snapshot
                waits for all queued data, and no other checkpoint is triggered meanwhile. If another checkpoint has
                waited for one ``checkpoint.interval``, the aligned one is canceled and triggered again after it. After
                the fourth cancellation it fails.
            timeout: seconds for the whole snapshot, which is then given up. By default ``checkpoint.timeout`` applies,
                from the time of the trigger.
            note: a comment, at most 2,000 characters.
            wait: with False, return at once with a ``concurrent.futures.Future`` of the snapshot, whose ``result()``
                waits and raises ``CheckpointFailed``. It cannot be canceled. Its callbacks run on a service thread and
                must not block.
            format: ``native`` or ``portable``. A portable snapshot is also written as files that other programs can
                read (docs/snapshot-format.md), below ``portable/`` at the checkpoint location. The query does not wait
                for this; this call, or the future, does. The default is the option ``snapshots.format``.

        Raises:
            CheckpointFailed: the snapshot was declined or timed out, the query ended, or the portable form cannot be
                written (the native one exists then). Except for its end, the query continues.
            ConfigError: an argument is out of range.
        """
        check_texts(label=label, alignment=alignment, note=note, format=format)
        check_flags(wait=wait)
        portable = self._is_portable(format)
        chosen = None if alignment is None else parse_alignment("alignment", alignment)
        check_seconds(timeout)
        try:
            if not wait:
                future = self._execution.begin_snapshot(label or "", chosen, timeout, note or "")
                return future_with_portable_form(self._location, future, self._access) if portable else future
            with interruptible():
                metadata = self._execution.request_snapshot(label or "", chosen, timeout, note=note or "")
                return with_portable_form(self._location, metadata, self._access) if portable else metadata
        except QueryFailed as error:
            raise CheckpointFailed(f"no snapshot was taken: {error}") from error

    def _is_portable(self, form: str | None) -> bool:
        chosen = self._options.snapshots_format if form is None else snapshot_format("format", form)
        return chosen is SnapshotFormat.PORTABLE

    def view(self) -> ExecutionView:
        """Return the newest metrics of slots, subtasks, checkpoints and recoveries; never blocks."""
        return self._execution.view()

    def __repr__(self) -> str:
        return f"<penstock.StreamingQuery {self._name or self._run_id} {self.status['message']!r}>"

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return query_html(self.view(), str(self.status["message"]), self.lastProgress)

    def _raise_if_failed(self) -> None:
        exception = self.exception()
        if exception is not None:
            raise exception from exception.__cause__

    def _progressed(self, epoch: EpochProgress) -> None:
        try:
            self._report(epoch)
            self._on_commit()
            self._trace()
        finally:
            with self._reported:
                self._reported_epoch = epoch.epoch
                self._reported.notify_all()

    def _report(self, epoch: EpochProgress) -> None:
        if self._history.is_idle(epoch):
            self._events.idle(iso_timestamp(epoch.started_ms))
            return
        progress = progress_json(
            epoch,
            query_id=self.id,
            run_id=self._run_id,
            name=self._name,
            parallelism=self.parallelism,
            interval_ms=self._execution.requested_state().checkpoint_interval_ms,
        )
        self._history.append(epoch, progress)
        self._events.progressed(for_listeners(progress))

    def _trace(self) -> None:
        view = self._execution.view()
        self._events.call_in_turn(lambda: self._traces.look(view))

    def _finished(self, error: PenstockError | None) -> None:
        if self._ended.is_set():
            return
        self._ended.set()
        self._trace()
        self._events.terminated(None if error is None else f"{type(error).__name__}: {first_cause(error)}")
        self._on_end(error)


def parse_output(text: str) -> Output:
    """Parse the argument ``output`` of ``resume``; raise ConfigError if it is neither ``retract`` nor ``keep``."""
    try:
        return Output(text)
    except ValueError:
        raise ConfigError(f"output={text!r}: choose retract or keep") from None


def _outage_text(outage: Outage) -> str:
    """Return the description of an outage for ``status``."""
    count = f"{outage.failures} failure{'s' if outage.failures > 1 else ''}"
    return f"{outage.what}: {count} since {iso_timestamp(outage.since_ms)}, tried again: {outage.summary}"
