"""A simulated driver: the real brain and hands; works and messages wait until the scheduler picks them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.config import Options
from penstock.errors import Fenced, LocationError
from penstock.graph.model import JobGraph
from penstock.ids import ChannelId
from penstock.protocol import coordinator_types as ct
from penstock.protocol import splits as sp
from penstock.protocol.elements import Alignment
from penstock.runtime.host import Arrived, Granted
from penstock.snapshot import work as w
from penstock.snapshot.driver import DriverCore
from penstock.snapshot.effects import DriverEffects
from penstock.snapshot.model import SnapshotMetadata
from penstock.snapshot.store import MemoryStore
from penstock.testing.chance import Action, Chance
from penstock.testing.figures import Figures
from penstock.testing.outside import SimulationFailure
from penstock.testing.slot import Links, SimulatedSlot


class SimulatedGeneration:
    """The slots of one Generation and what is on its way between them."""

    def __init__(self, slots: list[SimulatedSlot], links: Links) -> None:
        self.slots = slots
        self.links = links

    @property
    def alive(self) -> bool:
        return any(slot.alive for slot in self.slots)

    def actions(self) -> list[Action]:
        found = [action for slot in self.slots for action in slot.actions()]
        for channel, elements in self.links.elements.items():
            if elements and self._up(channel.consumer) and self.slots[channel.producer].alive:
                found.append(Action(f"deliver {channel}", 1.5, lambda c=channel: self._deliver(c)))  # type: ignore[misc]
        for channel, grants in self.links.credits.items():
            if grants and self._up(channel.producer) and self.slots[channel.consumer].alive:
                found.append(Action(f"credit {channel}", 1.5, lambda c=channel: self._credit(c)))  # type: ignore[misc]
        return found

    def _up(self, slot: int) -> bool:
        return self.slots[slot].alive and len(self.slots[slot].subtasks) > 0

    def _deliver(self, channel: ChannelId) -> None:
        element = self.links.elements[channel].popleft()
        self.slots[channel.consumer].receive(Arrived(channel, element))

    def _credit(self, channel: ChannelId) -> None:
        credit = self.links.credits[channel].popleft()
        self.slots[channel.producer].receive(Granted(channel, credit))


class SimulatedDriver:
    """One driver process; several may work on one location.

    Args:
        name: in the story.
        generations: where every Generation that is started is added; zombies stay there until they notice.
        slow_weight: how often slow subtasks get a turn now.
    """

    def __init__(
        self,
        name: str,
        graph: JobGraph,
        options: Options,
        policy: ct.Policy,
        store: MemoryStore,
        chance: Chance,
        figures: Figures,
        generations: list[SimulatedGeneration],
        slow_weight: Callable[[], float],
    ) -> None:
        self.name = name
        self.alive = True
        self.working = False
        self.core = DriverCore(graph, "query", policy)
        self._graph = graph
        self._options = options
        self._store = store
        self._chance = chance
        self._figures = figures
        self._generations = generations
        self._slow_weight = slow_weight
        self._effects = DriverEffects(
            graph,
            "query",
            store,
            committers={v.sink.operator_id: v.sink.sink.create_committer() for v in graph.vertices if v.sink},
            sources={v.id: v.source.source for v in graph.vertices if v.source},
            token=chance.token,
            wall_ms=lambda: int(chance.now_ms),
            retained=2,
        )
        self._lanes: dict[str, deque[w.Work]] = {}
        self.current: SimulatedGeneration | None = None
        self._tickets = 0
        self._snapshots: dict[int, SnapshotMetadata] = {}
        self._carry_out(self.core.open())

    def die(self) -> None:
        """Like ``kill -9``: nothing is closed, the slots will notice."""
        self.alive = False
        self._orphan()

    def slot_lost(self, slot: SimulatedSlot) -> None:
        """A slot was killed; its link has ended behind what it had sent."""
        if self.alive and self.current is not None and slot in self.current.slots:
            generation = slot.generation
            self._orphan()
            self._feed(ct.GenerationEnded(generation, f"{slot.name} was lost"))
            self._carry_out(self.core.open())

    def request_snapshot(self, alignment: Alignment) -> None:
        self._tickets += 1
        self._feed(ct.SnapshotRequested(self._tickets, alignment, timeout_ms=2_000))

    def wakes_ms(self) -> list[float]:
        at = self.core.next_wake_ms() if self.alive else None
        return [] if at is None else [at]

    def actions(self) -> list[Action]:
        if not self.alive:
            return []
        found = [
            Action(f"{self.name} does {type(works[0]).__name__}", 1.5, lambda lane=lane: self._work(lane))  # type: ignore[misc]
            for lane, works in self._lanes.items()
            if works
        ]
        at = self.core.next_wake_ms()
        if at is not None and at <= self._chance.now_ms:
            found.append(Action(f"{self.name} ticks", 1.5, lambda: self._feed(ct.Tick())))
        return found

    # -- inside ---------------------------------------------------------------------------------------------------

    def _orphan(self) -> None:
        if self.current is not None:
            for slot in self.current.slots:
                slot.orphaned = True
        self.current = None

    def _work(self, lane: str) -> None:
        work = self._lanes[lane].popleft()
        self.working = True
        try:
            event = self._effects.execute(work)
        except Fenced:
            self._chance.note(f"{self.name} is fenced")
            self._figures.count("fenced")
            self.die()
            return
        except LocationError as problem:
            raise SimulationFailure(f"{self.name} cannot use the location: {problem}") from problem
        finally:
            self.working = False
        if isinstance(work, w.CollectGarbage):
            self._check_references()
        if event is not None:
            self._feed(event)

    def _feed(self, event: w.DriverEvent) -> None:
        if self.alive:
            self._carry_out(self.core.handle(event, self._chance.now_ms))

    def _carry_out(self, outputs: list[w.Output]) -> None:
        for output in outputs:
            self._count(output)
            match output:
                case w.Deploy(ready):
                    self._deploy(ready)
                case ct.Trigger() | ct.NotifyComplete() | sp.Dry():
                    self._broadcast(output)
                case ct.Abort(_, _, tell_slots):
                    if tell_slots:
                        self._broadcast(output)
                case sp.Assign() | sp.Lift():
                    if self.current is not None:
                        self.current.slots[output.index].from_driver.append(output)
                case ct.FailQuery(reason):
                    raise SimulationFailure(f"the query gives up: {reason}")
                case _ if isinstance(output, w.WORKS):
                    self._lanes.setdefault(output.lane, deque()).append(output)
        self.core.check_invariants()

    def _count(self, output: w.Output) -> None:
        match output:
            case w.Deploy(ready):
                self._figures.count("generations")
                self._figures.peak("newest generation", ready.generation)
                self._figures.count("restored in-flight rows", ready.inflight_rows)
            case ct.Abort():
                self._figures.count("aborted")
            case w.SnapshotExists(metadata):
                self._figures.count(f"completed {metadata.alignment}")
                self._snapshots[metadata.checkpoint] = metadata

    def _broadcast(self, message: ct.Trigger | ct.NotifyComplete | ct.Abort | sp.Dry) -> None:
        if self.current is not None:
            for slot in self.current.slots:
                slot.from_driver.append(message)

    def _deploy(self, ready: w.GenerationReady) -> None:
        links = Links()
        slots = [
            SimulatedSlot(
                index,
                ready.generation,
                self._graph,
                self._options,
                self._store,
                links,
                ready.slots[index],
                self._chance,
                self._feed,
                self._slow_weight,
                self.slot_lost,
                lambda: self._figures["newest generation"] > ready.generation,
            )
            for index in range(self._graph.parallelism)
        ]
        self.current = SimulatedGeneration(slots, links)
        self._generations.append(self.current)

    def _check_references(self) -> None:
        """After a collection every section of every snapshot that can be restored is still there."""
        for record in self._effects.view.lineage:
            metadata = self._snapshots.get(record.checkpoint)
            for slot in metadata.slots if metadata is not None else ():
                for subtask in slot.subtasks:
                    paths = [e.section.path for e in subtask.states] + [e.section.path for e in subtask.inflight]
                    for path in paths:
                        if path not in self._store.files:
                            raise SimulationFailure(f"snapshot {record.checkpoint} refers to {path}, which is gone")
