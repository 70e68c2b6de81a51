"""When a lost Generation is started again, and when the query gives up.

Restarts are bounded and back off exponentially; a completed checkpoint is progress and resets both. The same user
error at the same position twice is deterministic: starting again would only fail again.
"""

from __future__ import annotations

from dataclasses import dataclass

BACKOFF_FACTOR = 2
"""Each further attempt without progress waits twice as long."""


@dataclass(frozen=True)
class RestartPolicy:
    attempts: int
    delay_ms: int
    max_delay_ms: int


@dataclass(frozen=True)
class Failure:
    """Why a Generation ended. ``position`` is set for user code: where in the input it raised."""

    kind: str
    operator: str
    message: str
    position: str = ""


@dataclass(frozen=True)
class RestartAt:
    """Open the next Generation no earlier than ``at_ms`` (the clock of ``now_ms``). ``attempt`` counts from 1."""

    at_ms: float
    attempt: int


@dataclass(frozen=True)
class GiveUp:
    """The query fails. ``first`` is the first failure since the last progress: the cause to report."""

    first: Failure
    reason: str


class Restarts:
    """The restart strategy of one query.

    Args:
        policy: the bounds.
    """

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self._failures: list[Failure] = []
        self._user_error: Failure | None = None

    @property
    def attempts(self) -> int:
        """Restarts since the last progress."""
        return len(self._failures)

    def progressed(self) -> None:
        """A checkpoint of the current Generation completed."""
        self._failures.clear()

    def failed(self, failure: Failure, now_ms: float) -> RestartAt | GiveUp:
        """A Generation ended; what now?"""
        first = self._failures[0] if self._failures else failure
        if failure.position and self._is_repeated(failure):
            return GiveUp(failure, f"the same error at the same position ({failure.position}) twice is deterministic")
        if failure.position:
            self._user_error = failure
        if len(self._failures) >= self._policy.attempts:
            return GiveUp(first, f"{self._policy.attempts} restarts without a completed checkpoint between them")
        delay_ms = min(self._policy.delay_ms * BACKOFF_FACTOR ** len(self._failures), self._policy.max_delay_ms)
        self._failures.append(failure)
        return RestartAt(now_ms + delay_ms, len(self._failures))

    def _is_repeated(self, failure: Failure) -> bool:
        last = self._user_error
        return last is not None and (last.operator, last.position) == (failure.operator, failure.position)

    def check_invariants(self) -> None:
        assert len(self._failures) <= self._policy.attempts, "restarts are bounded"
