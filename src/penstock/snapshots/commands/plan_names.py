"""Names of vertices, edges and operators of a plan, for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.manifest import PlanManifest
from penstock.model.plain import Plain


@dataclass(frozen=True)
class EdgeName:
    """Name of an edge. ``exchange`` is its stable id, ``text`` names producer and consumer."""

    number: int
    exchange: str
    producer: int
    consumer: int
    kind: str
    text: str


class PlanNames:
    """Names of the parts of a plan. A part that the plan lacks is named by its number."""

    def __init__(self, plan: PlanManifest) -> None:
        self._plan = plan
        chains: dict[int, list[str]] = {}
        for operator_id, operator in plan.operators.items():
            chains.setdefault(_number(operator, "vertex"), []).append(self.operator(operator_id))
        self._vertices = {vertex: " + ".join(chain) for vertex, chain in chains.items()}
        self.edges = {_number(edge, "id"): self._edge(exchange, edge) for exchange, edge in plan.edges.items()}

    def operator(self, operator_id: str) -> str:
        """Return the name of an operator, followed by its id in parentheses if the id differs."""
        name = str(self._plan.operators.get(operator_id, {}).get("name") or operator_id)
        return name if name == operator_id else f"{name} ({operator_id})"

    def vertex(self, number: int) -> str:
        """Return the names of the operators of a vertex, in order."""
        return self._vertices.get(number, f"vertex {number}")

    def edge(self, number: int) -> EdgeName:
        return self.edges.get(number) or EdgeName(number, str(number), -1, -1, "", f"edge {number}")

    def _edge(self, exchange: str, edge: Mapping[str, Plain]) -> EdgeName:
        producer, consumer = _number(edge, "producer"), _number(edge, "consumer")
        text = f"{self.vertex(producer)} -> {self.vertex(consumer)}"
        return EdgeName(_number(edge, "id"), exchange, producer, consumer, str(edge.get("kind", "")), text)


def _number(entry: Mapping[str, Plain], field: str) -> int:
    value = entry.get(field)
    return value if isinstance(value, int) else -1
