"""A snapshot taken at one parallelism as a snapshot at another: who gets what. Nothing is read or written.

What belongs to key groups goes to their new owners: state, rows in flight on edges whose rows are told apart by key (an
entry that has several new owners is *narrowed* for each), and how far event time was. What does not is dealt out:
splits one by one, rows in flight on other edges in runs of equal length.
Order holds per key and producer, because a channel's entries keep their order wherever they go and are processed
before anything new. (FLIP-76 and FLIP-27 for the same question in Flink.) If several former consumers shared a section,
a subtask that takes over from more than one of them reads it once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import zip_longest

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, Vertex
from penstock.model.key_groups import owned_range
from penstock.model.manifest import (
    InflightEntry,
    InheritedMessage,
    ScalarShare,
    SectionRef,
    SlotManifest,
    SnapshotMetadata,
    StateEntry,
    SubtaskManifest,
)
from penstock.model.splits import Split

Range = tuple[int, int]
"""Key groups, both inclusive."""


def rescale(metadata: SnapshotMetadata, graph: JobGraph) -> SnapshotMetadata:
    """The snapshot at the parallelism of ``graph``, whose vertices and edges it is of; itself where that is its own.

    Raises:
        CorruptSnapshot: a subtask is missing in it.
    """
    anew = _dealt_anew(metadata, graph)
    if metadata.parallelism == graph.parallelism and not anew:
        return metadata
    return _Rescale(metadata, graph, anew).rescaled()


def _dealt_anew(metadata: SnapshotMetadata, graph: JobGraph) -> frozenset[int]:
    """Return the vertices that rows in flight come to by other keys than before (``relocate``), and those that they
    reach from there without an exchange: any of their subtasks may get rows from any other."""
    anew = {
        graph.edge(entry.edge).consumer
        for slot in metadata.slots
        for subtask in slot.subtasks
        for entry in subtask.inflight
        if entry.narrowed
        and not _is_within(entry, owned_range(entry.consumer, metadata.parallelism, graph.max_parallelism))
    }
    for vertex in graph.vertices:
        if vertex.id in anew:
            anew.update(edge.consumer for edge in graph.outputs(vertex.id) if edge.kind is EdgeKind.FORWARD)
    return frozenset(anew)


def _is_within(entry: InflightEntry, groups: Range) -> bool:
    return groups[0] <= entry.key_group_first and entry.key_group_last <= groups[1]


class _Rescale:
    """Between the parallelism of ``metadata`` and that of ``graph``. ``anew``: see ``_dealt_anew``."""

    def __init__(self, metadata: SnapshotMetadata, graph: JobGraph, anew: frozenset[int]) -> None:
        self._metadata = metadata
        self._graph = graph
        self._anew = anew
        self._before, self._after = metadata.parallelism, graph.parallelism
        self._ranges = [owned_range(index, self._before, graph.max_parallelism) for index in range(self._before)]
        self._manifests = {(m.vertex, m.index): m for slot in metadata.slots for m in slot.subtasks}
        self._inflight: dict[tuple[int, int], list[InflightEntry]] = {}

    def rescaled(self) -> SnapshotMetadata:
        self._spread_inflight()
        subtasks = {vertex.id: self._subtasks(vertex) for vertex in self._graph.vertices}
        slots = [
            SlotManifest(index, [subtasks[vertex.id][index] for vertex in self._graph.vertices])
            for index in range(self._after)
        ]
        return msgspec.structs.replace(self._metadata, slots=slots, parallelism=self._after)

    # -- rows in flight ---------------------------------------------------------------------------------------------

    def _spread_inflight(self) -> None:
        """In the order of the metadata, which is the order of restoring."""
        slots = sorted(self._metadata.slots, key=lambda s: s.slot)
        entries = [entry for slot in slots for subtask in slot.subtasks for entry in subtask.inflight]
        rows: Counter[int] = Counter()
        for entry in entries:
            rows[entry.edge] += entry.rows
        before: Counter[int] = Counter()
        parts: dict[tuple[int, int], list[tuple[int, InflightEntry]]] = {}
        for entry in entries:
            edge = self._graph.edge(entry.edge)
            cut = self._narrowed(entry, edge) if edge.keyed else self._cut(entry, before[edge.id], rows[edge.id])
            for one in cut:
                parts.setdefault((edge.consumer, one.consumer), []).append((entry.consumer, one))
            before[edge.id] += entry.rows
        self._inflight = {subtask: _each_section_once(take_over) for subtask, take_over in parts.items()}

    def _cut(self, entry: InflightEntry, before: int, total: int) -> Iterator[InflightEntry]:
        """Cut all ``total`` rows of an edge into one run per subtask. ``before``: number of rows in front of this
        entry."""
        start, end = before, before + entry.rows
        while start < end:
            consumer = ((start + 1) * self._after - 1) // total
            stop = min(end, (consumer + 1) * total // self._after)
            first = entry.row_start + start - before
            yield msgspec.structs.replace(entry, consumer=consumer, row_start=first, rows=stop - start)
            start = stop

    def _narrowed(self, entry: InflightEntry, edge: Edge) -> Iterator[InflightEntry]:
        """Broadcast rows lay with everybody: of each copy only that remains which mattered to the keys it lay with."""
        mine = entry.key_group_first, entry.key_group_last
        for index in range(self._after):
            common = _common(mine, self._owned(index))
            if common is not None:
                yield msgspec.structs.replace(
                    entry,
                    consumer=index,
                    key_group_first=common[0],
                    key_group_last=common[1],
                    narrowed=entry.narrowed or common != mine or edge.kind is EdgeKind.BROADCAST,
                )

    # -- subtasks -----------------------------------------------------------------------------------------------------

    def _subtasks(self, vertex: Vertex) -> list[SubtaskManifest]:
        old = [self._manifest(vertex.id, index) for index in range(self._before)]
        splits = _dealt([manifest.splits for manifest in old], self._after)
        inherited = self._inherited(old)
        keyed = vertex.id not in self._anew and any(edge.keyed for edge in self._graph.inputs(vertex.id))
        return [
            SubtaskManifest(
                vertex.id,
                index,
                states=[entry for manifest in old for entry in self._states(manifest, index)],
                inflight=self._inflight.get((vertex.id, index), []),
                splits=splits[index],
                channel_watermarks=self._watermarks(vertex, index, old),
                pending_messages=old[index].pending_messages if index < self._before else {},
                rows_in=sum(m.rows_in for m in old if m.index * self._after // self._before == index),
                inherited_messages=inherited[index],
                shares=list(self._shares(old, index, keyed)),
            )
            for index in range(self._after)
        ]

    def _manifest(self, vertex: int, index: int) -> SubtaskManifest:
        manifest = self._manifests.get((vertex, index))
        if manifest is None:
            raise CorruptSnapshot(f"{self._metadata.id} says nothing of subtask {index} of vertex {vertex}")
        return manifest

    def _states(self, manifest: SubtaskManifest, index: int) -> Iterator[StateEntry]:
        """What it had of its own key groups: what it may have held of others was a copy."""
        common = _common(self._ranges[manifest.index], self._owned(index))
        for entry in manifest.states:
            narrowed = None if common is None else _common(common, (entry.key_group_first, entry.key_group_last))
            if narrowed is not None:
                yield msgspec.structs.replace(entry, key_group_first=narrowed[0], key_group_last=narrowed[1])

    def _shares(self, old: Sequence[SubtaskManifest], index: int, keyed: bool) -> Iterator[ScalarShare]:
        """Without keys there is no telling whose successor is whose: everybody hears of all."""
        for manifest in old:
            common = _common(self._ranges[manifest.index], self._owned(index)) if keyed else self._all_groups
            if common is not None:
                yield ScalarShare(manifest.index, *common, manifest.scalars)

    def _watermarks(self, vertex: Vertex, index: int, old: Sequence[SubtaskManifest]) -> dict[str, int]:
        """A channel stands where the least of those stood that brought its rows before; nowhere, if one of them did.
        Without keys these are all: a new subtask may get any split, whoever read it before."""
        forebears = [m for m in old if _common(self._ranges[m.index], self._owned(index)) is not None]
        watermarks: dict[str, int] = {}
        for edge in self._graph.inputs(vertex.id):
            stood = [
                manifest.channel_watermarks.get(f"{edge.id}:{producer}")
                for manifest in (forebears if edge.keyed and vertex.id not in self._anew else old)
                for producer in edge.producers(manifest.index, self._before)
            ]
            known = [watermark for watermark in stood if watermark is not None]
            if len(known) == len(stood):
                watermarks |= {f"{edge.id}:{p}": min(known) for p in edge.producers(index, self._after)}
        return watermarks

    def _inherited(self, old: Sequence[SubtaskManifest]) -> list[list[InheritedMessage]]:
        inherited: list[list[InheritedMessage]] = [[] for _ in range(self._after)]
        for manifest in old:
            heir = inherited[manifest.index % self._after]
            heir += manifest.inherited_messages
            if manifest.index >= self._after:
                messages = sorted(manifest.pending_messages.items())
                heir += [InheritedMessage(epoch, manifest.index, message) for epoch, message in messages]
        return inherited

    def _owned(self, index: int) -> Range:
        return owned_range(index, self._after, self._graph.max_parallelism)

    @property
    def _all_groups(self) -> Range:
        return 0, self._graph.max_parallelism - 1


def _common(one: Range, other: Range) -> Range | None:
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def _each_section_once(parts: Sequence[tuple[int, InflightEntry]]) -> list[InflightEntry]:
    """Return the entries of one subtask, those of its former consumers joined that are of the same rows.

    The former consumers of a channel have its sections in the same order, but may have read them to different ends. The
    subtask keeps that order.

    Args:
        parts: in the order of restoring, each with its former consumer.
    """
    shared: dict[tuple[SectionRef, int], list[InflightEntry]] = {}
    order: TopologicalSorter[tuple[SectionRef, int]] = TopologicalSorter()
    last: dict[tuple[int, int, int, int, str], tuple[SectionRef, int]] = {}
    for former, entry in parts:
        rows = entry.section, entry.row_start + entry.rows  # those that were read are missing at the beginning
        channel = former, entry.edge, entry.producer, entry.layer, entry.side
        order.add(rows, *([last[channel]] if channel in last else []))
        last[channel] = rows
        shared.setdefault(rows, []).append(entry)
    as_they_are = [entry for _, entry in parts]
    if len(shared) == len(parts):
        return as_they_are
    try:
        return [joined for rows in order.static_order() for joined in _joined(shared[rows])]
    except CycleError:  # Penstock writes no such snapshot; it can be restored all the same
        return as_they_are


def _joined(entries: Iterable[InflightEntry]) -> Iterator[InflightEntry]:
    """Join entries of one section whose key groups follow each other and which were read equally far."""
    before: InflightEntry | None = None
    for entry in sorted(entries, key=lambda e: e.key_group_first):
        if before is None:
            before = entry
        elif (entry.row_start, entry.key_group_first) == (before.row_start, before.key_group_last + 1):
            before = msgspec.structs.replace(before, key_group_last=entry.key_group_last)
        else:
            yield before
            before = entry
    if before is not None:
        yield before


def _dealt(readers: Sequence[Sequence[Split]], count: int) -> list[list[Split]]:
    """The splits of all readers, the first ones first, dealt out to ``count`` readers; those with a home go there."""
    dealt: list[list[Split]] = [[] for _ in range(count)]
    splits = [split for turn in zip_longest(*readers) for split in turn if split is not None]
    homeless = (split for split in splits if split.home is None)
    for number, split in enumerate(homeless):
        dealt[number % count].append(split)
    for split in splits:
        if split.home is not None:
            dealt[split.home % count].append(split)
    return dealt
