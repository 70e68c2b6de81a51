"""Checks of a snapshot's metadata. The metadata may be forged, and later code trusts it.

Decoding checks the bounds of single numbers, which ``manifest`` declares.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

import msgspec

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot
from penstock.grammar import FreeText
from penstock.model.elements import Side
from penstock.model.key_groups import MAX_KEY_GROUPS
from penstock.model.manifest import (
    Index,
    InflightEntry,
    PlanManifest,
    SectionRef,
    SnapshotMetadata,
    StateEntry,
    SubtaskManifest,
)
from penstock.model.splits import Split
from penstock.snapshots.store.store import checked_path
from penstock.snapshots.writing.state_index import BASE, DELTA

_CHANNEL = re.compile(r"\d{1,9}:\d{1,9}")
_DATA = re.compile(r"data/[0-9]+-[0-9]+-[0-9]+(-state)?\.arrows")
_SIDES = {side.value for side in Side}
MAX_SUBTASKS = 1 << 20
"""Maximum number of subtasks of a snapshot: vertices times parallelism."""


class StoredEvolution(msgspec.Struct):
    """Stored rules for the evolution of an operator's state."""

    deleted: list[FreeText] = []
    essential: list[FreeText] = []
    passing: list[FreeText] = []
    fixed: dict[FreeText, FreeText] = {}
    renamed: dict[FreeText, dict[FreeText, FreeText]] = {}


class StoredOperator(msgspec.Struct):
    """Stored operator of a plan."""

    role: Literal["source", "operator", "sink"]
    name: FreeText
    schema: list[FreeText]
    states: dict[FreeText, list[FreeText]]
    vertex: Index
    keys: dict[FreeText, Index] = {}
    evolves: StoredEvolution | None = None
    parameters: dict[FreeText, FreeText] = {}
    arguments: list[FreeText] = []


class StoredEdge(msgspec.Struct):
    """Stored edge of a plan."""

    id: Index
    producer: Index
    consumer: Index
    kind: Literal["hash", "rebalance", "broadcast", "forward"]
    keys: list[FreeText]
    schema: list[FreeText]
    port: FreeText = ""


class CheckedPlan(NamedTuple):
    """Plan that was checked for consistency."""

    operators: Mapping[str, StoredOperator]
    edges: Mapping[str, StoredEdge]

    @property
    def vertices(self) -> set[int]:
        ends = {end for edge in self.edges.values() for end in (edge.producer, edge.consumer)}
        return ends | {operator.vertex for operator in self.operators.values()}


def require(holds: bool, complaint: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not holds:
        raise ValueError(complaint)


def checked_plan(stored: PlanManifest) -> CheckedPlan:
    """Return the decoded plan. Raises ValueError if it is not consistent."""
    operators = convert(stored.operators, dict[str, StoredOperator])
    edges = convert(stored.edges, dict[str, StoredEdge])
    ids = [edge.id for edge in edges.values()]
    require(len(set(ids)) == len(ids), "two exchanges have one number")
    for operator_id, operator in operators.items():
        for table, count in operator.keys.items():
            columns = len(operator.states.get(table, ()))
            require(count < columns, f"table {table!r:.50} of {operator_id!r:.50} has {count} columns of keys")
        whole = operator.evolves is None or set(operator.states) <= set(operator.keys)
        require(whole, f"{operator_id!r:.50} does not tell the keys of all its tables")
    return CheckedPlan(operators, edges)


def checked_metadata(metadata: SnapshotMetadata, what: str) -> SnapshotMetadata:
    """Return the metadata. Raises CorruptSnapshot for impossible values; the message names ``what``."""
    try:
        check_metadata(metadata)
    except (ValueError, RecursionError) as error:
        raise CorruptSnapshot(f"{what} says what cannot be: {error!s:.300}") from None
    return metadata


def check_metadata(metadata: SnapshotMetadata) -> CheckedPlan | None:
    """Check the metadata and return its plan, or None if it has none. Raises ValueError for impossible values."""
    _check_numbers(metadata)
    plan = None if metadata.plan is None else checked_plan(metadata.plan)
    _check_subtasks(metadata, None if plan is None else plan.vertices)
    edges = None if plan is None else {edge.id for edge in plan.edges.values()}
    sections: dict[SectionRef, None] = {}
    splits: list[Split] = []
    for subtask in (subtask for slot in metadata.slots for subtask in slot.subtasks):
        _check_subtask(metadata, subtask)
        splits += subtask.splits
        for state in subtask.states:
            _check_state(state, metadata.max_parallelism)
            sections[state.section] = None
        for entry in subtask.inflight:
            _check_inflight(entry, metadata, edges)
            sections[entry.section] = None
    for source in metadata.sources:
        sections |= dict.fromkeys(source.sections)
        splits += source.pending
    _check_sources(metadata, plan)
    for path in {section.path for section in sections}:
        require(_DATA.fullmatch(path) is not None, f"{path!r:.100} is no data file")
    for split in splits:
        kept = split.spec.get("path")
        if isinstance(kept, str) and kept.startswith("lane/"):
            checked_path(kept)
    return plan


def _check_numbers(metadata: SnapshotMetadata) -> None:
    """Raise ValueError for impossible ids and counts."""
    require(metadata.id == f"chk-{metadata.checkpoint}", f"{metadata.id!r:.50} is no id of a snapshot")
    require(0 < metadata.max_parallelism <= MAX_KEY_GROUPS, f"there are {metadata.max_parallelism} key groups")
    require(0 < metadata.parallelism <= metadata.max_parallelism, f"parallelism {metadata.parallelism}")
    require(bool(metadata.query_id), "it has no query id")
    _check_batches(metadata)


def _check_batches(metadata: SnapshotMetadata) -> None:
    """Raise ValueError unless the batch ids are consistent with each other and with the format version."""
    require((metadata.next_batch is None) == (metadata.format_version == 1), "batch ids of another format version")
    batches = sorted(metadata.batches.items())
    ids = [batch for _, batch in batches]
    require(ids == sorted(set(ids)), "batch ids do not rise with the epochs")
    require(not ids or ids[-1] < (metadata.next_batch or 0), "a batch id is not below the next one")
    require(not ids or batches[-1][0] <= metadata.checkpoint, "a batch id is of a later epoch")


def _check_subtasks(metadata: SnapshotMetadata, vertices: Collection[int] | None) -> None:
    """Raise ValueError unless every slot has every subtask once. ``vertices`` are the vertices of the plan."""
    slots = [slot.slot for slot in metadata.slots]
    require(
        sorted(slots) == list(range(metadata.parallelism)),
        f"it has {len(slots)} slots, but parallelism {metadata.parallelism}",
    )
    require(sum(len(slot.subtasks) for slot in metadata.slots) <= MAX_SUBTASKS, "too many subtasks")
    for slot in metadata.slots:
        found = [subtask.vertex for subtask in slot.subtasks]
        require(len(set(found)) == len(found), f"slot {slot.slot} has a subtask twice")
        require(vertices is None or set(vertices) == set(found), f"slot {slot.slot} has other subtasks than the plan")
        for subtask in slot.subtasks:
            require(subtask.index == slot.slot, f"subtask {subtask.index} is in slot {slot.slot}")


def _check_subtask(metadata: SnapshotMetadata, subtask: SubtaskManifest) -> None:
    require(not subtask.shares, "a subtask has shares of another parallelism")
    for channel in subtask.channel_watermarks:
        require(_CHANNEL.fullmatch(channel) is not None, f"{channel!r:.100} is no channel")
    epochs = [*subtask.pending_messages, *(kept.epoch for kept in subtask.inherited_messages)]
    require(all(0 < epoch <= metadata.checkpoint for epoch in epochs), "a message is of a later epoch")


def _check_state(entry: StateEntry, max_parallelism: int) -> None:
    require(entry.kind in (BASE, DELTA), f"state of an unknown kind: {entry.kind!r:.50}")
    require(not entry.without, "state is without columns of its section")
    nothing = (entry.key_group_first, entry.key_group_last) == (0, -1)
    within = entry.key_group_first <= entry.key_group_last < max_parallelism
    require(nothing or within, "state of key groups that there are not")


def _check_inflight(entry: InflightEntry, metadata: SnapshotMetadata, edges: Collection[int] | None) -> None:
    require(entry.side in _SIDES, f"side {entry.side!r:.50}")
    require(entry.consumer < metadata.parallelism, f"rows in flight for subtask {entry.consumer}")
    require(entry.producer < MAX_KEY_GROUPS, f"rows in flight of subtask {entry.producer}")
    within = entry.key_group_first <= entry.key_group_last < metadata.max_parallelism
    require(within, "rows of key groups that there are not")
    require(edges is None or entry.edge in edges, f"rows on exchange {entry.edge}, which no plan has")


def _check_sources(metadata: SnapshotMetadata, plan: CheckedPlan | None) -> None:
    ids = [source.operator_id for source in metadata.sources]
    require(len(set(ids)) == len(ids), "a source is there twice")
    for source in metadata.sources if plan is not None else ():
        operator = plan.operators.get(source.operator_id) if plan is not None else None
        require(operator is not None and operator.role == "source", f"{source.operator_id!r:.100} is no source")
        require(operator is not None and operator.vertex == source.vertex, "a source has another vertex")
