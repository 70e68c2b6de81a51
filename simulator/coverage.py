"""Coverage of many schedules: the counters that a long run must have reached.

A simulator that never meets a fault finds nothing. Every required line counts something that a long run must have met:
kinds of faults, steps of the machines' lifecycles, kinds of edges, several checkpoints in flight, conversions. A line
that is zero after ``REQUIRED_FROM`` schedules is an error of the simulator, and the run fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from simulator.jobs.topology import leaves
from simulator.lifecycle_steps import LIFECYCLES, all_steps
from simulator.settings import FAULT_KINDS, ROLLBACK, Settings

REQUIRED_FROM = 2_000
"""A run of so many schedules has to have seen everything; a shorter one may miss what is rare."""

MEDIANS = {"rows": 500, "completed": 3, "faults": 1}
"""What at least half of all schedules have to reach, by figure."""


@dataclass(frozen=True)
class Section:
    """Section of the coverage table. ``names``: counters that must not be zero."""

    title: str
    names: tuple[str, ...]


SECTIONS: tuple[Section, ...] = (
    Section("faults", tuple(f"fault: {kind}" for kind in (*FAULT_KINDS, ROLLBACK))),
    Section(
        "jobs (schedules with)",
        (
            *(f"edge: {kind}" for kind in ("hash", "rebalance", "broadcast", "forward")),
            *(f"node: {kind}" for kind in ("relay", "rekey", "count", "window", "sort", "join")),
            "rows held in front of a watermark",
            "rows held behind one",
            "splits without event time",
            "union",
            "diamond",
            "two sinks",
            *(f"sources: {count}" for count in range(1, 5)),
            *(f"parallelism: {count}" for count in range(1, 7)),
        ),
    ),
    Section(
        "options (schedules with)",
        (
            *(f"alignment: {kind}" for kind in ("auto", "aligned", "unaligned")),
            *(f"max concurrent: {count}" for count in (1, 2, 4, 8)),
            "trigger on: lastBarrier",
            "in-flight target",
            "in-flight bytes bounded",
            "capture memory bounded",
            "minimum pause",
            "tolerable failures bounded",
            "bounded sources",
            "ended when what is available is read",
            "ended by a drain",
            "splits that come late",
            "endless splits",
            "endless splits side by side",
            "sources by one clock",
            "user snapshots asked for",
            "window of one row",
        ),
    ),
    Section("steps of the machines", tuple(step for lifecycle in LIFECYCLES for step in all_steps(lifecycle))),
    Section(
        "checkpoints",
        (
            *(f"triggered {kind}" for kind in ("auto", "aligned", "unaligned")),
            *(f"completed {kind}" for kind in ("auto", "aligned", "unaligned")),
            *(f"in flight at a trigger: {count}" for count in range(1, 6)),
            "turned unaligned at an input",
            "turned unaligned at an output",
            "subtasks captured aligned",
            "subtasks captured unaligned",
            "captures of finished subtasks",
            "rows written in snapshots",
            "rows referred to in snapshots",
            "carried rows in snapshots",
            "tables written whole",
            "tables written as a delta",
            "tables given a new base in part",
            "tables only referred to",
            "chains of several deltas",
            "states captured in vain",
            "rows larger than their window",
            "captures that had to wait for the in-flight limit",
            *(f"declined: {kind}" for kind in ("capture memory", "store", "barriers")),
            "user snapshots",
            "user snapshots failed",
            "aborted: gave way",
            "failed by its checkpoints",
        ),
    ),
    Section(
        "restarts and ends",
        (
            "restarts from a snapshot",
            "restarts with in-flight rows",
            "restarts with several layers",
            "restarts from chains of deltas",
            "tables that were still in memory",
            "corrupt snapshots passed over",
            "drivers fenced",
            "commits made again",
            "collections",
            "readers told to rise",
            "subtasks finished",
            "queries ended",
            "drains",
            "drains refused",
            "queries drained",
            "drained locations refused",
            "in-flight drains",
            "in-flight drains declined",
            "queries drained of what is in flight",
            "sources read on",
            "restored cold",
            "restored cold: a drain to be carried through",
            "restored cold behind a run that was cut short",
            "restored cold with several layers",
            "restored cold at another parallelism",
            "edited jobs",
            "edited jobs that started with rows in flight on the edge",
            "edited jobs that were refused before a drain",
            "rescaled up",
            "rescaled down",
            "rescaled with in-flight rows",
            "carried entries that were narrowed",
            "snapshots compared",
        ),
    ),
)


class Coverage:
    """Counters of many schedules: their sums, and the values per schedule of those with a required median."""

    def __init__(self) -> None:
        self.schedules = 0
        self.counts: dict[str, int] = {}
        self._each: dict[str, list[int]] = {name: [] for name in MEDIANS}

    def add(self, settings: Settings, counters: Mapping[str, int]) -> None:
        """One more schedule that passed."""
        self.schedules += 1
        for name, value in counters.items():
            self.counts[name] = self.counts.get(name, 0) + value
        for name in traits(settings):
            self.counts[name] = self.counts.get(name, 0) + 1
        for name, values in self._each.items():
            values.append(counters.get(name, 0))

    def median(self, name: str) -> float:
        """Over all schedules; 0 for none."""
        return median(self._each[name] or [0])

    def problems_by_counter(self) -> list[str]:
        """Return the required counters that are zero."""
        return [name for section in SECTIONS for name in section.names if not self.counts.get(name)]

    def problems(self) -> list[str]:
        """Return what was never seen, or by less than half of the schedules."""
        missing = [f"{s.title}: {name}" for s in SECTIONS for name in s.names if not self.counts.get(name)]
        low = [
            f"the median schedule has {self.median(name):g} {name}, not {least}"
            for name, least in MEDIANS.items()
            if self.median(name) < least
        ]
        return missing + low

    def lines(self) -> list[str]:
        """The table, for a reader; zeros are marked."""
        required = {name for section in SECTIONS for name in section.names}
        others = Section("other figures", tuple(sorted(set(self.counts) - required)))
        lines = []
        for section in (*SECTIONS, others):
            lines.append(f"-- {section.title}")
            lines += [self._line(name) for name in section.names]
        lines.append(f"-- the median of {self.schedules:,} schedules")
        lines += [f"{self.median(name):>13,g} {name} (at least {least})" for name, least in MEDIANS.items()]
        return lines

    def _line(self, name: str) -> str:
        count = self.counts.get(name, 0)
        return f"{count:>13,} {name}{'' if count else '   <-- never seen'}"


def traits(settings: Settings) -> Iterator[str]:
    """Yield each trait of a schedule's settings once."""
    nodes = settings.nodes
    yield from dict.fromkeys(f"edge: {inlet.kind}" for node in nodes for inlet in node.inlets)
    yield from dict.fromkeys(f"node: {node.kind}" for node in nodes if node.kind != "source")
    yield f"sources: {sum(node.kind == 'source' for node in nodes)}"
    yield f"parallelism: {settings.parallelism}"
    yield f"alignment: {settings.alignment}"
    yield f"max concurrent: {settings.max_concurrent}"
    read = [inlet.producer for node in nodes for inlet in node.inlets]
    has = {
        "union": any(len(node.inlets) > 1 and node.kind != "join" for node in nodes),
        "rows held in front of a watermark": any(node.holds and not node.inlets for node in nodes),
        "rows held behind one": any(node.holds and node.inlets for node in nodes),
        "splits without event time": any(node.blind for node in nodes),
        "diamond": len(read) > len(set(read)),
        "two sinks": len(leaves(nodes)) > 1,
        "trigger on: lastBarrier": settings.trigger_on == "lastBarrier",
        "in-flight target": settings.inflight_target_ms is not None,
        "in-flight bytes bounded": settings.max_inflight_bytes is not None,
        "capture memory bounded": settings.capture_memory < 1 << 20,
        "minimum pause": settings.min_pause_ms > 0,
        "tolerable failures bounded": settings.tolerable_failures is not None,
        "bounded sources": settings.bounded,
        "ended when what is available is read": settings.until_available,
        "ended by a drain": settings.drain is not None,
        "splits that come late": settings.arrival_ms > 0 and not settings.endless,
        "endless splits": settings.endless,
        "endless splits side by side": any(node.partitions > 1 for node in nodes),
        "sources by one clock": bool(settings.clock) and sum(node.kind == "source" for node in nodes) > 1,
        "user snapshots asked for": bool(settings.snapshots),
        "window of one row": settings.exclusive_window < 100,
    }
    yield from (name for name, present in has.items() if present)
