"""From the nodes of a schedule to the JobGraph that is run."""

from __future__ import annotations

from collections.abc import Callable

from penstock.graph.model import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.operators.base import Operator
from penstock.testing.holding import hold_specs
from penstock.testing.operators import BlindWatermarkSpec, Count, Join, Rekey, Relay, SimulatedSpec, Sort, Window
from penstock.testing.outside import Outside
from penstock.testing.rows import KEY, ROW, TIME
from penstock.testing.settings import Settings
from penstock.testing.sinks import Commits, SimulatedSink
from penstock.testing.sources import source_of
from penstock.testing.tap import Inbound, Order, SourceStamp, Workload
from penstock.testing.topology import Inlet, Node, leaves


def build_job(
    settings: Settings, outside: Outside, workload: Workload, commits: Commits, clock_ms: Callable[[], float]
) -> JobGraph:
    """The graph; a node's position is its vertex id."""
    ends = leaves(settings.nodes)
    vertices = tuple(
        Vertex(
            position,
            f"{node.kind}{position}",
            SourceSpec(f"source{position}", "source", source_of(settings, position, clock_ms), settings.clock)
            if node.kind == "source"
            else None,
            _operators(settings, position, node, workload),
            SinkSpec(f"sink{position}", "sink", SimulatedSink(position, outside, commits))
            if position in ends
            else None,
        )
        for position, node in enumerate(settings.nodes)
    )
    inlets = [(inlet, position) for position, node in enumerate(settings.nodes) for inlet in node.inlets]
    edges = tuple(
        Edge(
            number,
            inlet.producer,
            consumer,
            EdgeKind(inlet.kind),
            ROW,
            (KEY,) if inlet.kind == EdgeKind.HASH.value or _is_keyed_broadcast(settings, inlet, consumer) else (),
        )
        for number, (inlet, consumer) in enumerate(inlets)
    )
    return JobGraph(vertices, edges, settings.parallelism, settings.max_parallelism)


def _order(settings: Settings, inlet: Inlet, consumer: int) -> Order:
    if not settings.rescales:
        return Order.CHANNEL
    by_key = inlet.kind == EdgeKind.HASH.value or _is_keyed_broadcast(settings, inlet, consumer)
    return Order.KEY if by_key else Order.NONE


def _is_keyed_broadcast(settings: Settings, inlet: Inlet, consumer: int) -> bool:
    return inlet.kind == EdgeKind.BROADCAST.value and settings.nodes[consumer].kind == "join"


def _operators(settings: Settings, position: int, node: Node, workload: Workload) -> tuple[OperatorSpec, ...]:
    inputs = tuple(Inbound(inlet.producer, _order(settings, inlet, position)) for inlet in node.inlets)
    holds = hold_specs(position, node.holds)
    if node.kind == "source":
        watermark = BlindWatermarkSpec(
            operator_id=f"watermark{position}", name="watermark", output_schema=ROW, column=TIME, delay_us=0, node=node
        )
        return *holds, watermark, _spec(position, "stamp", lambda: SourceStamp(position, workload))
    makers: dict[str, Callable[[], Operator]] = {
        "relay": lambda: Relay(position, inputs, workload),
        "rekey": lambda: Rekey(position, inputs, workload, settings.keys),
        "count": lambda: Count(position, inputs, workload),
        "window": lambda: Window(position, inputs, workload, settings.window_ms),
        "sort": lambda: Sort(position, inputs, workload),
        "join": lambda: Join(position, inputs, workload),
    }
    return *holds, _spec(position, node.kind, makers[node.kind])


def _spec(position: int, kind: str, make: Callable[[], Operator]) -> OperatorSpec:
    return SimulatedSpec(operator_id=f"{kind}{position}", name=kind, make=make)
