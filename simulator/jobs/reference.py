"""Reference output of a job, computed by one thread that processes the nodes one after the other.

It shares no code with the operators except the functions that make new keys and origins. The count that a row gets
depends on the interleaving. So rows are compared without their note, and the notes of a key as a multiset.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from simulator.jobs.operators import joined_origin, new_key, window_origin
from simulator.jobs.rows import MS
from simulator.jobs.sources import source_key
from simulator.jobs.topology import Node, leaves
from simulator.settings import Settings

Row = tuple[int, int, int]
"""(origin, key, time)"""
Note = tuple[int, int]
"""(key, note)"""


@dataclass
class Expected:
    """Expected output of one node. ``watermark_us``: its final watermark."""

    rows: Counter[Row] = field(default_factory=Counter)
    notes: Counter[Note] = field(default_factory=Counter)
    watermark_us: int = START_OF_TIME_US


def expected_output(
    settings: Settings, read: Mapping[int, int] | None = None, drained: bool = False
) -> dict[int, Expected]:
    """Return the final contents of the sink of each leaf.

    Args:
        read: number of rows read from each source; None: all.
        drained: event time has ended.
    """
    made: list[Expected] = []
    for vertex, node in enumerate(settings.nodes):
        if node.kind == "source":
            rows = node.splits * node.rows_per_split if read is None else read[vertex]
            made.append(_source(settings, vertex, node, rows, drained))
            if settings.clock:
                sources = [made[number] for number, one in enumerate(settings.nodes[: vertex + 1]) if not one.inlets]
                reached_us = max(one.watermark_us for one in sources)
                for one in sources:
                    one.watermark_us = reached_us
        else:
            made.append(_node(settings, vertex, node, made))
    return {vertex: made[vertex] for vertex in leaves(settings.nodes)}


def _source(settings: Settings, vertex: int, node: Node, rows: int, drained: bool) -> Expected:
    keys = [source_key(number, settings.keys, settings.skew) for number in range(rows)]
    origins = [vertex * 1_000 + number // node.rows_per_split for number in range(rows)]
    last = next((number for number in reversed(range(rows)) if node.shows_time(number)), None)
    reached_us = START_OF_TIME_US if last is None else last * MS
    return Expected(
        Counter(dict.fromkeys(zip(origins, keys, range(0, rows * MS, MS), strict=True), 1)),
        _at_zero(Counter(keys)),
        END_OF_TIME_US if drained else reached_us,
    )


def _node(settings: Settings, vertex: int, node: Node, made: list[Expected]) -> Expected:
    inputs = [made[inlet.producer] for inlet in node.inlets]
    copies = [settings.parallelism if inlet.kind == "broadcast" and node.kind != "join" else 1 for inlet in node.inlets]
    rows: Counter[Row] = Counter()
    notes: Counter[Note] = Counter()
    for one, times in zip(inputs, copies, strict=True):
        for _ in range(times):
            rows.update(one.rows)
            notes.update(one.notes)
    watermark_us = min(one.watermark_us for one in inputs)
    match node.kind:
        case "relay":
            return Expected(rows, notes, watermark_us)
        case "rekey":
            rows = _sum(((origin, new_key(time, settings.keys), time), n) for (origin, _, time), n in rows.items())
        case "count":
            per_key = _sum((key, n) for (_, key, _), n in rows.items())
            notes = Counter({(key, note): 1 for key, n in per_key.items() for note in range(1, n + 1)})
            return Expected(rows, notes, watermark_us)
        case "window":
            rows = _windows(settings, vertex, rows, watermark_us)
        case "sort":
            rows = Counter({row: n for row, n in rows.items() if row[2] < watermark_us})
        case "join":
            rows = _pairs(inputs[0].rows, inputs[1].rows)
    return Expected(rows, _at_zero(_sum((key, n) for (_, key, _), n in rows.items())), watermark_us)


def _windows(settings: Settings, vertex: int, rows: Counter[Row], watermark_us: int) -> Counter[Row]:
    length_us = settings.window_ms * MS
    counts = _sum(((key, time // length_us), n) for (_, key, time), n in rows.items())
    return Counter(
        {
            (window_origin(vertex, n), key, (window + 1) * length_us - 1): 1
            for (key, window), n in counts.items()
            if (window + 1) * length_us <= watermark_us
        }
    )


def _pairs(left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    by_place: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for (origin, key, time), n in right.items():
        by_place[key, time].append((origin, n))
    pairs: Counter[Row] = Counter()
    for (origin, key, time), n in left.items():
        for other, m in by_place.get((key, time), ()):
            pairs[joined_origin(origin, other), key, time] += n * m
    return pairs


Item = TypeVar("Item")


def _sum(items: Iterable[tuple[Item, int]]) -> Counter[Item]:
    total: dict[Item, int] = {}
    for item, count in items:
        total[item] = total.get(item, 0) + count
    return Counter(total)


def _at_zero(per_key: Counter[int]) -> Counter[Note]:
    """Return the notes of rows that no operator has counted."""
    return Counter({(key, 0): n for key, n in per_key.items()})
