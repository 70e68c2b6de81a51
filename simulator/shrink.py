"""Shrinker: makes a failing schedule's settings smaller while it still fails in the same way.

Delta debugging over the settings: fewer faults and snapshots, fewer nodes, edges and splits, shorter splits, less
parallelism, plainer options. A candidate is kept if some schedule of it fails by the same oracle: its own seed or one
of a few others, because a smaller job interleaves differently under the same seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from simulator.jobs.topology import Inlet, Node
from simulator.schedule import Task
from simulator.settings import Settings
from simulator.workers import Workers

SEEDS = 4
"""How many seeds a candidate is tried with."""

Runs = Callable[[list[Task]], Task | None]
"""The first of some tasks that fails by the oracle one looks for, or None."""

Reduction = Callable[[Settings], Iterator[tuple[str, Settings]]]
"""Smaller settings, each with what was done; the boldest first."""

PLAIN = (
    "skew",
    "inflight_target_ms",
    "max_inflight_bytes",
    "capture_memory",
    "flush_interval_ms",
    "min_pause_ms",
    "tolerable_failures",
    "trigger_on",
    "allow_older",
    "bounded",
    "until_available",
    "drain",
    "endless",
    "arrival_ms",
    "look_ms",
    "max_concurrent",
    "alignment",
    "alignment_timeout_ms",
    "timeout_ms",
    "retained",
    "checks",
    "pace_ms",
    "window_ms",
    "interval_ms",
    "keys",
    "memory_per_gate",
    "exclusive_window",
    "max_parallelism",
    "parallelisms",
    "first_parallelism",
    "clock",
    "edit",
)
"""Options in the order in which their defaults are tried."""


def shrink(failing: Task, runs: Runs, tell: Callable[[str], None]) -> Task:
    """Return the smallest task found that still fails.

    Args:
        failing: task that fails; the search starts from its settings.
        runs: runs candidates and returns one that fails in the same way.
        tell: called with the text of each step.
    """
    best = Task(failing.seed, failing.chosen_settings, mutant=failing.mutant)
    tried: list[Settings] = []
    improved = True
    while improved:
        improved = False
        for reduce in REDUCTIONS:
            while (found := _smaller(best, reduce, runs, tried)) is not None:
                what, best = found
                improved = True
                tell(f"{what}: {size_text(best.chosen_settings)}")
    return best


def _smaller(best: Task, reduce: Reduction, runs: Runs, tried: list[Settings]) -> tuple[str, Task] | None:
    """The first candidate of one kind that still fails, and what was done; what failed to fail is not tried again."""
    start = best.chosen_settings
    for what, settings in reduce(start):
        if settings == start or settings in tried:
            continue
        found = runs(_tasks(best, settings))
        if found is not None:
            return what, found
        tried.append(settings)
    return None


def size_text(settings: Settings) -> str:
    """Return the size of a schedule in words."""
    edges = sum(len(node.inlets) for node in settings.nodes)
    return (
        f"{len(settings.nodes)} nodes, {edges} edges, parallelism {settings.parallelism}, {settings.rows:,} rows,"
        f" {len(settings.faults)} faults, {len(settings.snapshots)} snapshots, {len(_odd(settings))} options"
    )


def size(settings: Settings) -> tuple[int, ...]:
    """Return the size of a schedule for comparisons; what a reader must understand first counts most."""
    edges = sum(len(node.inlets) for node in settings.nodes)
    moments = len(settings.faults) + len(settings.snapshots)
    return moments, len(settings.nodes), edges, settings.parallelism, settings.rows, len(_odd(settings))


def _tasks(best: Task, settings: Settings) -> list[Task]:
    seeds = [best.seed, *(seed for seed in range(SEEDS) if seed != best.seed)][:SEEDS]
    return [Task(seed, settings, mutant=best.mutant) for seed in seeds]


def _change(settings: Settings, **changes: Any) -> Settings:
    return msgspec.structs.replace(settings, **changes)


def _fewer(settings: Settings, attribute: str) -> Iterator[tuple[str, Settings]]:
    """Without the half, the quarter, ... one of a list."""
    items = getattr(settings, attribute)
    length = len(items)
    while length:
        for start in range(0, len(items), length):
            yield f"fewer {attribute}", _change(settings, **{attribute: items[:start] + items[start + length :]})
        length //= 2


def fewer_faults(settings: Settings) -> Iterator[tuple[str, Settings]]:
    return _fewer(settings, "faults")


def fewer_snapshots(settings: Settings) -> Iterator[tuple[str, Settings]]:
    return _fewer(settings, "snapshots")


def nothing_afterwards(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """No snapshot is restored cold: what fails before that is the shorter story."""
    yield "nothing restored cold", _change(settings, cold=False)


def fewer_nodes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Yield the settings without one node: its consumers read from its producer instead, or it was a leaf or an unused
    source."""
    for position in range(len(settings.nodes) - 1, -1, -1):
        nodes = without(settings.nodes, position)
        if nodes is not None:
            yield "one node less", _change(settings, nodes=nodes)


def without(nodes: tuple[Node, ...], position: int) -> tuple[Node, ...] | None:
    """The nodes without one; None if nothing that can run would be left."""
    removed = nodes[position]
    replacement = removed.inlets[0].producer if removed.inlets else None
    kept: list[Node] = []
    for number, node in enumerate(nodes):
        if number == position:
            continue
        inlets = []
        for inlet in node.inlets:
            producer = replacement if inlet.producer == position else inlet.producer
            if producer is not None:
                inlets.append(Inlet(producer - (producer > position), inlet.kind))
        kept.append(msgspec.structs.replace(node, inlets=tuple(dict.fromkeys(inlets))))
    return tuple(kept) if _legal(tuple(kept)) else None


def _legal(nodes: tuple[Node, ...]) -> bool:
    """Sources read nothing, everything else something, a join two."""
    needed = {"source": 0, "join": 2}
    return bool(nodes) and all(len(node.inlets) >= needed.get(node.kind, 1) for node in nodes)


def fewer_edges(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """A union without one of its inputs."""
    for position, node in enumerate(settings.nodes):
        for number in range(len(node.inlets) if len(node.inlets) > 1 else 0):
            inlets = node.inlets[:number] + node.inlets[number + 1 :]
            nodes = _with_node(settings, position, inlets=inlets)
            if _legal(nodes):
                yield "one edge less", _change(settings, nodes=nodes)


def plainer_nodes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Nodes that hold no rows; quick nodes; nodes that only pass rows on; hash edges."""
    for position, node in enumerate(settings.nodes):
        if node.holds:
            yield "rows held nowhere", _change(settings, nodes=_with_node(settings, position, holds=""))
        if node.blind:
            yield "all splits show time", _change(settings, nodes=_with_node(settings, position, blind=0))
        if node.partitions > 1:
            yield "one split", _change(settings, nodes=_with_node(settings, position, partitions=1))
        if node.cost_ms:
            yield "a quick node", _change(settings, nodes=_with_node(settings, position, cost_ms=0.0))
        if node.kind not in ("source", "relay", "join"):
            yield "a plainer node", _change(settings, nodes=_with_node(settings, position, kind="relay"))
        for number, inlet in enumerate(node.inlets):
            if inlet.kind != "hash":
                inlets = (*node.inlets[:number], Inlet(inlet.producer, "hash"), *node.inlets[number + 1 :])
                yield "a plainer edge", _change(settings, nodes=_with_node(settings, position, inlets=inlets))


def fewer_rows(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """Half as many splits, or half as long ones."""
    for attribute in ("splits", "rows_per_split"):
        nodes = tuple(msgspec.structs.replace(n, **{attribute: -(-getattr(n, attribute) // 2)}) for n in settings.nodes)
        yield "fewer rows", _change(settings, nodes=nodes)
    for position, node in enumerate(settings.nodes):
        for attribute in ("splits", "rows_per_split"):
            value = getattr(node, attribute)
            if value > 1:
                yield "fewer rows", _change(settings, nodes=_with_node(settings, position, **{attribute: value // 2}))


def less_parallel(settings: Settings) -> Iterator[tuple[str, Settings]]:
    for parallelism in range(1, settings.parallelism):
        nodes = [msgspec.structs.replace(n, partitions=min(n.partitions, parallelism)) for n in settings.nodes]
        cold = None if settings.cold_parallelism is None else parallelism
        yield "less parallel", _change(settings, parallelism=parallelism, nodes=tuple(nodes), cold_parallelism=cold)


def plainer_options(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One option at its default."""
    for name in _odd(settings):
        yield f"plain {name}", _change(settings, **{name: _default(name)})


def _odd(settings: Settings) -> list[str]:
    """Options that are not at their defaults."""
    return [name for name in PLAIN if getattr(settings, name) != _default(name)]


def _default(name: str) -> Any:
    return next(f.default for f in msgspec.structs.fields(Settings) if f.name == name)


def _with_node(settings: Settings, position: int, **changes: Any) -> tuple[Node, ...]:
    changed = msgspec.structs.replace(settings.nodes[position], **changes)
    return (*settings.nodes[:position], changed, *settings.nodes[position + 1 :])


REDUCTIONS: tuple[Reduction, ...] = (
    nothing_afterwards,
    fewer_faults,
    fewer_snapshots,
    fewer_nodes,
    fewer_edges,
    less_parallel,
    fewer_rows,
    plainer_options,
    plainer_nodes,
)


def shrink_by_oracle(failing: Task, oracle: str, workers: Workers, tell: Callable[[str], None]) -> Task:
    """Shrink a task that fails by ``oracle``; candidates are run by ``workers``."""

    def first_like_it(tasks: list[Task]) -> Task | None:
        found: list[Task] = []

        def until_found() -> Iterator[Task]:
            for task in tasks:
                if found:
                    return
                yield task

        for result in workers.run(until_found()):
            if result.failure is not None and result.failure.oracle == oracle:
                found.append(result.task)
        return min(found, key=tasks.index, default=None)

    return shrink(failing, first_like_it, tell)
