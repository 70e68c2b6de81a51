"""Restart strategy: decides when a failed generation is restarted, and when the query gives up.

As in Flink, a strategy bounds the restarts: a number of restarts without progress (with a constant or growing pause),
or a number within a time. A completed checkpoint is progress and resets count and pause, with two exceptions. First,
while discovery fails, checkpoints of input found before still complete, but they are no progress. Second, the first
checkpoint after a restore comes so soon that even a generation that always fails completes it. So it counts only if
rows were read.

A user error is deterministic if it occurs twice at the same position, or ``IDENTICAL_ERRORS`` times from the same
snapshot. A restart would only fail again. Slices and readers differ between generations, so the reported position of
one bad row may differ too, but the input after a snapshot does not.
"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass, replace

from penstock.config import RestartStrategy

SOURCE = "source"
"""Kind of a failed discovery."""
BACKOFF_FACTOR = 2
"""Factor by which the pause grows with each further attempt without progress."""

IDENTICAL_ERRORS = 3
"""Number of equal user errors without progress after which the error is attributed to the input.

Two equal errors may be caused by a service that was temporarily unavailable.
"""


@dataclass(frozen=True)
class RestartPolicy:
    """Bounds of the restarts.

    Attributes:
        attempts: number of restarts that are allowed.
        jitter: fraction of a pause by which it may vary in both directions, so that queries that failed together do not
            restart together.
        interval_ms: time window of ``FAILURE_RATE``.
    """

    attempts: int
    delay_ms: int
    max_delay_ms: int
    strategy: RestartStrategy = RestartStrategy.EXPONENTIAL
    jitter: float = 0.0
    interval_ms: int = 600_000


@dataclass(frozen=True)
class Failure:
    """Failure that ended a generation. ``position`` is set for errors of user code: the position in the input."""

    kind: str
    operator: str
    message: str
    position: str = ""


@dataclass(frozen=True)
class RestartAt:
    """Decision to open the next generation at ``at_ms`` or later, on the clock of ``now_ms``.

    ``attempt`` counts from 1.
    """

    at_ms: float
    attempt: int


@dataclass(frozen=True)
class GiveUp:
    """Decision to fail the query. ``first`` is the failure to report as cause.

    It is the first failure since the last progress, or a user error that is deterministic.
    """

    first: Failure
    reason: str


class Retries:
    """Retry schedule for an external system that fails while the query runs: a sink or the checkpoint location.

    Args:
        policy: the policy for restarts; its jitter is not used.
        timeout_ms: time limit from the first failure on, instead of the attempts of ``policy``; None: the attempts
            apply.
    """

    def __init__(self, policy: RestartPolicy, timeout_ms: int | None = None) -> None:
        if timeout_ms is not None:
            fixed = policy.strategy is RestartStrategy.FIXED
            pauses = RestartStrategy.FIXED if fixed else RestartStrategy.EXPONENTIAL
            policy = replace(policy, strategy=pauses, attempts=sys.maxsize)
        self._timeout_ms = timeout_ms
        self._restarts = Restarts(policy)
        self._since_ms = 0.0
        self.again_at_ms: float | None = None

    @property
    def failures(self) -> int:
        """Number of failures in a row."""
        return self._restarts.attempts

    def failed(self, now_ms: float) -> str:
        """Record a failure.

        Return why there is no further retry, or an empty text if the next is at ``again_at_ms``.
        """
        if not self.failures:
            self._since_ms = now_ms
        end_ms = sys.maxsize if self._timeout_ms is None else self._since_ms + self._timeout_ms
        failures = self.failures + 1
        decision = self._restarts.failed(Failure("outage", "", ""), now_ms)
        if isinstance(decision, GiveUp) or now_ms >= end_ms:
            count = f"{failures} failure{'s' if failures > 1 else ''}"
            return f"{count} in {(now_ms - self._since_ms) / 1000:.0f} s"
        self.again_at_ms = min(decision.at_ms, end_ms)
        return ""

    def due(self, now_ms: float) -> bool:
        """Return True if an attempt is due now. The caller then makes it."""
        if self.again_at_ms is not None and now_ms < self.again_at_ms:
            return False
        self.again_at_ms = None
        return True

    def succeeded(self) -> None:
        self.again_at_ms = None
        self._restarts.completed(0)


class Restarts:
    """Restart strategy of one query.

    Args:
        policy: the bounds.
    """

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._failures: list[Failure] = []
        self._user_error: Failure | None = None
        self._identical = 0
        self._since_change = 0
        self._failing_sources: set[str] = set()
        self._read_before: int | None = None
        self._restarted_ms: deque[float] = deque()

    @property
    def attempts(self) -> int:
        """Number of restarts since the last progress."""
        return len(self._failures)

    def restored(self, rows_read: int) -> None:
        """Record that a generation starts from a snapshot up to which the sources had read this many rows."""
        self._read_before = rows_read

    def completed(self, rows_read: int) -> None:
        """Record a completed checkpoint of the current generation, and the rows that the sources had read by then."""
        before, self._read_before = self._read_before, None
        progressed = before is None or rows_read > before
        if progressed and not self._failing_sources:
            self._failures.clear()
            self._identical = 0

    def discovered(self, source: str) -> None:
        """Record a successful discovery of a source.

        A failed one is recorded by ``failed``, with ``Failure.operator``.
        """
        self._failing_sources.discard(source)

    def failed(self, failure: Failure, now_ms: float, chance: float = 0.5) -> RestartAt | GiveUp:
        """Decide how to continue after a failed generation. ``chance``: a random number from 0 to 1, for the jitter."""
        first = self._failures[0] if self._failures else failure
        if failure.kind == SOURCE:
            self._failing_sources.add(failure.operator)
        if failure.position:
            reason = self._deterministic(failure)
            if reason:
                return GiveUp(failure, reason)
        reason = self._used_up(now_ms)
        if reason:
            return GiveUp(first, reason)
        delay_ms = self._delay_ms() * (1 + self._policy.jitter * (2 * chance - 1))
        self._failures.append(failure)
        if self._policy.strategy is RestartStrategy.FAILURE_RATE:
            self._restarted_ms.append(now_ms)
        return RestartAt(now_ms + delay_ms, len(self._failures))

    def _used_up(self, now_ms: float) -> str:
        """Return why there is no further restart, or an empty text if there is one."""
        policy = self._policy
        match policy.strategy:
            case RestartStrategy.NONE:
                return "restart.strategy is none"
            case RestartStrategy.FAILURE_RATE:
                while self._restarted_ms and self._restarted_ms[0] <= now_ms - policy.interval_ms:
                    self._restarted_ms.popleft()
                if len(self._restarted_ms) >= policy.attempts:
                    return f"{policy.attempts} restarts within {policy.interval_ms / 1000:g} s"
            case _ if len(self._failures) >= policy.attempts:
                return f"{policy.attempts} restarts without progress between them"
        return ""

    def _delay_ms(self) -> float:
        policy = self._policy
        if policy.strategy is not RestartStrategy.EXPONENTIAL:
            return policy.delay_ms
        return float(min(policy.delay_ms * BACKOFF_FACTOR ** len(self._failures), policy.max_delay_ms))

    def _deterministic(self, failure: Failure) -> str:
        """Record a user error. Return why it would be raised again, or an empty text if it may not be."""
        last, self._user_error = self._user_error, failure
        if last is None or (last.operator, last.message) != (failure.operator, failure.message):
            self._identical = self._since_change = 1
            return ""
        self._identical += 1
        self._since_change += 1
        if last.position == failure.position:
            return f"the same error at the same position ({failure.position}) twice is deterministic"
        if self._identical >= IDENTICAL_ERRORS:
            return f"the same error {self._identical} times from the same snapshot is deterministic"
        if self._since_change > self._policy.attempts:
            return f"the same error {self._since_change} times in a row, whatever completed in between"
        return ""

    def check_invariants(self) -> None:
        counted = self._restarted_ms if self._policy.strategy is RestartStrategy.FAILURE_RATE else self._failures
        assert len(counted) <= self._policy.attempts, "restarts are bounded"
