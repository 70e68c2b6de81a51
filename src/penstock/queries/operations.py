"""Long-running operations on queries, each on its own thread. Callers poll for the outcome."""

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
"""Limit of operations that read or write whole snapshots: they use CPU that the driver needs."""


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
    """Progress of an operation: ``done`` of ``total``, in any unit. Only the operation's thread updates it."""

    def __init__(self) -> None:
        self.counts = (0, 1)

    def update(self, done: int, total: int) -> None:
        self.counts = (done, total)


@dataclass(frozen=True)
class Verified:
    """A ``Verification`` of bounded size.

    Attributes:
        damaged: total number of damaged files; ``damage`` has the first ones.
        orphan_files, orphan_bytes: files that a collection removes.
        unsettled_files, unsettled_bytes: files of checkpoints in flight, or of an interrupted one.
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
    """One operation on one run.

    Attributes:
        parallelism: target of a rescale, else None.
        began_ms, ended_ms: wall-clock time; ``ended_ms`` is None while the operation runs.
        error_kind, error_text: class and text of the error if the operation failed, else empty.
        key: identifies the operation among those of the same verb; may be empty.
        request: arguments of the request, to compare with those of a later one.
        counter: progress of the operation, if it reports any.
    """

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
    """Outcome of an operation on snapshots.

    Attributes:
        snapshot: id of the snapshot; None if there are several.
        freed_files, freed_bytes: number and size of removed files.
        location: the target that was written.
        verification, diff: results of a verification or comparison.
    """

    snapshot: str | None
    freed_files: int | None = None
    freed_bytes: int | None = None
    location: str | None = None
    verification: Verified | None = None
    diff: SnapshotDiff | None = None


class QueryOperations:
    """Registry of operations. Thread-safe; one instance per process.

    A run has at most one rescale at a time. It can be stopped during a rescale.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}

    def rescale(self, query: StreamingQuery, parallelism: int) -> Operation | None:
        """Begin ``query.rescale``.

        If a rescale to the same parallelism runs, return that one. If one to another parallelism runs, return None.
        """
        with self._lock:
            known = self._find_running(query.runId, Verb.RESCALE)
            if known is not None:
                return known if known.parallelism == parallelism else None
            return self._begin(query, Verb.RESCALE, parallelism, lambda: query.rescale(parallelism))

    def stop(self, query: StreamingQuery) -> Operation:
        """Begin ``query.stop``, or return the running stop."""
        with self._lock:
            known = self._find_running(query.runId, Verb.STOP)
            return known or self._begin(query, Verb.STOP, None, query.stop)

    def suspend(self, query: StreamingQuery) -> Operation:
        """Begin ``query.suspend``, or return the running suspend."""
        with self._lock:
            known = self._find_running(query.runId, Verb.SUSPEND)
            return known or self._begin(query, Verb.SUSPEND, None, query.suspend)

    def resume(self, query: StreamingQuery, snapshot: str | None, output: str | None) -> Operation:
        """Begin ``query.resume``, or return the running resume, which may have other arguments.

        ``Operation.request`` is the pair of both arguments.
        """
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
        """Begin a snapshot operation, or return the running one with the same verb and key.

        Args:
            carry_out: the operation; called on a new thread.
            key: identifies the operation among those of the same verb. An empty key always begins a new one.
            request: arguments of the request, kept in ``Operation.request``.
            once: also return a remembered operation that has ended.
            counter: progress that ``carry_out`` reports.

        Returns:
            The operation; None if too many of the run's snapshot operations are running.
        """
        with self._lock:
            known = [one for one in self._operations.values() if (one.query_id, one.verb) == (query_id, verb)]
            same = [one for one in known if key and one.key == key and (once or one.state is OperationState.RUNNING)]
            if same:
                return same[-1]
            if self._has_too_many(run_id, verb):
                return None
            return self._begin_on(query_id, run_id, verb, None, carry_out, key, request, counter)

    def _has_too_many(self, run_id: str, verb: Verb) -> bool:
        """Return True if the run has too many running snapshot operations to begin another."""
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
        """Return the newest operation of these kinds, or None. It may have ended."""
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
        except Exception as problem:  # noqa: BLE001 - the client receives it
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
