"""Where sources and channels of a snapshot stand, and how far they got from one snapshot to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata, SourceManifest
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.snapshots.commands.measures import inflight_entries, stored_bytes, subtasks_of
from penstock.snapshots.commands.plain_values import minimum, plain
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.format.inflight_counts import divided_bytes

SPLITS_LISTED = 20
"""Splits of a source that a comparison names, of each kind."""


class ShownSplit(msgspec.Struct, frozen=True):
    """``subtask``: whose reader has it; None: nobody's yet."""

    split_id: str
    spec: Plain
    position: Plain
    subtask: int | None = None


class ShownSource(msgspec.Struct, frozen=True):
    """Where a source stands.

    Attributes:
        state: what discovery remembers, without its blobs, of which there are ``blob_bytes``.
        pending: found, and handed out to nobody yet.
        reading: handed out and not finished, in reading order.
        rows_in: rows read in the life of the query.
        drained: event time has ended here.
    """

    operator_id: str
    name: str
    kind: str
    state: Plain
    blob_bytes: int
    pending: list[ShownSplit]
    reading: list[ShownSplit]
    rows_in: int
    drained: bool


class ShownChannel(msgspec.Struct, frozen=True):
    """From subtask ``producer`` to subtask ``consumer``. ``watermark_us``: the last one that was processed; None: none
    was yet."""

    producer: int
    consumer: int
    rows: int
    bytes: int
    watermark_us: int | None


class ShownEdge(msgspec.Struct, frozen=True):
    """``watermark_us``: the least of the channels'; None: some channel has none, so that event time stands still."""

    exchange: str
    producer: str
    consumer: str
    kind: str
    rows: int
    bytes: int
    watermark_us: int | None
    channels: list[ShownChannel]


class SplitChange(msgspec.Struct, frozen=True):
    """``change``: ``found``, ``finished`` or ``moved``."""

    split_id: str
    change: str
    before: Plain
    after: Plain


class SourceChange(msgspec.Struct, frozen=True):
    """``state_changed``: discovery has found something or let go of something. ``splits``: the first ones of
    each kind."""

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
    """An exchange that either snapshot has; numbers of the other are 0 and None."""

    exchange: str
    text: str
    rows_before: int
    rows_after: int
    watermark_us_before: int | None
    watermark_us_after: int | None


def sources_of(metadata: SnapshotMetadata, plan: PlanManifest) -> list[ShownSource]:
    """All sources, as the snapshot has them."""
    return [
        ShownSource(
            source.operator_id,
            PlanNames(plan).operator(source.operator_id),
            str(plan.operators.get(source.operator_id, {}).get("kind", "")),
            plain(source.state),
            stored_bytes(source.sections),
            [_shown(split) for split in source.pending],
            [_shown(split, index) for index, split in _reading(metadata, source)],
            _rows_in(metadata, source.vertex),
            source.drained,
        )
        for source in metadata.sources
    ]


def _sizes(held: Mapping[tuple[int, int], Sequence[InflightEntry]]) -> dict[tuple[int, int], int]:
    """Return the stored bytes of each channel of an edge."""
    found: Counter[tuple[int, int]] = Counter()
    channels = [channel for channel, entries in held.items() for _ in entries]
    parts = divided_bytes([entry for entries in held.values() for entry in entries])
    for channel, part in zip(channels, parts, strict=True):
        found[channel] += part
    return found


def edges_of(metadata: SnapshotMetadata, plan: PlanManifest) -> list[ShownEdge]:
    """All edges that the plan has, or rows in flight are on, by number."""
    names = PlanNames(plan)
    entries: dict[int, dict[tuple[int, int], list[InflightEntry]]] = {}
    for entry in inflight_entries(metadata):
        entries.setdefault(entry.edge, {}).setdefault((entry.producer, entry.consumer), []).append(entry)
    watermarks = _watermarks(metadata)
    found = []
    for number in sorted({*names.edges, *entries, *watermarks}):
        name = names.edge(number)
        held, known = entries.get(number, {}), watermarks.get(number, {})
        sizes = _sizes(held)
        pairs = {*held, *known, *_channels(name.kind, metadata.parallelism)}
        channels = [
            ShownChannel(
                producer,
                consumer,
                sum(entry.rows for entry in held.get((producer, consumer), [])),
                sizes.get((producer, consumer), 0),
                known.get((producer, consumer)),
            )
            for producer, consumer in sorted(pairs)
        ]
        stood = [channel.watermark_us for channel in channels]
        found.append(
            ShownEdge(
                name.exchange,
                names.vertex(name.producer),
                names.vertex(name.consumer),
                name.kind,
                sum(channel.rows for channel in channels),
                sum(sizes.values()),
                None if None in stood else minimum(stood),
                channels,
            )
        )
    return found


def source_changes(before: SnapshotMetadata, after: SnapshotMetadata, plan: PlanManifest) -> list[SourceChange]:
    """Of the sources that both have."""
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
                plain(origin.state),
                plain(source.state),
                _rows_in(after, source.vertex) - _rows_in(before, origin.vertex),
                len(kinds["found"]),
                len(kinds["finished"]),
                len(kinds["moved"]),
                [change for some in kinds.values() for change in some[:SPLITS_LISTED]],
            )
        )
    return changes


def edge_changes(
    before: tuple[SnapshotMetadata, PlanManifest], after: tuple[SnapshotMetadata, PlanManifest]
) -> list[EdgeChange]:
    """Exchanges are told apart by their ids: their numbers may differ."""
    old = {edge.exchange: edge for edge in edges_of(*before)}
    new = {edge.exchange: edge for edge in edges_of(*after)}
    changes = []
    for exchange in dict.fromkeys([*old, *new]):
        one, other = old.get(exchange), new.get(exchange)
        named = other or one
        assert named is not None
        changes.append(
            EdgeChange(
                exchange,
                f"{named.producer} -> {named.consumer}",
                one.rows if one else 0,
                other.rows if other else 0,
                one.watermark_us if one else None,
                other.watermark_us if other else None,
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


def _shown(split: Split, subtask: int | None = None) -> ShownSplit:
    return ShownSplit(split.split_id, plain(split.spec), plain(split.position), subtask)


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
        one, other = before.get(split_id), after.get(split_id)
        if one is None:
            changes.append(SplitChange(split_id, "found", None, plain(other.position if other else None)))
        elif other is None:
            changes.append(SplitChange(split_id, "finished", plain(one.position), None))
        elif one.position != other.position:
            changes.append(SplitChange(split_id, "moved", plain(one.position), plain(other.position)))
    return changes
