"""Verbs that take their time, carried out on threads of their own, for callers who ask later what became of them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from penstock.logs import daemon_thread, get_logger

if TYPE_CHECKING:
    from penstock.query.streaming_query import StreamingQuery

log = get_logger(__name__)

REMEMBERED = 200
"""Operations that have ended; older ones are forgotten."""


class Verb(Enum):
    RESCALE = "rescale"
    STOP = "stop"


class OperationState(Enum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class Operation:
    """One verb on one run. ``parallelism``: what it is rescaled to, else None. Times are wall clock; ``ended_ms`` is
    None while it goes on. ``error_kind``, ``error_text``: why it failed, else empty."""

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


class Steering:
    """Thread-safe; one instance per process. A run has one rescale at a time; it may be stopped during it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {}

    def rescale(self, query: StreamingQuery, parallelism: int) -> Operation | None:
        """Begin ``query.rescale``. One to the same parallelism that is under way is given again; None: one to another
        is."""
        with self._lock:
            known = self._under_way(query.runId, Verb.RESCALE)
            if known is not None:
                return known if known.parallelism == parallelism else None
            return self._begin(query, Verb.RESCALE, parallelism, lambda: query.rescale(parallelism))

    def stop(self, query: StreamingQuery) -> Operation:
        """Begin ``query.stop``, or give the one that is under way again."""
        with self._lock:
            known = self._under_way(query.runId, Verb.STOP)
            return known or self._begin(query, Verb.STOP, None, query.stop)

    def get(self, operation_id: str) -> Operation | None:
        with self._lock:
            return self._operations.get(operation_id)

    def under_way(self, run_id: str, verb: Verb) -> Operation | None:
        """What has not ended yet."""
        with self._lock:
            return self._under_way(run_id, verb)

    def _under_way(self, run_id: str, verb: Verb) -> Operation | None:
        running = (one for one in self._operations.values() if one.state is OperationState.RUNNING)
        return next((one for one in running if (one.run_id, one.verb) == (run_id, verb)), None)

    def _begin(
        self, query: StreamingQuery, verb: Verb, parallelism: int | None, carry_out: Callable[[], object]
    ) -> Operation:
        name = str(uuid.uuid4())
        operation = Operation(name, query.id, query.runId, verb, parallelism, OperationState.RUNNING, _now_ms())
        self._operations[name] = operation
        over = [one.id for one in self._operations.values() if one.state is not OperationState.RUNNING]
        for oldest in over[:-REMEMBERED]:
            del self._operations[oldest]
        daemon_thread(lambda: self._run(operation, carry_out), f"penstock-{verb.value}").start()
        return operation

    def _run(self, operation: Operation, carry_out: Callable[[], object]) -> None:
        try:
            carry_out()
        except Exception as problem:  # noqa: BLE001 - whoever asks is told
            log.warning("%s of query %s failed: %s", operation.verb.value, operation.query_id, problem)
            ended = replace(
                operation,
                state=OperationState.FAILED,
                error_kind=type(problem).__name__,
                error_text=str(problem).partition("\n")[0],
            )
        else:
            ended = replace(operation, state=OperationState.SUCCEEDED)
        with self._lock:
            self._operations[operation.id] = replace(ended, ended_ms=_now_ms())


STEERING = Steering()


def _now_ms() -> int:
    return int(time.time() * 1000)
