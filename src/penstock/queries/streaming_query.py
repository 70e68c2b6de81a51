"""A running query as the user holds it: PySpark's ``StreamingQuery`` and what Penstock adds."""

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
"""Time that ``processAllAvailable`` waits for the progress of the last commit, which comes from another thread."""
LISTENER_END_TIMEOUT_S = 5.0
"""Time that ``stop`` and ``awaitTermination`` wait for slow listeners to process the end of the query."""
VIEW_DELAY_S = 0.25
"""Delay of ``facts``. Each step of a checkpoint changes metrics. Without the delay the driver would encode all answers
of the REST service again at each step, and the checkpoint would wait for that."""


class StreamingQuery:
    """A handle to a query that runs in the background. All methods are thread-safe.

    Names and meanings are those of ``pyspark.sql.streaming.StreamingQuery``; ``snapshot``, ``generation`` and ``view``
    are Penstock's own. Made by ``DataStreamWriter.start``.

    Args:
        graph: what runs.
        name: the user's name for the query.
        location: the checkpoint location.
        options: parsed options.
        launcher: starts slots.
        until_available: read what is there when it starts, commit it and end.
        origin: start from this snapshot of another query.
        claimed: run here even if this location is a copy of a location that still exists.
        drains: see ``QueryExecution``.
        bus: where listener events go.
        settings: settings of the session, read at the start.
        committing: takes the run id and returns the context in which each commit of the run is made.
        on_commit: called after each committed epoch, on a service thread.
        on_end: called once when the query ended, on a service thread, with its error if it failed: registries and
            temporary files.
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
        """``leaving``: asked for executors that are decommissioned; None where they are not."""
        started_ms = time.time() * 1000
        log_on_driver(self._options.log_format)
        QUERY_LOGS.listen()
        self._execution.start()
        self._events.started(self.id, self._name, iso_timestamp(started_ms))
        if leaving is not None:
            move_when_executors_leave(self._execution, leaving)

    @property
    def id(self) -> str:
        """The query's id, the same over restarts from one checkpoint location."""
        return self._execution.query_id

    @property
    def runId(self) -> str:  # noqa: N802 - PySpark's name
        """New for every start."""
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
        """The execution attempt that runs now: 1 for the first at this location, one more after each recovery. A fork
        counts on from its snapshot's."""
        return self._execution.view().generation

    @property
    def parallelism(self) -> int:
        """The slots that it runs on now: fewer than asked for while some are missing (``restart.allowScaleDown``)."""
        return self._execution.view().parallelism

    @property
    def status(self) -> dict[str, Any]:
        """``message``, ``isDataAvailable`` and ``isTriggerActive``, as in Spark.

        An idle query has both flags False: its sources have nothing left to read, and all rows that were read are
        committed. That is found with the next checkpoint, so it may take one ``checkpoint.interval``.
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
        """The most recent committed epochs' progress, oldest first; idle epochs are left out."""
        return self._history.recent()

    @property
    def lastProgress(self) -> QueryProgress | None:  # noqa: N802
        """The newest of ``recentProgress``, or None: Spark's fields and Penstock's section ``checkpoint``."""
        return self._history.last()

    def exception(self) -> StreamingQueryException | None:
        """Return the error that ended the query, or None.

        As in Spark, its condition is ``STREAM_FAILED``, and the message parameter ``message`` has the reason: for
        functions of ``foreach`` and ``foreachBatch``, with Spark's error class for them; for user code, with the
        operator and the user's traceback. The Penstock error itself is the exception's ``__cause__``.
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
        """Block until the query ended, at most ``timeout`` seconds; with a time-out, tell whether it ended.

        Ctrl-C ends the wait, not the query; so it does in ``processAllAvailable``, ``snapshot`` and ``stop``, and what
        these asked for goes on.

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
        """Block until everything that the sources could find now is committed. Meant for tests, as in Spark.

        ``lastProgress`` and a memory sink's table include it. The watermark is then the newest event time less the
        delay, and windows before it are out. Return at once after ``stop()``, which also ends a wait.

        Over the ``rate`` source it waits for the rows that were due at the call. Over ``rate-micro-batch``, which
        always has the next batch, it returns only when the query is stopped. Both is as in Spark.

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
        """Stop without a final checkpoint: the next start reads again what is not committed. Idempotent.

        Args:
            snapshot: take a snapshot first, as ``snapshot()`` does, and stop when it is complete and all that it covers
                is committed. Nothing later is committed, so the next start, or a fork of the snapshot, continues
                exactly there. It is returned (None in a callback of the query's own, which does not wait).
            drain: read what the sources have now, close every window, commit everything and end. This takes as long as
                it takes, and is not for a callback of the query's own. The query cannot be restarted from its location.
            inflight: ``"drain"``, with ``snapshot``: pause the sources and process what is in flight first, so that the
                snapshot holds none of it and an edited query can start from it (docs/draining.md).
            format: with ``snapshot``: ``native`` or ``portable``, as for ``snapshot()``. The portable form is written
                after the query has ended, and not in a callback of the query's own.

        Raises:
            ConfigError: arguments that exclude each other, or that need ``snapshot``.
            CheckpointFailed: the snapshot cannot be taken, and the query goes on; it is not running; or the query has
                ended with a native snapshot and the portable form cannot be written.
            NotSupported: a source cannot tell what it has now; the query goes on.
            QueryFailed: a source has ended already, and the query goes on; or it ended before it was drained.
            StreamingQueryException: the query failed before everything was committed. The next start does that.
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
        """Raise the query's own exception, if it has failed, instead of ``QueryFailed``."""
        try:
            yield
        except QueryFailed:
            self._raise_if_failed()
            raise

    def explain(self, extended: bool = False) -> None:
        """Print the vertices with their operators and the edges between them; ``extended`` adds the schemas."""
        print(explain_graph(self._graph, extended))

    @pysparks_refusals()
    def rescale(self, parallelism: int, timeout: float | None = None) -> None:
        """Go on with ``parallelism`` slots, and return when all its subtasks run. An unaligned snapshot is taken, which
        waits behind no queue however full, and the query begins again from it; not a row is lost or doubled.

        Args:
            parallelism: 1 to ``maxParallelism``. A later start at the same location has it, too, unless it says
            otherwise.
            timeout: seconds to wait; without end by default.

        Raises:
            ConfigError: no such parallelism. ResourceError: there are fewer slots for it. CheckpointFailed: the
                snapshot cannot be taken. The query continues as it was; if its slots were taken after the snapshot,
                with those that are left.
            QueryFailed: the query has ended.
            TimeoutError: not all subtasks run yet; it goes on being rescaled.
        """
        check_numbers(parallelism=parallelism)
        check_seconds(timeout)
        with interruptible():
            self._execution.rescale(parallelism, timeout)

    @pysparks_refusals()
    def suspend(self, label: str | None = None) -> SnapshotMetadata | None:
        """Take a snapshot as ``stop(snapshot=True)`` does and release the slots; ``resume`` continues exactly there.

        A suspended query reads and writes nothing. ``isActive`` stays True; ``snapshot``, ``processAllAvailable`` and
        ``stop(drain=True)`` are refused. Its snapshots can be managed like those of a stopped query.

        Args:
            label: a name for the snapshot, which is then never collected. Without one the snapshot is labelled
                ``suspended`` and is collected like periodic ones (``snapshots.retained``).

        Returns:
            The snapshot, also if the query was suspended already. None in a callback of the query's own.

        Raises:
            CheckpointFailed: the snapshot cannot be taken, and the query goes on; or it has ended.
            QueryFailed: it was stopped meanwhile, or its input ended.
            StreamingQueryException: it failed before all that the snapshot covers was committed.
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
        """Have a suspended query go on, with the parallelism and checkpoints that were asked for last. Return when all
        its subtasks run. Nothing is done to one that runs.

        Args:
            snapshot: an older one, by id or label, to go on from instead: a rollback. Newer ones are in no lineage
                then.
            output: with it, what becomes of what the query has written since: ``retract`` takes it back before
                anything runs (files and tables can), ``keep`` leaves it, and its rows come a second time.

        Raises:
            QueryFailed: the query has ended; or it runs, and a snapshot was named.
            ConfigError: ``output`` is neither.
            LocationError: no such snapshot, or ``output`` is needed. ResourceError: too few free slots. SinkError: the
                output cannot be taken back. The query stays suspended.
        """
        check_texts(snapshot=snapshot, output=output)
        chosen = None if output is None else parse_output(output)
        if chosen is not None and snapshot is None:
            raise ConfigError(f"output={output!r} says nothing without a snapshot to go on from; give that, too")
        with interruptible():
            self._execution.resume(snapshot, chosen)

    @pysparks_refusals()
    def setCheckpoints(self, interval: str | None = None, alignment: str | None = None) -> None:  # noqa: N802
        """Take periodic checkpoints differently from now on. A later start has what its own options say.

        Args:
            interval: ``checkpoint.interval``, for example ``"5s"``; None: as before.
            alignment: ``auto``, ``aligned`` or ``unaligned``; None: as before.

        Raises:
            ConfigError: an argument is out of range; nothing is changed.
            QueryFailed: the query has ended.
        """
        check_texts(interval=interval, alignment=alignment)
        interval_ms = None if interval is None else parse_interval("interval", interval)
        chosen = None if alignment is None else parse_alignment("alignment", alignment)
        self._execution.set_checkpoints(interval_ms, chosen)

    def facts(self) -> QueryFacts:
        """Return the state of the query now, as one value; never blocks. The same object while nothing changes.

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
            label: a name to find it by, 200 characters at most.
            alignment: ``auto``, ``aligned`` or ``unaligned``; the query's own by default. A strictly ``aligned``
                snapshot waits for all queued data, and nothing else is triggered meanwhile. If another checkpoint has
                waited for one ``checkpoint.interval``, the aligned one is cancelled and triggered again after it. The
                fourth cancellation makes it fail.
            timeout: seconds, for all of it; the snapshot is given up then. By default ``checkpoint.timeout`` counts,
                from the moment it is triggered.
            note: what to remember of it, 2,000 characters at most.
            wait: with False, return at once with a ``concurrent.futures.Future`` of the snapshot, whose ``result()``
                waits and raises ``CheckpointFailed``. It cannot be cancelled; its callbacks are called on a service
                thread, and must not block.
            format: ``native``, or ``portable``: then it is written a second time, as files that other programs read
                (docs/snapshot-format.md), below ``portable/`` at the checkpoint location. The query does not wait for
                that; this call, or the future, does. By default what the option ``snapshots.format`` says.

        Raises:
            CheckpointFailed: declined, timed out or the query ended, or the portable form cannot be written (there is
                a native one then); the query itself goes on.
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
        """The newest figures of slots, subtasks, checkpoints and recoveries; never blocks."""
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
    """Parse the option for output newer than the snapshot to resume from; raise ConfigError for other values."""
    try:
        return Output(text)
    except ValueError:
        raise ConfigError(f"output={text!r}: choose retract or keep") from None


def _outage_text(outage: Outage) -> str:
    """Return the description of an outage for ``status``."""
    count = f"{outage.failures} failure{'s' if outage.failures > 1 else ''}"
    return f"{outage.what}: {count} since {iso_timestamp(outage.since_ms)}, tried again: {outage.summary}"
