"""Conversion of the nodes of a schedule to the JobGraph that is run."""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.operators.base import Operator
from simulator.jobs.checked_operator import Inbound, Order, SourceStamp, Workload
from simulator.jobs.external_systems import ExternalSystems
from simulator.jobs.holding_functions import hold_specs
from simulator.jobs.operators import BlindWatermarkSpec, Count, Join, Rekey, Relay, SimulatedSpec, Sort, Window
from simulator.jobs.rows import KEY, ROW, TIME
from simulator.jobs.sinks import Commits, SimulatedSink
from simulator.jobs.sources import source_of
from simulator.jobs.topology import NEW_EDGE, Edit, Inlet, Node, leaves
from simulator.settings import Settings


def build_job(
    settings: Settings,
    external: ExternalSystems,
    workload: Workload,
    commits: Commits,
    clock_ms: Callable[[], float],
    edit: Edit | None = None,
) -> JobGraph:
    """Return the graph, edited or as it is in ``settings``; a node's position is its vertex id."""
    ends = leaves(settings.nodes)
    vertices = tuple(
        Vertex(
            position,
            f"{node.kind}{position}",
            SourceSpec(f"source{position}", "source", source_of(settings, position, clock_ms), settings.clock)
            if node.kind == "source"
            else None,
            _operators(settings, position, node, workload, edit),
            SinkSpec(f"sink{position}", "sink", SimulatedSink(position, external, commits))
            if position in ends
            else None,
        )
        for position, node in enumerate(settings.nodes)
    )
    inlets = [(position, number) for position, node in enumerate(settings.nodes) for number in range(len(node.inlets))]
    edges = tuple(_edge(settings, number, *inlet, edit) for number, inlet in enumerate(inlets))
    return JobGraph(vertices, edges, settings.parallelism, settings.max_parallelism)


def _edge(settings: Settings, number: int, consumer: int, position: int, edit: Edit | None) -> Edge:
    inlet = settings.nodes[consumer].inlets[position]
    kind, column, exchange_id = inlet.kind, KEY, ""
    if edit is not None and edit.inlet == (consumer, position):
        if edit.kind == NEW_EDGE:
            exchange_id = NEW_EDGE
        else:
            kind, column = edit.kind, edit.column
    keyed = kind == EdgeKind.HASH.value or _is_keyed_broadcast(settings, inlet, consumer)
    keys = (column,) if keyed else ()
    return Edge(number, inlet.producer, consumer, EdgeKind(kind), ROW, keys, exchange_id=exchange_id)


def _inbound(settings: Settings, position: int, number: int, edit: Edit | None) -> Inbound:
    inlet = settings.nodes[position].inlets[number]
    if edit is not None and edit.inlet == (position, number):
        return Inbound(inlet.producer, Order.NONE, edit.column if edit.kind == EdgeKind.HASH.value else None)
    if not settings.rescales and edit is None:
        return Inbound(inlet.producer, Order.CHANNEL)
    by_key = inlet.kind == EdgeKind.HASH.value or _is_keyed_broadcast(settings, inlet, position)
    return Inbound(inlet.producer, Order.KEY if by_key else Order.NONE)


def _is_keyed_broadcast(settings: Settings, inlet: Inlet, consumer: int) -> bool:
    return inlet.kind == EdgeKind.BROADCAST.value and settings.nodes[consumer].kind == "join"


def _operators(
    settings: Settings, position: int, node: Node, workload: Workload, edit: Edit | None
) -> tuple[OperatorSpec, ...]:
    inputs = tuple(_inbound(settings, position, number, edit) for number in range(len(node.inlets)))
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
