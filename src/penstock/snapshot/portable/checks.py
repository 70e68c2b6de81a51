"""Whether what a manifest says can be: it may come from anywhere, and all that follows takes it for granted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from penstock.errors import CorruptSnapshot, LocationError
from penstock.graph.keygroups import MAX_KEY_GROUPS
from penstock.protocol.elements import Side
from penstock.snapshot.bringing import kept_files
from penstock.snapshot.catalog import snapshot_id
from penstock.snapshot.location import KEPT_FOLDER
from penstock.snapshot.model import FORMAT_VERSION, SnapshotMetadata, SubtaskManifest
from penstock.snapshot.portable.layout import MANIFEST, PLACE, Manifest, Stream, Table, column_names
from penstock.snapshot.store import checked_path
from penstock.state.capture import KEY_GROUP_COLUMN

_LARGEST = 1 << 53
"""Of numbers that count something for ever: what every reader of JSON can hold."""
_CHANNEL = re.compile(r"\d{1,9}:\d{1,9}")
_NUMBER = re.compile(r"-?\d{1,18}")


class _Operator(msgspec.Struct):
    role: Literal["source", "operator", "sink"]
    name: str
    schema: list[str]
    states: dict[str, list[str]]
    vertex: int


class _Edge(msgspec.Struct):
    id: int
    producer: int
    consumer: int
    kind: Literal["hash", "rebalance", "broadcast", "forward"]
    keys: list[str]
    schema: list[str]
    port: str = ""


class _Plan(NamedTuple):
    operators: Mapping[str, _Operator]
    edges: Mapping[str, _Edge]

    @property
    def vertices(self) -> set[int]:
        ends = {end for edge in self.edges.values() for end in (edge.producer, edge.consumer)}
        return ends | {operator.vertex for operator in self.operators.values()}


def checked_manifest(manifest: Manifest, what: str) -> None:
    """Raise CorruptSnapshot for what contradicts itself or the format; LocationError for a snapshot that nobody may
    start from again."""
    try:
        _check(manifest)
    except (ValueError, msgspec.ValidationError) as error:
        raise CorruptSnapshot(f"{what}/{MANIFEST} says what cannot be: {error!s:.300}") from None
    for operator_id, operator in ({} if manifest.metadata.plan is None else manifest.metadata.plan.operators).items():
        if operator.get("takes_away"):
            raise LocationError(
                f"{what}: {operator_id} ({operator['name']}) takes its input away once the query has read it "
                "(cleanSource), so that a query which goes on from this snapshot would miss rows; start that query "
                "without it, take a snapshot, and export this"
            )


def _check(manifest: Manifest) -> None:
    metadata = manifest.metadata
    plan = _checked_plan(metadata)
    _check_numbers(metadata)
    _check_subtasks(metadata, plan)
    _check_sources(manifest, plan)
    _check_tables(manifest, plan)
    seen = [(stream.exchange, stream.consumer) for stream in manifest.streams]
    _demand(len(set(seen)) == len(seen), "an exchange has two streams to one consumer")
    for stream in manifest.streams:
        _demand(stream.exchange in plan.edges, f"exchange {stream.exchange!r} is not in the plan")
        _demand(0 <= stream.consumer < metadata.parallelism, f"exchange {stream.exchange!r} has another consumer")
    paths = [ref.path for ref in manifest.files()]
    for path in paths:
        checked_path(path)
    _demand(len(set(paths)) == len(paths) and MANIFEST not in paths, "two parts are one file")
    lane = {ref.path for ref in manifest.lane}
    _demand(all(path.startswith(f"{KEPT_FOLDER}/") for path in lane), f"a file is not below {KEPT_FOLDER}/")
    _demand(kept_files(metadata) <= lane, "a split names a file that is not there")


def _checked_plan(metadata: SnapshotMetadata) -> _Plan:
    if metadata.plan is None:
        raise ValueError("it has no plan")
    operators = msgspec.convert(metadata.plan.operators, dict[str, _Operator])
    edges = msgspec.convert(metadata.plan.edges, dict[str, _Edge])
    ids = [edge.id for edge in edges.values()]
    _demand(len(set(ids)) == len(ids), "two exchanges have one number")
    return _Plan(operators, edges)


def _check_numbers(metadata: SnapshotMetadata) -> None:
    _demand(metadata.format_version == FORMAT_VERSION, f"its metadata is of version {metadata.format_version}")
    _demand(0 < metadata.generation < _LARGEST, f"generation {metadata.generation}")
    _demand(0 < metadata.checkpoint < _LARGEST, f"checkpoint {metadata.checkpoint}")
    _demand(metadata.id == snapshot_id(metadata.checkpoint), f"{metadata.id!r} is no id of a snapshot")
    _demand(bool(metadata.query_id), "it has no query id")
    _demand(0 < metadata.max_parallelism <= MAX_KEY_GROUPS, f"maxParallelism {metadata.max_parallelism}")
    _demand(0 < metadata.parallelism <= metadata.max_parallelism, f"parallelism {metadata.parallelism}")


def _check_subtasks(metadata: SnapshotMetadata, plan: _Plan) -> None:
    slots = [slot.slot for slot in metadata.slots]
    _demand(sorted(slots) == list(range(metadata.parallelism)), f"its slots are {slots!r:.100}")
    for slot in metadata.slots:
        vertices = [subtask.vertex for subtask in slot.subtasks]
        _demand(len(set(vertices)) == len(vertices), f"slot {slot.slot} has a subtask twice")
        _demand(plan.vertices <= set(vertices), f"slot {slot.slot} lacks a subtask")
        for subtask in slot.subtasks:
            _demand(subtask.index == slot.slot, f"subtask {subtask.index} is in slot {slot.slot}")
            _check_subtask(metadata, subtask)


def _check_subtask(metadata: SnapshotMetadata, subtask: SubtaskManifest) -> None:
    _demand(not (subtask.states or subtask.inflight or subtask.shares), "a subtask has references to data")
    _demand(subtask.rows_in >= 0, "a subtask has read less than nothing")
    for channel in subtask.channel_watermarks:
        _demand(_CHANNEL.fullmatch(channel) is not None, f"{channel!r:.100} is no channel")
    epochs = [*subtask.pending_messages, *(kept.epoch for kept in subtask.inherited_messages)]
    _demand(all(0 < epoch <= metadata.checkpoint for epoch in epochs), "a message is of a later epoch")


def _check_sources(manifest: Manifest, plan: _Plan) -> None:
    sources = {source.operator_id: source for source in manifest.metadata.sources}
    _demand(len(sources) == len(manifest.metadata.sources), "a source is there twice")
    for operator_id, source in sources.items():
        operator = plan.operators.get(operator_id)
        _demand(operator is not None and operator.role == "source", f"{operator_id!r} is no source of the plan")
        _demand(operator is not None and operator.vertex == source.vertex, f"{operator_id!r} has another vertex")
        _demand(not source.sections, "a source has references to data")
    with_blobs = [blobs.operator_id for blobs in manifest.blobs]
    _demand(set(with_blobs) <= set(sources), "blobs of no source")
    _demand(len(set(with_blobs)) == len(with_blobs), "a source has its blobs twice")


def _check_tables(manifest: Manifest, plan: _Plan) -> None:
    seen = [(table.operator_id, table.table) for table in manifest.tables]
    _demand(len(set(seen)) == len(seen), "a table is there twice")
    for table in manifest.tables:
        operator = plan.operators.get(table.operator_id)
        states = {} if operator is None or operator.role != "operator" else operator.states
        _demand(table.table in states, f"table {table.table!r} of {table.operator_id!r} is not in the plan")
        _check_columns(table, states[table.table])
        subtasks = [part.subtask for part in table.parts]
        _demand(len(set(subtasks)) == len(subtasks), f"a subtask has table {table.table!r} twice")
        _demand(all(0 <= one < manifest.metadata.parallelism for one in subtasks), "a table of no subtask")


def _check_columns(table: Table, declared: Iterable[str]) -> None:
    described = [f"{column.name} {column.type}" for column in table.columns]
    _demand(described == list(declared), f"table {table.table!r} has other columns than in the plan")
    _demand(described[:1] == [f"{KEY_GROUP_COLUMN} int16"], f"table {table.table!r} has no {KEY_GROUP_COLUMN}")
    stored = [column.stored_as for column in table.columns]
    _demand(stored == column_names([column.name for column in table.columns]), "columns have other names in the files")


def _demand(holds: bool, complaint: str) -> None:
    if not holds:
        raise ValueError(complaint)


class Entry(NamedTuple):
    """What a batch of rows in flight says of the entry that it belongs to."""

    place: tuple[int, int, int]
    layer: int
    producer: int
    consumer: int
    side: str
    key_group_first: int
    key_group_last: int
    narrowed: bool


def checked_entry(custom: Mapping[str, str], stream: Stream, metadata: SnapshotMetadata) -> Entry:
    """Raises CorruptSnapshot where it cannot be."""
    try:
        numbers = {name: _number(custom[name]) for name in _NUMBERS}
        slot, subtask, position = (_number(part) for part in custom[PLACE].split(":"))
        entry = Entry((slot, subtask, position), side=custom["side"], narrowed=_BOOLS[custom["narrowed"]], **numbers)
        _demand(entry.side in {side.value for side in Side}, f"side {entry.side!r:.50}")
        _demand(entry.consumer == stream.consumer, f"rows of consumer {entry.consumer}")
        _demand(0 <= entry.producer < MAX_KEY_GROUPS, f"producer {entry.producer}")
        _demand(entry.layer >= 0 and position >= 0, "a number is negative")
        _demand(0 <= entry.key_group_first <= entry.key_group_last < metadata.max_parallelism, "other key groups")
        subtasks = {one.slot: len(one.subtasks) for one in metadata.slots}
        _demand(0 <= subtask < subtasks.get(slot, 0), f"there is no subtask {slot}:{subtask}")
        return entry
    except (KeyError, ValueError) as error:
        raise CorruptSnapshot(f"{stream.file.path} describes its rows wrongly: {error!s:.200}") from None


_NUMBERS = ("layer", "producer", "consumer", "key_group_first", "key_group_last")
_BOOLS = {"true": True, "false": False}


def _number(text: str) -> int:
    _demand(_NUMBER.fullmatch(text) is not None, f"{text!r:.50} is no number")
    return int(text)
