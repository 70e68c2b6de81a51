"""The shape of a simulated job: which nodes there are, how they are joined up, and how to draw one at random."""

from __future__ import annotations

from random import Random

import msgspec

from simulator.jobs.holding_functions import HOLDS, IN_ORDER

KEYED = ("count", "window", "sort", "join")
"""Kinds of nodes with state by key: their inputs are hashed (a join's first one may be broadcast instead)."""

MAX_NODES = 9
MAX_BROADCASTS = 1
"""Each multiplies the rows behind it by the parallelism."""
HOLDING = 0.15
"""Share of the possible nodes that have a function in front of them that holds rows back."""
BLIND = 0.3
"""Share of the sources that have splits without event time."""
FORWARDED = 0.4
"""So many of the edges that could as well go forward do."""


class Inlet(msgspec.Struct, frozen=True):
    """Edge into a node: position of its producer, and kind: ``hash``, ``rebalance``, ``broadcast`` or ``forward``."""

    producer: int
    kind: str


class Edit(msgspec.Struct, frozen=True):
    """An edited version of a job: one edge is of another ``kind``, or by another ``column`` if it is hashed.
    ``NEW_EDGE``: it has another id.

    ``inlet``: a node and the number of its input. None: the ``editable`` edge with the most rows in flight.
    """

    kind: str
    column: int = 0
    inlet: tuple[int, int] | None = None


NEW_EDGE = "new"


class Node(msgspec.Struct, frozen=True):
    """Vertex; its position among the nodes is its id. ``cost_ms`` is per row.

    ``kind``: ``source`` (``splits`` of ``rows_per_split``), ``relay`` (passes rows on; with several inputs: a union),
    ``rekey`` (another key), ``count`` (number of rows of the key so far), ``window`` (rows per key and window, when the
    watermark closes it), ``sort`` (rows in the order of event time, when the watermark has passed them) or ``join``
    (pairs of rows with equal key and event time). A node without consumers has a sink.
    ``blind``: with n > 0, the rows of each n-th split of a source have no event time for its watermark, like rows with
    null times or rows that a filter drops; the last split of all has event time. ``holds`` names user functions that
    hold rows back (``holding.HOLDS``), in front of the node's operator, or of the watermark of a source.
    ``partitions``: number of splits of an endless source; ``blind`` then counts these, and no split is an exception.
    """

    kind: str
    inlets: tuple[Inlet, ...] = ()
    cost_ms: float = 0.0
    splits: int = 0
    rows_per_split: int = 0
    holds: str = ""
    blind: int = 0
    partitions: int = 1

    def shows_time(self, number: int) -> bool:
        """Return True if the watermark of this source gets the event time of its row ``number``."""
        if self.partitions > 1:
            return not self.blind or number % self.partitions % self.blind != self.blind - 1
        split = number // self.rows_per_split
        return not self.blind or split % self.blind != self.blind - 1 or split == self.splits - 1


def leaves(nodes: tuple[Node, ...]) -> list[int]:
    """Return the nodes without consumers."""
    read = {inlet.producer for node in nodes for inlet in node.inlets}
    return [position for position in range(len(nodes)) if position not in read]


def editable(nodes: tuple[Node, ...]) -> list[tuple[int, int]]:
    """The edges that an ``Edit`` may change: any subtask of their consumers may get any row once."""
    return [
        (position, number)
        for position, node in enumerate(nodes)
        for number, inlet in enumerate(node.inlets)
        if node.kind not in KEYED and inlet.kind != "broadcast"
    ]


class _Drawing:
    """Nodes drawn so far. ``open``: nodes without consumers, with the keys of their rows."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.nodes: list[Node] = []
        self.open: list[int] = []
        self._keys: list[str] = []
        self._broadcasts = 0

    def source(self) -> None:
        splits = self._random.choice((2, 4, 6, 8, 12))
        rows = self._random.choice((20, 40, 60, 100))
        self._add(Node("source", (), 0.0, splits, rows), "plain")

    def chain(self) -> None:
        """Append a node to an open one."""
        self._behind(self._random.choice(self.open))

    def union(self) -> None:
        some = sorted(self._random.sample(self.open, self._random.choice((2, 2, 3)) if len(self.open) > 2 else 2))
        kind = self._random.choice(("relay", "relay", "count", "sort"))
        self._join_up(kind, some, "mixed" if len({self._keys[n] for n in some}) > 1 else self._keys[some[0]])

    def join(self) -> None:
        """Two nodes whose rows have the same keys; else one of them gets other keys first."""
        left, right = sorted(self._random.sample(self.open, 2))
        if self._keys[left] != self._keys[right] or self._keys[left] == "mixed":
            left, right = (n if self._keys[n] == "new" else self._rekey(n) for n in (left, right))
        self._join_up("join", [left, right], self._keys[left])

    def diamond(self) -> None:
        """Two ways from one node that come together again."""
        top = self._random.choice(self.open)
        self.open.remove(top)
        arms = [self._add(self._node(self._arm_kind(), [top]), self._keys[top]) for _ in range(2)]
        if self._random.random() < 0.5 and self._keys[top] != "mixed":
            self._join_up("join", arms, self._keys[top])
        else:
            self._join_up("relay", arms, self._keys[top])

    def _arm_kind(self) -> str:
        return self._random.choice(("relay", "count", "sort"))

    def _behind(self, position: int) -> None:
        kinds = ("relay", "count", "window", "sort", "rekey")
        kind = self._random.choices(kinds, (3, 4, 2, 2, 2))[0]
        keys = {"window": "mixed", "rekey": "new"}.get(kind, self._keys[position])
        self._join_up(kind, [position], keys)

    def _rekey(self, position: int) -> int:
        self.open.remove(position)
        return self._add(self._node("rekey", [position]), "new")

    def _join_up(self, kind: str, producers: list[int], keys: str) -> None:
        for producer in producers:
            self.open.remove(producer)
        self._add(self._node(kind, producers), keys)

    def _node(self, kind: str, producers: list[int]) -> Node:
        return Node(kind, tuple(Inlet(p, self._edge(kind, number)) for number, p in enumerate(producers)))

    def _edge(self, kind: str, number: int) -> str:
        kinds = ["hash", "hash", "rebalance", "broadcast"] if kind not in KEYED else ["hash"]
        if kind == "join" and number == 0:
            kinds = ["hash", "hash", "broadcast"]
        chosen = self._random.choice(kinds)
        if chosen == "broadcast":
            if self._broadcasts == MAX_BROADCASTS:
                return "hash"
            self._broadcasts += 1
        return chosen

    def _add(self, node: Node, keys: str) -> int:
        self.nodes.append(node)
        self._keys.append(keys)
        self.open.append(len(self.nodes) - 1)
        return self.open[-1]


def volume(nodes: tuple[Node, ...], parallelism: int) -> float:
    """Roughly how many rows all nodes together take in; a join's output by how often each row of its inputs comes."""
    rows: list[float] = []
    copies: list[float] = []
    total = 0.0
    for node in nodes:
        times = [parallelism if inlet.kind == "broadcast" else 1 for inlet in node.inlets]
        coming = sum(rows[inlet.producer] * n for inlet, n in zip(node.inlets, times, strict=True))
        total += coming
        if node.kind == "source":
            rows.append(float(node.splits * node.rows_per_split))
            copies.append(1.0)
        elif node.kind == "join":
            left, right = (inlet.producer for inlet in node.inlets)
            copies.append(copies[left] * copies[right])
            rows.append(min(rows[left] / copies[left], rows[right] / copies[right]) * copies[-1])
        else:
            copies.append(sum(copies[inlet.producer] * n for inlet, n in zip(node.inlets, times, strict=True)))
            rows.append(coming)
    return total + sum(rows[leaf] for leaf in leaves(nodes))


def with_volume(nodes: tuple[Node, ...], parallelism: int, rows: float) -> tuple[Node, ...]:
    """Return the nodes with enough rows in the sources for about this number of rows of input to all nodes together."""
    scale = rows / volume(nodes, parallelism)
    return tuple(
        msgspec.structs.replace(node, rows_per_split=max(2, int(node.rows_per_split * scale)))
        if node.kind == "source"
        else node
        for node in nodes
    )


def draw_nodes(random: Random) -> tuple[Node, ...]:
    """Draw 1 to 4 sources, chains, unions, joins and diamonds; usually one sink, sometimes two."""
    drawing = _Drawing(random)
    for _ in range(random.choices((1, 2, 3, 4), (50, 30, 12, 8))[0]):
        drawing.source()
    size = len(drawing.nodes) + random.choice((1, 2, 2, 3, 3, 4))
    sinks = random.choices((1, 2), (5, 1))[0]
    while len(drawing.open) > sinks or len(drawing.nodes) < size:
        together = len(drawing.open) > 1 and (len(drawing.nodes) >= size or random.random() < 0.5)
        if together:
            random.choice((drawing.union, drawing.join))()
        elif random.random() < 0.25 and len(drawing.nodes) + 3 <= MAX_NODES:
            drawing.diamond()
        else:
            drawing.chain()
        if any(drawing.nodes[position].kind == "source" for position in drawing.open) and len(drawing.open) <= sinks:
            drawing.chain()
    return with_blind_splits(with_holding(with_forward_edges(tuple(drawing.nodes))))


def with_forward_edges(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Some edges, those where any subtask may get the rows, go forward. What is drawn besides does not depend on it."""
    random = Random(repr(nodes))
    return tuple(
        msgspec.structs.replace(
            node,
            inlets=tuple(
                Inlet(inlet.producer, "forward")
                if node.kind not in KEYED and inlet.kind != "broadcast" and random.random() < FORWARDED
                else inlet
                for inlet in node.inlets
            ),
        )
        for node in nodes
    )


def with_holding(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Add functions that hold rows back to some nodes with one input. Other drawn settings do not depend on it."""
    random = Random(f"holding {nodes!r}")
    return tuple(
        msgspec.structs.replace(node, holds=random.choice(sorted(IN_ORDER if node.inlets else HOLDS)))
        if len(node.inlets) < 2 and random.random() < HOLDING
        else node
        for node in nodes
    )


def with_blind_splits(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Add splits without event time to some sources. Other drawn settings do not depend on it."""
    random = Random(f"blind {nodes!r}")
    return tuple(
        msgspec.structs.replace(node, blind=random.choice((2, 3)))
        if node.kind == "source" and random.random() < BLIND
        else node
        for node in nodes
    )
