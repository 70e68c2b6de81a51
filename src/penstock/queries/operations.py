"""Long-running operations on queries, each on its own thread. Callers ask for the outcome later."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import name_of
from penstock.logs import about, daemon_thread, get_logger

if TYPE_CHECKING:
    from penstock.queries.streaming_query import StreamingQuery
    from penstock.snapshots.commands.comparing import SnapshotDiff
    from penstock.snapshots.commands.verifying import Damage

log = get_logger(__name__)

REMEMBERED = 200
"""Number of ended operations that are remembered."""
SNAPSHOTS_AT_ONCE = 16
"""Limit of running snapshot operations per run: each has a thread, and a checkpoint in flight or a request file."""
WHOLE_AT_ONCE = 2
"""Limit of those that read or write whole snapshots: they keep processors busy that the driver needs."""


class Verb(Enum):
    RESCALE = "rescale"
    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"
    SNAPSHOT = "snapshot"
    DELETE_SNAPSHOT = "delete-snapshot"
    EXPORT_SNAPSHOT = "export-snapshot"
    FORK_SNAPSHOT = "fork-snapshot"
    COPY_SNAPSHOT = "copy-snapshot"
    VERIFY_SNAPSHOTS = "verify-snapshots"
    COMPARE_SNAPSHOTS = "compare-snapshots"
    COLLECT_FILES = "collect-files"


STATE_VERBS = (Verb.SUSPEND, Verb.RESUME, Verb.STOP)
WRITING_VERBS = (Verb.EXPORT_SNAPSHOT, Verb.FORK_SNAPSHOT, Verb.COPY_SNAPSHOT)
WHOLE_VERBS = (*WRITING_VERBS, Verb.VERIFY_SNAPSHOTS, Verb.COMPARE_SNAPSHOTS)
SNAPSHOT_VERBS = (Verb.SNAPSHOT, Verb.DELETE_SNAPSHOT, Verb.COLLECT_FILES, *WHOLE_VERBS)


class OperationState(Enum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class ProgressCounter:
    """Progress of an operation: ``done`` of ``total``, in any unit. Its thread updates it, others read it."""

    def __init__(self) -> None:
        self.counts = (0, 1)

    def update(self, done: int, total: int) -> None:
        self.counts = (done, total)


@dataclass(frozen=True)
class Verified:
    """A ``Verification`` of bounded size.

    Attributes:
        damaged: how many damages there are; ``damage`` has the first.
        orphan_files, orphan_bytes: that a collection removes.
        unsettled_files, unsettled_bytes: of checkpoints in flight, or of an end in the middle of one.
    """

    log_entries: int
    snapshots: int
    sections: int
    bytes: int
    damaged: int
    damage: Sequence[Damage]
    orphan_files: int
    orphan_bytes: int
    unsettled_files: int
    unsettled_bytes: int
    unused_known: bool


@dataclass(frozen=True)
class Operation:
    """One verb on one run. ``parallelism``: what it is rescaled to, else None. Times are wall clock; ``ended_ms`` is
    None while it goes on. ``error_kind``, ``error_text``: why it failed, else empty. ``key``: what tells it from others
    of its verb. ``request``: what for. ``counter``: of one that can tell."""

    id: str
    query_id: str
    run_id: str
    verb: Verb
    parallelism: int | None
    state: OperationState
    began_ms: int
    ended_ms: int | None = None
    error_kind: str = ""
    error_text: str = ""
    key: str = ""
    request: object = None
    snapshot: str | None = None
    freed_files: int | None = None
    freed_bytes: int | None = None
    location: str | None = None
    verification: Verified | None = None
    diff: SnapshotDiff | None = None
    counter: ProgressCounter = field(default_factory=ProgressCounter)


@dataclass(frozen=True)
class Outcome:
    """Outcome of an operation on snapshots: the snapshot (None: several), what was freed, the target, and what was
    found."""

    snapshot: str | None
    freed_files: int | None = None
    freed_bytes: int | None = None
    location: str | None = None
    verification: Verified | None = None
    diff: SnapshotDiff | None = None


class QueryOperations:
    """Thread-safe; one instance per process. A run has one rescale at a time; it may be stopped during it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}

    def rescale(self, query: StreamingQuery, parallelism: int) -> Operation | None:
        """Begin ``query.rescale``. One to the same parallelism that is under way is given again; None: one to another
        is."""
        with self._lock:
            known = self._find_running(query.runId, Verb.RESCALE)
            if known is not None:
                return known if known.parallelism == parallelism else None
            return self._begin(query, Verb.RESCALE, parallelism, lambda: query.rescale(parallelism))

    def stop(self, query: StreamingQuery) -> Operation:
        """Begin ``query.stop``, or give the one that is under way again."""
        with self._lock:
            known = self._find_running(query.runId, Verb.STOP)
            return known or self._begin(query, Verb.STOP, None, query.stop)

    def suspend(self, query: StreamingQuery) -> Operation:
        """Begin ``query.suspend``, or give the one that is under way again."""
        with self._lock:
            known = self._find_running(query.runId, Verb.SUSPEND)
            return known or self._begin(query, Verb.SUSPEND, None, query.suspend)

    def resume(self, query: StreamingQuery, snapshot: str | None, output: str | None) -> Operation:
        """Begin ``query.resume``, or give the one that is under way again, whatever it goes on from: see
        ``Operation.request``, which is both arguments."""
        with self._lock:
            known = self._find_running(query.runId, Verb.RESUME)
            request = snapshot, output
            return known or self._begin(query, Verb.RESUME, None, lambda: query.resume(snapshot, output), request)

    def begin_snapshots(
        self,
        verb: Verb,
        query_id: str,
        run_id: str,
        carry_out: Callable[[], Outcome],
        *,
        key: str,
        request: object = None,
        once: bool = False,
        counter: ProgressCounter | None = None,
    ) -> Operation | None:
        """Begin it, or give the one of this verb and key again that is under way, with ``once`` also one that has
        ended and is remembered. An empty key is no other's. ``counter``: what ``carry_out`` tells. None: too many are
        under way."""
        with self._lock:
            known = [one for one in self._operations.values() if (one.query_id, one.verb) == (query_id, verb)]
            same = [one for one in known if key and one.key == key and (once or one.state is OperationState.RUNNING)]
            if same:
                return same[-1]
            if self._has_too_many(run_id, verb):
                return None
            return self._begin_on(query_id, run_id, verb, None, carry_out, key, request, counter)

    def _has_too_many(self, run_id: str, verb: Verb) -> bool:
        """Return True if the run has too many operations on snapshots."""
        running = [one for one in self._operations.values() if one.state is OperationState.RUNNING]
        verbs = [one.verb for one in running if one.run_id == run_id and one.verb in SNAPSHOT_VERBS]
        whole = sum(one in WHOLE_VERBS for one in verbs)
        return len(verbs) >= SNAPSHOTS_AT_ONCE or (verb in WHOLE_VERBS and whole >= WHOLE_AT_ONCE)

    def get(self, operation_id: str) -> Operation | None:
        with self._lock:
            return self._operations.get(operation_id)

    def writing(self, target: str) -> Operation | None:
        """Return the running operation of any query that writes a snapshot to ``target``."""
        with self._lock:
            running = (one for one in self._operations.values() if one.state is OperationState.RUNNING)
            return next((one for one in running if one.verb in WRITING_VERBS and one.key == target), None)

    def running(self, run_id: str, verb: Verb) -> Operation | None:
        """Return the running operation of this kind, or None."""
        with self._lock:
            return self._find_running(run_id, verb)

    def newest(self, run_id: str, verbs: Collection[Verb]) -> Operation | None:
        """Return the newest operation of these kinds. It may have ended."""
        with self._lock:
            known = (one for one in reversed(self._operations.values()) if one.run_id == run_id)
            return next((one for one in known if one.verb in verbs), None)

    def all_running(self) -> list[Operation]:
        """Return the running operations of all runs, in the order in which they began."""
        with self._lock:
            return [one for one in self._operations.values() if one.state is OperationState.RUNNING]

    def _find_running(self, run_id: str, verb: Verb) -> Operation | None:
        running = (one for one in self._operations.values() if one.state is OperationState.RUNNING)
        return next((one for one in running if (one.run_id, one.verb) == (run_id, verb)), None)

    def _begin(
        self,
        query: StreamingQuery,
        verb: Verb,
        parallelism: int | None,
        carry_out: Callable[[], object],
        request: object = None,
    ) -> Operation:
        return self._begin_on(query.id, query.runId, verb, parallelism, carry_out, request=request)

    def _begin_on(
        self,
        query_id: str,
        run_id: str,
        verb: Verb,
        parallelism: int | None,
        carry_out: Callable[[], object],
        key: str = "",
        request: object = None,
        counter: ProgressCounter | None = None,
    ) -> Operation:
        name, running, progress = str(uuid.uuid4()), OperationState.RUNNING, counter or ProgressCounter()
        operation = Operation(
            name, query_id, run_id, verb, parallelism, running, _now_ms(), key=key, request=request, counter=progress
        )
        self._operations[name] = operation
        over = [one.id for one in self._operations.values() if one.state is not OperationState.RUNNING]
        for oldest in over[:-REMEMBERED]:
            del self._operations[oldest]
        daemon_thread(lambda: self._run(operation, carry_out), f"penstock-{verb.value}").start()
        return operation

    def _run(self, operation: Operation, carry_out: Callable[[], object]) -> None:
        try:
            outcome = carry_out()
        except Exception as problem:  # noqa: BLE001 - whoever asks is told
            with about(query_id=operation.query_id):
                log.warning("%s of query %s failed: %s", operation.verb.value, operation.query_id, problem)
            ended = replace(
                operation,
                state=OperationState.FAILED,
                error_kind=name_of(problem),
                error_text=str(problem).partition("\n")[0],
            )
        else:
            ended = replace(operation, state=OperationState.SUCCEEDED)
            if isinstance(outcome, Outcome):
                ended = replace(ended, **vars(outcome))
        with self._lock:
            self._operations[operation.id] = replace(ended, ended_ms=_now_ms())


OPERATIONS = QueryOperations()


def _now_ms() -> int:
    return int(time.time() * 1000)
