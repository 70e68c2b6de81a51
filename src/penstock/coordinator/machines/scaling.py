"""Parallelism of a query, from the user's request and the slots of the cluster.

*Rescaling* on request: an unaligned snapshot is taken, which backpressure does not delay. Then the generation is given
up, and the next one restores that snapshot at the other parallelism. If no generation runs, no snapshot can be taken;
the next generation begins at the other parallelism.

*Automatic scale-down*: when slots are missing, the next generation uses those that are available. Lost slots may come
back, so the query waits for ``patience_ms`` first. If the cluster has as many slots as before, other jobs occupy the
missing ones, and the query waits for ``OCCUPIED_MS`` at most. It scales up again after the missing slots were usable in
two polls in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import CheckpointFailed, ConfigError, PenstockError, ResourceError
from penstock.model.ids import GenerationId

POLL_MS = 5_000.0
"""Time in milliseconds between two polls for slots that have come back. Each poll asks Spark."""
STARTING_POLL_MS = 1_000.0
"""The same while a generation waits for slots."""
OCCUPIED_MS = 2_000.0
"""Maximum time in milliseconds for which a query waits for slots that other jobs occupy.

Rescaling from 5 slots to 1 and back took 0.6 to 0.9 s on ``local[6]``. So scaling down for a job that ends soon costs
less than this wait.
"""


@dataclass(frozen=True)
class SlotsStatus:
    """Status of a generation's slots.

    Attributes:
        is_complete: True if all have registered.
        is_running: True if all run.
    """

    generation: GenerationId
    is_complete: bool
    is_running: bool


@dataclass(frozen=True)
class ClusterSlots:
    """Slots of the cluster.

    Attributes:
        usable: number of slots of this query, plus free ones.
        total: number of all slots, including those that other queries and jobs occupy.
    """

    usable: int
    total: int


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakeSnapshot:
    """Take an unaligned snapshot; ``snapshot_ended`` follows."""

    generation: GenerationId


@dataclass(frozen=True)
class BeginGeneration:
    """Give up the current generation, and begin the next one with ``Scaling.parallelism``."""

    reason: str


@dataclass(frozen=True)
class RescaleEnded:
    """Answer to the request ``ticket``. ``error`` is None if a generation runs at the requested parallelism."""

    ticket: int
    error: PenstockError | None = None


@dataclass(frozen=True)
class Warn:
    """Warn the user that the parallelism differs from the requested one, and why."""

    text: str


Command = TakeSnapshot | BeginGeneration | RescaleEnded | Warn


def no_such_parallelism(parallelism: int, max_parallelism: int) -> ConfigError:
    """Return the error for a request outside 1 to ``max_parallelism``."""
    return ConfigError(
        f"a query cannot be rescaled to {parallelism}: parallelism is 1 to maxParallelism, which is {max_parallelism} "
        "here and cannot be changed"
    )


class Scaling:
    """State machine of one query, over all its generations.

    Args:
        parallelism: parallelism of the first generation.
        max_parallelism: number of key groups, which no parallelism may exceed.
        may_shrink: allow automatic scale-down.
        patience_ms: time for which slots that may have been lost must be missing before a scale-down.

    Attributes:
        parallelism: parallelism of the current generation, or of the next one if none runs.
        requested: parallelism that the user requested.
    """

    def __init__(self, parallelism: int, max_parallelism: int, *, may_shrink: bool, patience_ms: float) -> None:
        self.parallelism = parallelism
        self.requested = parallelism
        self._max_parallelism = max_parallelism
        self._may_shrink = may_shrink
        self._patience_ms = patience_ms
        self._total_slots = parallelism
        """Number of slots of the cluster when a generation last ran."""
        self._short_since_ms: float | None = None
        self._poll_at_ms: float | None = None
        self._were_usable = False
        self._waiting: list[int] = []
        self._snapshot_of: GenerationId | None = None

    @property
    def is_rescaling(self) -> bool:
        """True while the snapshot is taken from which the next generation begins at the requested parallelism."""
        return self._snapshot_of is not None

    def rescale(
        self, ticket: int, parallelism: int, current: SlotsStatus | None, cluster: ClusterSlots
    ) -> list[Command]:
        """Handle a user's request. ``RescaleEnded`` answers it, now or later."""
        if not 1 <= parallelism <= self._max_parallelism:
            return [RescaleEnded(ticket, no_such_parallelism(parallelism, self._max_parallelism))]
        if parallelism > cluster.usable:
            return [RescaleEnded(ticket, _too_few_slots(parallelism, cluster.usable))]
        self.requested = parallelism
        self._waiting.append(ticket)
        if current is None:
            self.parallelism = parallelism
        elif current.is_running:
            return self.running(current, cluster)
        elif parallelism != self.parallelism:
            if current.is_complete:
                return self._take_snapshot(current)
            self.parallelism = parallelism  # no slots run yet of which a snapshot could be taken
            return [BeginGeneration(f"rescaled to {parallelism}")]
        return []

    def running(self, current: SlotsStatus, cluster: ClusterSlots) -> list[Command]:
        """Handle the event that all slots of a generation run."""
        self._short_since_ms = None
        self._total_slots = cluster.total
        if self.parallelism == self.requested:
            return self._answer(None)
        return self._take_snapshot(current) if self._waiting else []  # another parallelism was requested meanwhile

    def snapshot_ended(self, generation: GenerationId, problem: BaseException | None) -> list[Command]:
        """Handle the end of the snapshot that ``TakeSnapshot`` commanded.

        The generation ends if the snapshot succeeded; otherwise it continues.
        """
        if self._snapshot_of != generation:
            return []  # the generation failed meanwhile: the next one has the requested parallelism anyway
        self._snapshot_of = None
        if problem is None:
            self.parallelism = self.requested
            return [BeginGeneration(f"rescaled to {self.requested}")]
        if not self._waiting:
            return [Warn(f"the query stays at parallelism {self.parallelism} for now: {problem}")]
        error = CheckpointFailed(f"the query was not rescaled to {self.requested}: {problem}")
        self.requested = self.parallelism
        return self._answer(error)

    def generation_ended(self) -> None:
        """Give the next generation the requested parallelism, if a snapshot was being taken for that."""
        if self._snapshot_of is not None:
            self._snapshot_of = None
            self.parallelism = self.requested

    # -- slots of the cluster -----------------------------------------------------------------------------------------

    def must_count(self, now_ms: float) -> bool:
        """Return True if ``shrink`` must be called after a generation that could not start for lack of slots."""
        return self._may_shrink and self._waited_ms(now_ms) >= min(self._patience_ms, OCCUPIED_MS)

    def shrink(self, cluster: ClusterSlots, now_ms: float) -> list[Command]:
        """Reduce the parallelism to the usable slots. Return no command if that is not possible, or too early."""
        usable = cluster.usable
        if not 0 < usable < self.parallelism:
            return []
        if self._waited_ms(now_ms) < self._patience_ms and cluster.total < self._total_slots:
            return []  # lost slots may come back
        text = (
            f"{self.parallelism - usable} of {self.parallelism} slots are lost, or other jobs occupy them: the query "
            f"continues with {usable} until they are free"
        )
        self._were_usable = False
        self.parallelism = usable
        error = ResourceError(
            f"the query was not rescaled to {self.requested}: only {usable} slots are there for it now. It continues "
            f"with these, and with {self.requested} once they are free"
        )
        return [Warn(text), *self._answer(error)]

    def poll_due(self, current: SlotsStatus | None, now_ms: float) -> bool:
        """Return True if the slots of the cluster must be counted now; ``polled`` follows. It may be called often."""
        if current is None:
            return False
        if not current.is_complete:
            return self.must_count(now_ms) and self._is_due(now_ms, STARTING_POLL_MS)
        if not current.is_running or self.parallelism >= self.requested or self.is_rescaling:
            return False
        return self._is_due(now_ms, POLL_MS)

    def polled(self, current: SlotsStatus, cluster: ClusterSlots, now_ms: float) -> list[Command]:
        """Scale down if a generation waits too long for slots; scale up after the missing ones were usable twice."""
        if not current.is_complete:
            commands = self.shrink(cluster, now_ms)
            return [*commands, BeginGeneration(f"it continues with {self.parallelism} slots")] if commands else []
        before, self._were_usable = self._were_usable, cluster.usable >= self.requested
        return self._take_snapshot(current) if before and self._were_usable else []

    def _is_due(self, now_ms: float, every_ms: float) -> bool:
        if self._poll_at_ms is not None and now_ms < self._poll_at_ms:
            return False
        self._poll_at_ms = now_ms + every_ms
        return True

    def _waited_ms(self, now_ms: float) -> float:
        """Return the time since slots were first missing."""
        if self._short_since_ms is None:
            self._short_since_ms = now_ms
        return now_ms - self._short_since_ms

    def _take_snapshot(self, current: SlotsStatus) -> list[Command]:
        if self._snapshot_of is not None:
            return []
        self._snapshot_of = current.generation
        return [TakeSnapshot(current.generation)]

    def _answer(self, error: PenstockError | None) -> list[Command]:
        answers: list[Command] = [RescaleEnded(ticket, error) for ticket in self._waiting]
        self._waiting.clear()
        return answers


def _too_few_slots(parallelism: int, usable: int) -> ResourceError:
    return ResourceError(
        f"the query cannot be rescaled to {parallelism}: {usable} slots are there for it, with those that it has and "
        "without those that other queries and Spark jobs occupy; add executors, wait for the others or stop them, or "
        "ask for fewer"
    )
