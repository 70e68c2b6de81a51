"""What the numbers of a snapshot mean to people: vertices and edges by the names of their operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.model.manifest import PlanManifest
from penstock.model.plain import Plain


@dataclass(frozen=True)
class EdgeName:
    """``exchange``: its id, stable over restarts. ``text``: from what to what."""

    number: int
    exchange: str
    producer: int
    consumer: int
    kind: str
    text: str


class PlanNames:
    """Looks names up; what the plan does not have gets its number as a name."""

    def __init__(self, plan: PlanManifest) -> None:
        self._plan = plan
        chains: dict[int, list[str]] = {}
        for operator_id, operator in plan.operators.items():
            chains.setdefault(_number(operator, "vertex"), []).append(self.operator(operator_id))
        self._vertices = {vertex: " + ".join(chain) for vertex, chain in chains.items()}
        self.edges = {_number(edge, "id"): self._edge(exchange, edge) for exchange, edge in plan.edges.items()}

    def operator(self, operator_id: str) -> str:
        """Its name, with the id by which its state is found."""
        name = str(self._plan.operators.get(operator_id, {}).get("name") or operator_id)
        return name if name == operator_id else f"{name} ({operator_id})"

    def vertex(self, number: int) -> str:
        """Its operators in order."""
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
