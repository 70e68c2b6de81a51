"""When a lost Generation is started again, and when the query gives up.

Restarts are bounded and back off exponentially; a completed checkpoint is progress and resets both, unless a source
cannot be looked at: checkpoints of what was found before go on completing, and nothing comes of it. A user error is
deterministic, so that starting again would only fail again, if it came at the same position twice, or if it came
``IDENTICAL_ERRORS`` times from the same snapshot: slices and readers differ between Generations, so that the position
of one bad row may differ too, but the input behind a snapshot does not.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "source"
"""The kind of a failure to look for new data."""
BACKOFF_FACTOR = 2
"""Each further attempt without progress waits twice as long."""

IDENTICAL_ERRORS = 3
"""The same user error so often without progress is taken to be in the input; twice may be a service that was away."""


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
        self._identical = 0
        self._since_change = 0
        self._failing_sources: set[str] = set()

    @property
    def attempts(self) -> int:
        """Restarts since the last progress."""
        return len(self._failures)

    def progressed(self) -> None:
        """A checkpoint of the current Generation completed."""
        if not self._failing_sources:
            self._failures.clear()
            self._identical = 0

    def looked(self, source: str) -> None:
        """A look at this source went well; ``Failure.operator`` says which one's did not."""
        self._failing_sources.discard(source)

    def failed(self, failure: Failure, now_ms: float) -> RestartAt | GiveUp:
        """A Generation ended; what now?"""
        first = self._failures[0] if self._failures else failure
        if failure.kind == SOURCE:
            self._failing_sources.add(failure.operator)
        if failure.position:
            reason = self._deterministic(failure)
            if reason:
                return GiveUp(failure, reason)
        if len(self._failures) >= self._policy.attempts:
            return GiveUp(first, f"{self._policy.attempts} restarts without progress between them")
        delay_ms = min(self._policy.delay_ms * BACKOFF_FACTOR ** len(self._failures), self._policy.max_delay_ms)
        self._failures.append(failure)
        return RestartAt(now_ms + delay_ms, len(self._failures))

    def _deterministic(self, failure: Failure) -> str:
        """Why this user error would come again; empty if it may not. Remembers it."""
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
        assert len(self._failures) <= self._policy.attempts, "restarts are bounded"
