"""Rescaling of a snapshot to another parallelism: redistributes its parts among subtasks. No file is read or written.

State, in-flight rows of keyed edges, and watermarks move to the new owners of their key groups. An entry with several
new owners is *narrowed* for each. The rest is divided: splits one by one, and in-flight rows of other edges in runs of
equal length. Order is preserved per key and producer, because a channel's entries keep their order and are processed
before new input. (See FLIP-76 and FLIP-27 for Flink.) If several former consumers shared a section, a subtask that
takes over from more than one of them reads it once.
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
"""Range of key groups, both ends inclusive."""


def rescale(metadata: SnapshotMetadata, graph: JobGraph) -> SnapshotMetadata:
    """Return the snapshot at the parallelism of ``graph``; unchanged if the parallelism is the same.

    ``graph`` must have the plan of the snapshot. Entries that were repartitioned (``relocate``) are redistributed even
    at the same parallelism.

    Raises:
        CorruptSnapshot: a subtask is missing.
    """
    redistributed = _redistributed_vertices(metadata, graph)
    if metadata.parallelism == graph.parallelism and not redistributed:
        return metadata
    return _Rescale(metadata, graph, redistributed).rescaled()


def _redistributed_vertices(metadata: SnapshotMetadata, graph: JobGraph) -> frozenset[int]:
    """Return the vertices whose in-flight input rows were partitioned by other keys before (``relocate``).

    The result includes the vertices that these rows reach without an exchange. Any of their subtasks may get rows of
    any other.
    """
    redistributed = {
        graph.edge(entry.edge).consumer
        for slot in metadata.slots
        for subtask in slot.subtasks
        for entry in subtask.inflight
        if entry.narrowed
        and not _is_within(entry, owned_range(entry.consumer, metadata.parallelism, graph.max_parallelism))
    }
    for vertex in graph.vertices:
        if vertex.id in redistributed:
            redistributed.update(edge.consumer for edge in graph.outputs(vertex.id) if edge.kind is EdgeKind.FORWARD)
    return frozenset(redistributed)


def _is_within(entry: InflightEntry, groups: Range) -> bool:
    return groups[0] <= entry.key_group_first and entry.key_group_last <= groups[1]


class _Rescale:
    """Rescaling from the parallelism of ``metadata`` to that of ``graph``.

    Args:
        redistributed: see ``_redistributed_vertices``.
    """

    def __init__(self, metadata: SnapshotMetadata, graph: JobGraph, redistributed: frozenset[int]) -> None:
        self._metadata = metadata
        self._graph = graph
        self._redistributed = redistributed
        self._before, self._after = metadata.parallelism, graph.parallelism
        self._ranges = [owned_range(index, self._before, graph.max_parallelism) for index in range(self._before)]
        self._manifests = {(m.vertex, m.index): m for slot in metadata.slots for m in slot.subtasks}
        self._inflight: dict[tuple[int, int], list[InflightEntry]] = {}

    def rescaled(self) -> SnapshotMetadata:
        self._distribute_inflight()
        subtasks = {vertex.id: self._subtasks(vertex) for vertex in self._graph.vertices}
        slots = [
            SlotManifest(index, [subtasks[vertex.id][index] for vertex in self._graph.vertices])
            for index in range(self._after)
        ]
        return msgspec.structs.replace(self._metadata, slots=slots, parallelism=self._after)

    # -- rows in flight ---------------------------------------------------------------------------------------------

    def _distribute_inflight(self) -> None:
        """Distribute entries in the order of the metadata, which is the restore order."""
        slots = sorted(self._metadata.slots, key=lambda s: s.slot)
        entries = [entry for slot in slots for subtask in slot.subtasks for entry in subtask.inflight]
        rows: Counter[int] = Counter()
        for entry in entries:
            rows[entry.edge] += entry.rows
        before: Counter[int] = Counter()
        parts: dict[tuple[int, int], list[tuple[int, InflightEntry]]] = {}
        for entry in entries:
            edge = self._graph.edge(entry.edge)
            cut = self._narrowed(entry, edge) if edge.keyed else self._divide(entry, before[edge.id], rows[edge.id])
            for one in cut:
                parts.setdefault((edge.consumer, one.consumer), []).append((entry.consumer, one))
            before[edge.id] += entry.rows
        self._inflight = {subtask: _each_section_once(take_over) for subtask, take_over in parts.items()}

    def _divide(self, entry: InflightEntry, before: int, total: int) -> Iterator[InflightEntry]:
        """Divide the ``total`` rows of an edge into one run per subtask. Yield the parts of this entry.

        Args:
            before: number of rows of the edge before this entry.
        """
        start, end = before, before + entry.rows
        while start < end:
            consumer = ((start + 1) * self._after - 1) // total
            stop = min(end, (consumer + 1) * total // self._after)
            first = entry.row_start + start - before
            yield msgspec.structs.replace(entry, consumer=consumer, row_start=first, rows=stop - start)
            start = stop

    def _narrowed(self, entry: InflightEntry, edge: Edge) -> Iterator[InflightEntry]:
        """Yield the entry for each new owner of its key groups.

        Broadcast rows were copied to every consumer. Of each copy, only the rows for that consumer's key groups remain.
        """
        mine = entry.key_group_first, entry.key_group_last
        for index in range(self._after):
            common = _intersection(mine, self._owned(index))
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
        splits = _distribute_splits([manifest.splits for manifest in old], self._after)
        inherited = self._inherited(old)
        keyed = vertex.id not in self._redistributed and any(edge.keyed for edge in self._graph.inputs(vertex.id))
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
        """Yield the entries of the former subtask's own key groups. Its state of other key groups was a copy."""
        common = _intersection(self._ranges[manifest.index], self._owned(index))
        for entry in manifest.states:
            narrowed = None if common is None else _intersection(common, (entry.key_group_first, entry.key_group_last))
            if narrowed is not None:
                yield msgspec.structs.replace(entry, key_group_first=narrowed[0], key_group_last=narrowed[1])

    def _shares(self, old: Sequence[SubtaskManifest], index: int, keyed: bool) -> Iterator[ScalarShare]:
        """Yield the scalars of former subtasks. Without keys, every new subtask gets those of all former subtasks."""
        for manifest in old:
            common = _intersection(self._ranges[manifest.index], self._owned(index)) if keyed else self._all_groups
            if common is not None:
                yield ScalarShare(manifest.index, *common, manifest.scalars)

    def _watermarks(self, vertex: Vertex, index: int, old: Sequence[SubtaskManifest]) -> dict[str, int]:
        """Return the watermark of each channel: the lowest watermark of the former channels that brought its rows.

        A channel is left out if one of the former channels has no watermark. Without keys, all former channels count: a
        new subtask may get the splits of any former one.
        """
        former_owners = [m for m in old if _intersection(self._ranges[m.index], self._owned(index)) is not None]
        watermarks: dict[str, int] = {}
        for edge in self._graph.inputs(vertex.id):
            watermarks_before = [
                manifest.channel_watermarks.get(f"{edge.id}:{producer}")
                for manifest in (former_owners if edge.keyed and vertex.id not in self._redistributed else old)
                for producer in edge.producers(manifest.index, self._before)
            ]
            known = [watermark for watermark in watermarks_before if watermark is not None]
            if len(known) == len(watermarks_before):
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


def _intersection(one: Range, other: Range) -> Range | None:
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def _each_section_once(parts: Sequence[tuple[int, InflightEntry]]) -> list[InflightEntry]:
    """Return the entries of one subtask. Entries for the same rows are joined.

    The former consumers of a channel have its sections in the same order, but may have read them up to different rows.
    The result keeps that order.

    Args:
        parts: entries in restore order, each with its former consumer.
    """
    shared: dict[tuple[SectionRef, int], list[InflightEntry]] = {}
    order: TopologicalSorter[tuple[SectionRef, int]] = TopologicalSorter()
    last: dict[tuple[int, int, int, int, str], tuple[SectionRef, int]] = {}
    for former, entry in parts:
        # Rows that were read are missing at the beginning, so only the end identifies the rows.
        rows = entry.section, entry.row_start + entry.rows
        channel = former, entry.edge, entry.producer, entry.layer, entry.side
        order.add(rows, *([last[channel]] if channel in last else []))
        last[channel] = rows
        shared.setdefault(rows, []).append(entry)
    as_they_are = [entry for _, entry in parts]
    if len(shared) == len(parts):
        return as_they_are
    try:
        return [joined for rows in order.static_order() for joined in _joined(shared[rows])]
    except CycleError:  # Penstock does not write such a snapshot, but it can be restored.
        return as_they_are


def _joined(entries: Iterable[InflightEntry]) -> Iterator[InflightEntry]:
    """Join entries of one section whose key groups are adjacent and which were read up to the same row."""
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


def _distribute_splits(readers: Sequence[Sequence[Split]], count: int) -> list[list[Split]]:
    """Distribute the splits of all readers round robin, in order. A split with a home goes to that reader."""
    dealt: list[list[Split]] = [[] for _ in range(count)]
    splits = [split for turn in zip_longest(*readers) for split in turn if split is not None]
    homeless = (split for split in splits if split.home is None)
    for number, split in enumerate(homeless):
        dealt[number % count].append(split)
    for split in splits:
        if split.home is not None:
            dealt[split.home % count].append(split)
    return dealt
