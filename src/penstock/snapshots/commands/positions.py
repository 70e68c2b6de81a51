"""Positions of sources and channels in a snapshot, and their progress from one snapshot to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata, SourceManifest
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.snapshots.commands.plain_values import known_minimum, plain_value
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.commands.snapshot_sizes import inflight_entries, stored_bytes, subtasks_of
from penstock.snapshots.format.inflight_counts import divided_bytes

MAX_SPLITS_LISTED = 20
"""Maximum number of splits that a comparison lists per source and kind of change."""


class SplitDetails(msgspec.Struct, frozen=True):
    """Split of a source. ``subtask`` is the subtask that reads it; None if the split is not assigned."""

    split_id: str
    spec: Plain
    position: Plain
    subtask: int | None = None


class SourceDetails(msgspec.Struct, frozen=True):
    """Position of a source.

    Attributes:
        state: state of the discovery, without its blobs.
        blob_bytes: size of the blobs of the discovery state.
        pending: splits that are not assigned to a reader yet.
        reading: assigned and unfinished splits, in reading order.
        rows_in: number of rows read since the query's first start.
        drained: the event time of this source has ended.
    """

    operator_id: str
    name: str
    kind: str
    state: Plain
    blob_bytes: int
    pending: list[SplitDetails]
    reading: list[SplitDetails]
    rows_in: int
    drained: bool


class ChannelDetails(msgspec.Struct, frozen=True):
    """Channel between two subtasks. ``watermark_us`` is the last watermark processed; None before the first one."""

    producer: int
    consumer: int
    rows: int
    bytes: int
    watermark_us: int | None


class EdgeDetails(msgspec.Struct, frozen=True):
    """Edge with its channels. ``watermark_us`` is the lowest watermark of the channels; None if a channel has none."""

    exchange: str
    producer: str
    consumer: str
    kind: str
    rows: int
    bytes: int
    watermark_us: int | None
    channels: list[ChannelDetails]


class SplitChange(msgspec.Struct, frozen=True):
    """Change of a split: ``found``, ``finished`` or ``moved``."""

    split_id: str
    change: str
    before: Plain
    after: Plain


class SourceChange(msgspec.Struct, frozen=True):
    """Change of a source. ``state_changed`` refers to its discovery; ``splits`` lists the first splits of each kind."""

    operator_id: str
    name: str
    state_changed: bool
    state_before: Plain
    state_after: Plain
    rows_in: int
    found: int
    finished: int
    moved: int
    splits: list[SplitChange]


class EdgeChange(msgspec.Struct, frozen=True):
    """Change of an exchange that at least one of the snapshots has. Missing values are 0 or None."""

    exchange: str
    text: str
    rows_before: int
    rows_after: int
    watermark_us_before: int | None
    watermark_us_after: int | None


def sources_of(metadata: SnapshotMetadata, plan: PlanManifest) -> list[SourceDetails]:
    """Return the positions of all sources of a snapshot."""
    return [
        SourceDetails(
            source.operator_id,
            PlanNames(plan).operator(source.operator_id),
            str(plan.operators.get(source.operator_id, {}).get("kind", "")),
            plain_value(source.state),
            stored_bytes(source.sections),
            [_split_details(split) for split in source.pending],
            [_split_details(split, index) for index, split in _reading(metadata, source)],
            _rows_in(metadata, source.vertex),
            source.drained,
        )
        for source in metadata.sources
    ]


def _sizes(entries_by_channel: Mapping[tuple[int, int], Sequence[InflightEntry]]) -> dict[tuple[int, int], int]:
    """Return the stored bytes of each channel of an edge."""
    found: Counter[tuple[int, int]] = Counter()
    channels = [channel for channel, entries in entries_by_channel.items() for _ in entries]
    parts = divided_bytes([entry for entries in entries_by_channel.values() for entry in entries])
    for channel, part in zip(channels, parts, strict=True):
        found[channel] += part
    return found


def edges_of(metadata: SnapshotMetadata, plan: PlanManifest) -> list[EdgeDetails]:
    """Return all edges that the plan has or that hold in-flight rows or watermarks, by number."""
    names = PlanNames(plan)
    entries: dict[int, dict[tuple[int, int], list[InflightEntry]]] = {}
    for entry in inflight_entries(metadata):
        entries.setdefault(entry.edge, {}).setdefault((entry.producer, entry.consumer), []).append(entry)
    watermarks = _watermarks(metadata)
    found = []
    for number in sorted({*names.edges, *entries, *watermarks}):
        name = names.edge(number)
        entries_by_channel, watermark_by_channel = entries.get(number, {}), watermarks.get(number, {})
        sizes = _sizes(entries_by_channel)
        pairs = {*entries_by_channel, *watermark_by_channel, *_channels(name.kind, metadata.parallelism)}
        channels = [
            ChannelDetails(
                producer,
                consumer,
                sum(entry.rows for entry in entries_by_channel.get((producer, consumer), [])),
                sizes.get((producer, consumer), 0),
                watermark_by_channel.get((producer, consumer)),
            )
            for producer, consumer in sorted(pairs)
        ]
        channel_watermarks = [channel.watermark_us for channel in channels]
        found.append(
            EdgeDetails(
                name.exchange,
                names.vertex(name.producer),
                names.vertex(name.consumer),
                name.kind,
                sum(channel.rows for channel in channels),
                sum(sizes.values()),
                None if None in channel_watermarks else known_minimum(channel_watermarks),
                channels,
            )
        )
    return found


def source_changes(before: SnapshotMetadata, after: SnapshotMetadata, plan: PlanManifest) -> list[SourceChange]:
    """Return the changes of the sources that both snapshots have."""
    old = {source.operator_id: source for source in before.sources}
    changes = []
    for source in after.sources:
        origin = old.get(source.operator_id)
        if origin is None:
            continue
        splits = _split_changes(_splits(before, origin), _splits(after, source))
        kinds = {kind: [c for c in splits if c.change == kind] for kind in ("found", "finished", "moved")}
        changes.append(
            SourceChange(
                source.operator_id,
                PlanNames(plan).operator(source.operator_id),
                (origin.state, origin.sections) != (source.state, source.sections),
                plain_value(origin.state),
                plain_value(source.state),
                _rows_in(after, source.vertex) - _rows_in(before, origin.vertex),
                len(kinds["found"]),
                len(kinds["finished"]),
                len(kinds["moved"]),
                [change for of_kind in kinds.values() for change in of_kind[:MAX_SPLITS_LISTED]],
            )
        )
    return changes


def edge_changes(
    before: tuple[SnapshotMetadata, PlanManifest], after: tuple[SnapshotMetadata, PlanManifest]
) -> list[EdgeChange]:
    """Return the changes of the exchanges. Exchanges are matched by id, because their numbers may differ."""
    old = {edge.exchange: edge for edge in edges_of(*before)}
    new = {edge.exchange: edge for edge in edges_of(*after)}
    changes = []
    for exchange in dict.fromkeys([*old, *new]):
        old_edge, new_edge = old.get(exchange), new.get(exchange)
        edge = new_edge or old_edge
        assert edge is not None
        changes.append(
            EdgeChange(
                exchange,
                f"{edge.producer} -> {edge.consumer}",
                old_edge.rows if old_edge else 0,
                new_edge.rows if new_edge else 0,
                old_edge.watermark_us if old_edge else None,
                new_edge.watermark_us if new_edge else None,
            )
        )
    return changes


def _channels(kind: str, parallelism: int) -> Iterable[tuple[int, int]]:
    if not kind:
        return []
    subtasks = range(parallelism)
    return [(i, j) for i in subtasks for j in ((i,) if kind == "forward" else subtasks)]


def _watermarks(metadata: SnapshotMetadata) -> dict[int, dict[tuple[int, int], int]]:
    found: dict[int, dict[tuple[int, int], int]] = {}
    for subtask in subtasks_of(metadata):
        for channel, watermark in subtask.channel_watermarks.items():
            edge, _, producer = channel.partition(":")
            if edge.isdigit() and producer.isdigit():
                found.setdefault(int(edge), {})[int(producer), subtask.index] = watermark
    return found


def _split_details(split: Split, subtask: int | None = None) -> SplitDetails:
    return SplitDetails(split.split_id, plain_value(split.spec), plain_value(split.position), subtask)


def _reading(metadata: SnapshotMetadata, source: SourceManifest) -> list[tuple[int, Split]]:
    return [
        (subtask.index, split)
        for subtask in subtasks_of(metadata)
        if subtask.vertex == source.vertex
        for split in subtask.splits
    ]


def _rows_in(metadata: SnapshotMetadata, vertex: int) -> int:
    return sum(subtask.rows_in for subtask in subtasks_of(metadata) if subtask.vertex == vertex)


def _splits(metadata: SnapshotMetadata, source: SourceManifest) -> dict[str, Split]:
    splits = [*source.pending, *(split for _, split in _reading(metadata, source))]
    return {split.split_id: split for split in splits}


def _split_changes(before: dict[str, Split], after: dict[str, Split]) -> list[SplitChange]:
    changes = []
    for split_id in dict.fromkeys([*before, *after]):
        old, new = before.get(split_id), after.get(split_id)
        if old is None:
            changes.append(SplitChange(split_id, "found", None, plain_value(new.position if new else None)))
        elif new is None:
            changes.append(SplitChange(split_id, "finished", plain_value(old.position), None))
        elif old.position != new.position:
            changes.append(SplitChange(split_id, "moved", plain_value(old.position), plain_value(new.position)))
    return changes
