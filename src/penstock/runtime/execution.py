"""One query on the driver: the face over the coordinator service."""

from __future__ import annotations

import concurrent.futures
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from penstock.config import Options
from penstock.connectors.base import Sink, Source
from penstock.errors import (
    CheckpointFailed,
    ConfigError,
    Fenced,
    LocationError,
    NotSupported,
    PenstockError,
    QueryFailed,
)
from penstock.graph.model import JobGraph
from penstock.logs import about
from penstock.protocol.elements import Alignment
from penstock.runtime.attempt import AttemptPlan
from penstock.runtime.coordinator_service import CoordinatorService
from penstock.runtime.figures import Figures
from penstock.runtime.launching import SlotLauncher
from penstock.runtime.policy import policy_of
from penstock.runtime.snapshot_tickets import SnapshotWish
from penstock.runtime.view import EpochProgress, ExecutionView, Wanted
from penstock.snapshot.fork import Origin, forked, query_at
from penstock.snapshot.location import (
    IDENTITY_PATH,
    STAGED_FOLDER,
    claim_identity,
    identity_of,
    open_location,
    release_identity,
)
from penstock.snapshot.model import QueryIdentity, SnapshotMetadata, checked_words
from penstock.snapshot.store import LocalStore, Store
from penstock.snapshot.store_access import StoreAccess

_POLL_S = 0.2
_T = TypeVar("_T")


@contextmanager
def _usable(store: Store) -> Iterator[None]:
    """What the store fails with is the location's error."""
    try:
        yield
    except OSError as error:
        raise LocationError(f"checkpointLocation {store.root} cannot be used: {error}; try again") from error


class QueryExecution:
    """Runs one JobGraph from ``start`` to its end, over as many Generations as failures make necessary.

    All methods may be called from any thread. The committers come from the graph's sinks.

    Args:
        graph: what to run; ``graph.parallelism`` slots are taken.
        name: the user's name for the query, shown by Spark.
        run_id: a UUID, new per start.
        location: the checkpoint location: a path on a file system shared by driver and slots, or an object store.
        options: parsed options.
        launcher: starts slots.
        until_available: read what is there when it starts, commit it and end; windows that are open stay so.
        origin: start from this snapshot of another query; once it has, this counts no more.
        access: to an object store; None: as the environment of driver and slots says.
        on_progress: called on a service thread after each committed epoch; must not raise or block for long.
        on_end: called once on a service thread when the query ended, with its error if it failed; not if ``start``
            raised.
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
        self._on_progress = on_progress
        self._on_end = on_end
        self._query_id = ""
        self._service: CoordinatorService | None = None
        self._figures = Figures(graph, "", run_id, name)
        self._changing = threading.Lock()

    @property
    def query_id(self) -> str:
        """The location's id, the same over restarts; known after ``start``."""
        return self._query_id

    def start(self) -> None:
        """Open the location, recover, launch the first Generation. Returns when slots were asked for.

        Raises:
            LocationError: missing rights, a foreign location, a changed plan, corrupt snapshots.
            ResourceError: too few slots.
            SinkError: the sink's target cannot be written exactly once.
            NotSupported: a source cannot tell what is available.
        """
        if self._service is not None:
            raise QueryFailed("an execution is started once; make a new one")
        for vertex in self._graph.vertices if self._until_available else ():
            if vertex.source is not None:
                vertex.source.source.check_freezable()
        store = open_location(self._location, self._access)
        self._refuse_keepers(store)
        with _usable(store):
            proposed = identity_of(self._graph, str(uuid.uuid4()), self._origins_query(store))
            identity = claim_identity(store, proposed, allow_dropped=self._options.allow_dropped_state)
        self._query_id = identity.query_id
        self._figures = Figures(self._graph, self._query_id, self._run_id, self._name)
        try:
            with about(query=self._name or self._query_id), _usable(store):
                self._open(store, identity)
        except Exception:
            if identity is proposed:
                with suppress(OSError):  # then the claim stays: what went wrong first is what counts
                    release_identity(store)
            raise
        self._confirm(store, identity)

    def _refuse_keepers(self, store: Store) -> None:
        """Those that keep files of their own at the location write and rename them as in a folder."""
        if isinstance(store, LocalStore):
            return
        for vertex in self._graph.vertices:
            keepers: list[Source | Sink] = [] if vertex.source is None else [vertex.source.source]
            keepers += [] if vertex.sink is None else [vertex.sink.sink]
            for what in keepers:
                if what.keeps_files:
                    raise NotSupported(
                        f"{what.describe()} keeps files at the checkpoint location, which has to be a folder for it, "
                        f"and {store.root} is none: give a checkpointLocation on a file system that driver and "
                        "executors share, or read and write with file or Kafka sources and file sinks"
                    )

    def _origins_query(self, store: Store) -> str:
        """What a new location begins as a fork of."""
        return "" if self._origin is None or store.exists(IDENTITY_PATH) else query_at(self._origin)

    def _open(self, store: Store, identity: QueryIdentity) -> None:
        begins_with = forked(
            self._origin,
            store,
            identity,
            self._graph,
            allow_dropped=self._options.allow_dropped_state,
            allow_shared_sink=self._options.allow_shared_sink,
        )
        for vertex in self._graph.vertices:
            if vertex.source is not None:
                vertex.source.source.open(store.root, vertex.source.operator_id)
            if vertex.sink is not None:
                if identity.origin and self._options.allow_shared_sink:
                    vertex.sink.sink.share(self._query_id, identity.origin)
                vertex.sink.sink.stage_in(f"{store.root}/{STAGED_FOLDER}/{vertex.sink.operator_id}")
        plan = AttemptPlan(
            self._query_id,
            self._name or "",
            self._graph,
            self._options,
            store.root,
            self._until_available,
            begins_with,
            self._access,
        )
        self._service = CoordinatorService(plan, store, self._launcher, self._figures, self._on_progress, self._on_end)
        self._service.start()

    def _confirm(self, store: Store, identity: QueryIdentity) -> None:
        """The driver whose claim this was may have failed, and taken it back before our first log entry."""
        try:
            with _usable(store):
                stored = claim_identity(store, identity, allow_dropped=True)
            if stored.query_id != identity.query_id:
                raise Fenced(f"another query was started at {self._location} at the same time; choose another location")
        except PenstockError:
            self.stop()
            raise

    @property
    def is_active(self) -> bool:
        return self._service is not None and not self._service.ended.is_set()

    @property
    def error(self) -> PenstockError | None:
        """Why the query failed; None while it is active and after an orderly stop."""
        return None if self._service is None else self._service.error

    def stop(self, timeout_s: float = 30.0) -> None:
        """Stop without a final checkpoint: what is not committed is read again at the next start. Idempotent.

        Returns when everything has ended, or after ``timeout_s``; in a callback at once.
        """
        if self._service is None or self._service.ended.is_set():
            return
        self._service.stop()
        if not self._service.owns_current_thread():
            self._service.ended.wait(timeout_s)
            self._service.thread.join(_POLL_S)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Read what is there now, let event time end so that every window closes, commit, and end. Blocks until it has
        ended; in a callback it returns at once. A drain that has begun is carried through by whoever recovers.

        Returns:
            False: it did not end within ``timeout_s``.

        Raises:
            NotSupported: a source cannot tell what is there now; the query goes on.
            QueryFailed: a source has ended already, and the query goes on; or the query ended without being drained.
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
        """Block until the query ended, by itself (all its input ended and is committed), by ``stop`` or by a failure;
        False on time-out. Does not raise: look at ``error``."""
        return self._service is not None and self._service.ended.wait(timeout_s)

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
            timeout_s: for all of it; by default ``checkpoint.timeout``, from the moment it is triggered.
            kept: it is never collected.

        Raises:
            CheckpointFailed: declined, timed out or the query ended; the query itself goes on.
        """
        service = self._active()
        future = self._wish(service, label, alignment, timeout_s, kept, note)
        result = self._await(service, future, timeout_s)
        if result is None:
            raise CheckpointFailed(f"the snapshot was not complete within {timeout_s} s, or the query has ended")
        return result

    def begin_snapshot(
        self, label: str = "", alignment: Alignment | None = None, timeout_s: float | None = None, note: str = ""
    ) -> Future[SnapshotMetadata]:
        """As ``request_snapshot``, without waiting: the future is answered in any case, with the snapshot or with
        ``CheckpointFailed``. Its callbacks are called on a service thread and must not block."""
        return self._wish(self._active(), label, alignment, timeout_s, True, note)

    def stop_with_snapshot(self) -> SnapshotMetadata | None:
        """Take a snapshot, let nothing be committed behind it, and stop once it is complete and its epochs are. Returns
        when everything has ended; None in a callback, which must not wait for it.

        Raises:
            CheckpointFailed: there is no such snapshot; the query goes on, or has ended without it.
            QueryFailed: the query failed when the snapshot was complete, but not everything in it committed: the next
                start commits it.
        """
        service = self._active()
        future = service.request_snapshot(SnapshotWish(self._options.checkpoint_alignment, last=True))
        if service.owns_current_thread():
            return None
        metadata = future.result()
        service.ended.wait()
        service.thread.join(_POLL_S)
        if service.error is not None:
            text = f"the query failed behind its last snapshot, {metadata.id}, from which the next start goes on"
            raise QueryFailed(text) from service.error
        return metadata

    def _wish(
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
        return service.request_snapshot(SnapshotWish(chosen, label, note, timeout_ms, kept))

    def rescale(self, parallelism: int, timeout_s: float | None = None) -> None:
        """Go on with so many slots: take an unaligned snapshot, which no backpressure holds up, give the Generation up
        and begin the next one there. Returns when all its subtasks run. While no Generation runs, the next one begins
        at this parallelism.

        Raises:
            ConfigError: not between 1 and ``max_parallelism``. ResourceError: fewer slots are free. CheckpointFailed:
            the
                snapshot cannot be taken. The query goes on as it was.
            QueryFailed: the query has ended.
            TimeoutError: after ``timeout_s``; the query is rescaled all the same.
        """
        service = self._active()
        future = service.rescale(parallelism)
        self._await(service, future, timeout_s)
        if not future.done():
            if service.ended.is_set():
                raise QueryFailed("the query ended before it was rescaled") from service.error
            raise TimeoutError(f"not all subtasks ran within {timeout_s} s")

    def set_checkpoints(self, interval_ms: int | None = None, alignment: Alignment | None = None) -> None:
        """Take periodic checkpoints so from now on; None: as before. Those that are in flight stay as they are, and a
        restart of the driver has what its own options say.

        Raises:
            ConfigError: the interval is not positive.
            QueryFailed: the query has ended.
        """
        if interval_ms is not None and interval_ms < 1:
            raise ConfigError(f"checkpoint.interval must be 1 ms or longer, not {interval_ms} ms")
        service = self._active()
        with self._changing:
            self._options = replace(
                self._options,
                checkpoint_interval_ms=interval_ms or self._options.checkpoint_interval_ms,
                checkpoint_alignment=alignment or self._options.checkpoint_alignment,
            )
            service.change_policy(policy_of(self._options))

    def wanted(self) -> Wanted:
        """What the query is to be; never blocks."""
        options, service = self._options, self._service
        parallelism = self._graph.parallelism if service is None else service.scaling.wanted
        return Wanted(parallelism, options.checkpoint_interval_ms, options.checkpoint_alignment.value)

    def process_all_available(self, timeout_s: float | None = None) -> None:
        """Block until everything that sources could find when this was called is committed. It is, for ever, once the
        query has ended by itself.

        Raises:
            QueryFailed: the query ended before.
            TimeoutError: after ``timeout_s``.
        """
        if self._service is not None and self._service.all_committed:
            return
        service = self._active()
        future = service.process_all_available()
        self._await(service, future, timeout_s)
        if not future.done():
            if service.ended.is_set():
                if service.all_committed:  # the demand came when nobody took it any more
                    return
                raise QueryFailed("the query ended before all available data was committed") from service.error
            raise TimeoutError(f"not everything available was committed within {timeout_s} s")

    def view(self) -> ExecutionView:
        """The newest figures; never blocks."""
        return self._figures.view()

    def _active(self) -> CoordinatorService:
        if self._service is None or self._service.ended.is_set():
            raise QueryFailed("the query is not running")
        return self._service

    @staticmethod
    def _await(service: CoordinatorService, future: Future[_T], timeout_s: float | None) -> _T | None:
        """The future's result, or None at the time-out or if the query ended without an answer."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not future.done():
            left = _POLL_S if deadline is None else min(_POLL_S, deadline - time.monotonic())
            if left <= 0 or (service.ended.is_set() and not future.done()):
                return None
            concurrent.futures.wait([future], timeout=left)
        return future.result()
