"""The slots of one Generation, and the links between them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinator.commands import GenerationReady
from penstock.model.job_graph import JobGraph
from penstock.testing.failure import SimulationFailure
from simulator.cluster.links import Link
from simulator.cluster.slot import SimulatedSlot, ToDriver
from simulator.engine.world import World
from simulator.oracles.capture import CaptureOracle


class SimulatedGeneration:
    """Slots and links of one Generation.

    Args:
        ready: what each slot restores.
        graph: the job at the parallelism of this Generation.
        receive: called with messages from slots to the driver.
        takes_input: False blocks all input.
        paused: True if the sources start paused.
    """

    def __init__(
        self,
        ready: GenerationReady,
        world: World,
        graph: JobGraph,
        receive: Callable[[SimulatedSlot, ToDriver], None],
        takes_input: bool = True,
        paused: bool = False,
    ) -> None:
        self.generation = ready.opened.generation
        self.world = world
        self.graph = graph
        self.capture_oracle = CaptureOracle(world, graph, ready)
        self.slots = [
            SimulatedSlot(index, self, parts, receive, takes_input, ready.opened.restored, paused)
            for index, parts in enumerate(ready.slots)
        ]
        self.links: list[Link] = []
        for producer in self.slots:
            for consumer in self.slots:
                if producer is not consumer:
                    link = producer.links[consumer.index] = Link(world, producer, consumer)
                    self.links.append(link)

    def links_to(self, consumer: int) -> list[Link]:
        """Return the links from all other slots to a slot."""
        return [slot.links[consumer] for slot in self.slots if slot.index != consumer]

    def disconnect(self, link: Link) -> None:
        """A data link breaks: both ends report it."""
        link.close()
        for slot in link.ends:
            slot.fail("link", f"{link.actor.name} broke")

    def orphan(self) -> None:
        """The driver is gone, or has given this Generation up."""
        for slot in self.slots:
            slot.orphan()

    def count_turns(self) -> None:
        """Count the conversions of aligned checkpoints of all subtasks."""
        for slot in self.slots:
            for runner in slot.runners.values() if slot.alive else ():
                runner.count_turns()

    def check_credit(self) -> None:
        """Check that, at rest, both ends of every channel agree on its credit and nothing is queued or blocked."""
        for slot in self.slots:
            for runner in slot.runners.values():
                runner.subtask.check_invariants()
                for channel, output in runner.subtask.outputs.channels.items():
                    consumer = self.world.graph.edge(channel.edge).consumer
                    peer = self.slots[channel.consumer].runners[consumer].subtask.gate.channels[channel]
                    sending, receiving = output.credit.available, peer.credit
                    queued = output.queued_bytes, receiving.queued_bytes
                    if sending != receiving.granted or any(queued) or peer.blocked_by:
                        raise SimulationFailure(
                            f"{channel} at rest: credit {sending}, granted {receiving.granted}, queued {queued[0]} and"
                            f" {queued[1]}, blocked by {peer.blocked_by}",
                            "credit",
                        )
