"""How many slots a query runs on: what its user wants, and what the cluster has.

A *rescale* that a user asks for: an unaligned snapshot, which no backpressure holds up; then the Generation is given up
and the next one begins from that snapshot at the other parallelism. Nobody waits for a snapshot that cannot be taken
because no Generation runs: the next one simply begins at the other parallelism.

*Scaling down by itself*: when slots are missing, the next Generation takes those that are there. Lost slots may come
back, so the query waits for ``patience_ms`` first. If the cluster has as many slots as before, other jobs occupy the
missing ones, and it waits for ``OCCUPIED_MS`` at most. Back up, once what is missing has been free for two looks in a
row.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from penstock.coordinator.generation_slots import GenerationSlots
from penstock.coordinator.launching import SlotLauncher
from penstock.errors import CheckpointFailed, ConfigError, PenstockError, QueryFailed, ResourceError
from penstock.logs import get_logger
from penstock.model.ids import GenerationId
from penstock.model.manifest import SnapshotMetadata

log = get_logger(__name__)

LOOK_EVERY_MS = 5_000.0
"""Between two looks for slots that have come back: each asks Spark."""
LOOK_SHORT_EVERY_MS = 1_000.0
"""The same while the query stands still because slots are missing."""
OCCUPIED_MS = 2_000.0
"""A query waits so long for slots that other jobs occupy. Rescaling from 5 slots to 1 and back took 0.6 to 0.9 s on
``local[6]``, so scaling down for a job that ends soon costs less than this wait."""


def no_such_parallelism(parallelism: int, most: int) -> ConfigError:
    return ConfigError(
        f"a query cannot be rescaled to {parallelism}: parallelism is 1 to maxParallelism, which is {most} here and "
        "cannot be changed"
    )


class Scaling:
    """Owned by the coordinator thread.

    Args:
        parallelism: of the first Generation.
        most: key groups: no more subtasks can have anything to do.
        may_shrink: scale down by itself.
        patience_ms: how long slots have to be missing that may have been lost.
        launcher: asked for slots; it asks the cluster.
        snapshot: takes an unaligned snapshot of the current Generation; it is told of on this thread.
        begin_again: gives the current Generation up, soon, and begins the next one. Takes the reason.

    Attributes:
        parallelism: of the current Generation, or of the next one where none runs.
        wanted: what the user wants; any thread may look.
    """

    def __init__(
        self,
        parallelism: int,
        most: int,
        *,
        may_shrink: bool,
        patience_ms: float,
        launcher: SlotLauncher,
        snapshot: Callable[[Future[SnapshotMetadata]], None],
        begin_again: Callable[[str], None],
    ) -> None:
        self.parallelism = parallelism
        self.wanted = parallelism
        self._most = most
        self._may_shrink = may_shrink
        self._patience_ms = patience_ms
        self._launcher = launcher
        self._snapshot = snapshot
        self._begin_again = begin_again
        self._total_slots = parallelism
        """How many slots the cluster had when a Generation last ran."""
        self._short_since_ms: float | None = None
        self._look_at_ms: float | None = None
        self._were_free = False
        self._waiting: list[Future[None]] = []
        self._leaving: GenerationId | None = None

    @property
    def leaving(self) -> bool:
        """A snapshot is being taken to go on from at the wanted parallelism; any thread may look."""
        return self._leaving is not None

    def rescale(self, parallelism: int, future: Future[None], current: GenerationSlots | None) -> None:
        """The user wants this from now on; ``future`` is told when a Generation runs so, or why none will."""
        try:
            self._check(parallelism)
        except PenstockError as refusal:
            future.set_exception(refusal)
            return
        self.wanted = parallelism
        self._waiting.append(future)
        if current is None:
            self.parallelism = parallelism
        elif current.runs:
            self.runs(current)
        elif not current.complete:
            if parallelism != self.parallelism:  # nothing runs yet of which a snapshot could be taken
                self.parallelism = parallelism
                self._begin_again(f"rescaled to {parallelism}")
        elif parallelism != self.parallelism:
            self._leave(current)

    def _check(self, parallelism: int) -> None:
        if not 1 <= parallelism <= self._most:
            raise no_such_parallelism(parallelism, self._most)
        usable = self._launcher.usable_slots()
        if parallelism > usable:
            raise ResourceError(
                f"the query cannot be rescaled to {parallelism}: {usable} slots are there for it, with those that it "
                "has and without those that other queries and Spark jobs occupy; add executors, wait for the others or "
                "stop them, or ask for fewer"
            )

    def _leave(self, current: GenerationSlots) -> None:
        """The snapshot does not wait behind anything; once it exists, this Generation is over. Whatever is wanted until
        then counts."""
        if self._leaving is not None:
            return
        generation = current.generation

        def taken(snapshot: Future[SnapshotMetadata]) -> None:
            if self._leaving != generation:
                return  # it failed meanwhile: the next one has the wanted parallelism anyhow
            self._leaving = None
            problem = snapshot.exception()
            if problem is not None:
                self._stay(problem)
                return
            log.info("the query goes on with parallelism %d instead of %d", self.wanted, self.parallelism)
            self.parallelism = self.wanted
            self._begin_again(f"rescaled to {self.wanted}")

        self._leaving = generation
        snapshot: Future[SnapshotMetadata] = Future()
        snapshot.add_done_callback(taken)
        self._snapshot(snapshot)

    def _stay(self, problem: BaseException) -> None:
        """No snapshot can be taken: a user is told, and gets no more than there is; growing by itself waits."""
        if self._waiting:
            self._tell(CheckpointFailed(f"the query was not rescaled to {self.wanted}: {problem}"))
            self.wanted = self.parallelism
        else:
            log.warning("the query stays at parallelism %d for now: %s", self.parallelism, problem)

    def runs(self, current: GenerationSlots) -> None:
        """All slots of a Generation run."""
        self._short_since_ms = None
        self._total_slots = self._launcher.total_slots()
        if self.parallelism == self.wanted:
            self._tell(None)
        elif self._waiting:
            self._leave(current)  # another parallelism was asked for meanwhile

    def _tell(self, error: PenstockError | None) -> None:
        for future in self._waiting:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._waiting.clear()

    def generation_ended(self) -> None:
        """The next one has what was asked for, with a snapshot of this one or without."""
        if self._leaving is not None:
            self._leaving = None
            self.parallelism = self.wanted

    def short_of_slots(self, now_ms: float) -> bool:
        """A Generation is not started, or could not be: return True if the next one must have fewer slots."""
        waited_ms = self._waited_ms(now_ms)
        return self._must_look(waited_ms) and self._shrink(waited_ms)

    def _waited_ms(self, now_ms: float) -> float:
        """Return the time since slots were first missing."""
        if self._short_since_ms is None:
            self._short_since_ms = now_ms
        return now_ms - self._short_since_ms

    def _must_look(self, waited_ms: float) -> bool:
        return self._may_shrink and waited_ms >= min(self._patience_ms, OCCUPIED_MS)

    def _shrink(self, waited_ms: float) -> bool:
        usable = self._launcher.usable_slots()
        if not 0 < usable < self.parallelism:
            return False
        if waited_ms < self._patience_ms and self._launcher.total_slots() < self._total_slots:
            return False  # what was lost may come back
        log.warning(
            "%d of %d slots are lost, or other jobs occupy them: the query continues with %d until they are free",
            self.parallelism - usable, self.parallelism, usable,
        )  # fmt: skip
        self._were_free = False
        self.parallelism = usable
        self._tell(
            ResourceError(
                f"the query was not rescaled to {self.wanted}: only {usable} slots are there for it now. It continues "
                f"with these, and with {self.wanted} once they are free"
            )
        )
        return True

    def look(self, current: GenerationSlots | None, now_ms: float) -> None:
        """Scale down if a Generation waits for slots for too long, and up once the missing ones are free again.

        Called often. It asks the cluster every ``LOOK_EVERY_MS`` at most, or every ``LOOK_SHORT_EVERY_MS`` while a
        Generation waits for slots.
        """
        if current is None:
            return
        if not current.complete:
            waited_ms = self._waited_ms(now_ms)
            if self._must_look(waited_ms) and self._may_look(now_ms, LOOK_SHORT_EVERY_MS) and self._shrink(waited_ms):
                self._begin_again(f"it continues with {self.parallelism} slots")
        elif not current.runs or self.parallelism >= self.wanted or self.leaving:
            return
        elif self._may_look(now_ms, LOOK_EVERY_MS):
            before, self._were_free = self._were_free, self._launcher.usable_slots() >= self.wanted
            if before and self._were_free:
                self._leave(current)

    def _may_look(self, now_ms: float, every_ms: float) -> bool:
        if self._look_at_ms is not None and now_ms < self._look_at_ms:
            return False
        self._look_at_ms = now_ms + every_ms
        return True

    def query_ended(self, error: PenstockError | None) -> None:
        """Nobody answers any more."""
        self._tell(error or QueryFailed("the query has ended"))
