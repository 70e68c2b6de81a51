"""Checks of a portable snapshot's manifest. The manifest may be forged, and later code trusts it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.elements import Side
from penstock.model.key_groups import MAX_KEY_GROUPS
from penstock.model.manifest import READ_VERSIONS, SnapshotMetadata
from penstock.snapshots.format.metadata_checks import CheckedPlan, check_metadata, require
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.portable.layout import MANIFEST, PLACE, Manifest, Stream, Table, unique_column_names
from penstock.snapshots.store.store import checked_path
from penstock.snapshots.transfer import source_files
from penstock.state.stored_form import KEY_GROUP_COLUMN

_NUMBER = re.compile(r"-?\d{1,18}")


def checked_manifest(manifest: Manifest, what: str) -> None:
    """Check a manifest.

    Raises:
        CorruptSnapshot: the manifest contradicts itself or the format.
        LocationError: no query may start from the snapshot, because a source removes its input.
    """
    try:
        _check(manifest)
    except (ValueError, RecursionError) as error:
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
    require(metadata.format_version in READ_VERSIONS, f"its metadata is of version {metadata.format_version}")
    plan = check_metadata(metadata)
    if plan is None:
        raise ValueError("it has no plan")
    for subtask in (subtask for slot in metadata.slots for subtask in slot.subtasks):
        require(not (subtask.states or subtask.inflight), "a subtask has references to data")
    _check_blobs(manifest)
    _check_tables(manifest, plan)
    seen = [(stream.exchange, stream.consumer) for stream in manifest.streams]
    require(len(set(seen)) == len(seen), "an exchange has two streams to one consumer")
    for stream in manifest.streams:
        require(stream.exchange in plan.edges, f"exchange {stream.exchange!r} is not in the plan")
        require(0 <= stream.consumer < metadata.parallelism, f"exchange {stream.exchange!r} has another consumer")
    paths = [ref.path for ref in manifest.files()]
    for path in paths:
        checked_path(path)
    require(len(set(paths)) == len(paths) and MANIFEST not in paths, "two parts are one file")
    listed = {ref.path for ref in manifest.source_files}
    require(all(path.startswith(f"{SOURCE_FOLDER}/") for path in listed), f"a file is not below {SOURCE_FOLDER}/")
    require(source_files(metadata) <= listed, "a split names a file that is not there")


def _check_blobs(manifest: Manifest) -> None:
    sources = {source.operator_id for source in manifest.metadata.sources}
    require(not any(source.sections for source in manifest.metadata.sources), "a source has references to data")
    with_blobs = [blobs.operator_id for blobs in manifest.blobs]
    require(set(with_blobs) <= sources, "blobs of no source")
    require(len(set(with_blobs)) == len(with_blobs), "a source has its blobs twice")


def _check_tables(manifest: Manifest, plan: CheckedPlan) -> None:
    seen = [(table.operator_id, table.table) for table in manifest.tables]
    require(len(set(seen)) == len(seen), "a table is there twice")
    for table in manifest.tables:
        operator = plan.operators.get(table.operator_id)
        states = {} if operator is None or operator.role != "operator" else operator.states
        require(table.table in states, f"table {table.table!r} of {table.operator_id!r} is not in the plan")
        _check_columns(table, states[table.table])
        count = {} if operator is None else operator.keys
        keys = table.key_columns
        require(keys is None or 0 <= keys < len(table.columns), f"table {table.table!r} has {keys} columns of keys")
        require(count.get(table.table) in (None, keys), f"table {table.table!r} has another key than in the plan")
        subtasks = [part.subtask for part in table.parts]
        require(len(set(subtasks)) == len(subtasks), f"a subtask has table {table.table!r} twice")
        require(all(0 <= one < manifest.metadata.parallelism for one in subtasks), "a table of no subtask")


def _check_columns(table: Table, declared: Iterable[str]) -> None:
    described = [f"{column.name} {column.type}" for column in table.columns]
    require(described == list(declared), f"table {table.table!r} has other columns than in the plan")
    require(described[:1] == [f"{KEY_GROUP_COLUMN} int16"], f"table {table.table!r} has no {KEY_GROUP_COLUMN}")
    stored = [column.stored_as for column in table.columns]
    require(
        stored == unique_column_names([column.name for column in table.columns]),
        "columns have other names in the files",
    )


class StreamEntry(NamedTuple):
    """Entry to which a batch of in-flight rows belongs, as the batch's metadata describes it."""

    place: tuple[int, int, int]
    layer: int
    producer: int
    consumer: int
    side: str
    key_group_first: int
    key_group_last: int
    narrowed: bool


def checked_entry(custom: Mapping[str, str], stream: Stream, metadata: SnapshotMetadata) -> StreamEntry:
    """Return the entry. Raises CorruptSnapshot for impossible values."""
    try:
        numbers = {name: _number(custom[name]) for name in _NUMBERS}
        slot, subtask, position = (_number(part) for part in custom[PLACE].split(":"))
        entry = StreamEntry(
            (slot, subtask, position), side=custom["side"], narrowed=_BOOLS[custom["narrowed"]], **numbers
        )
        require(entry.side in {side.value for side in Side}, f"side {entry.side!r:.50}")
        require(entry.consumer == stream.consumer, f"rows of consumer {entry.consumer}")
        require(0 <= entry.producer < MAX_KEY_GROUPS, f"producer {entry.producer}")
        require(entry.layer >= 0 and position >= 0, "a number is negative")
        require(0 <= entry.key_group_first <= entry.key_group_last < metadata.max_parallelism, "other key groups")
        subtasks = {one.slot: len(one.subtasks) for one in metadata.slots}
        require(0 <= subtask < subtasks.get(slot, 0), f"there is no subtask {slot}:{subtask}")
        return entry
    except (KeyError, ValueError) as error:
        raise CorruptSnapshot(f"{stream.file.path} describes its rows wrongly: {error!s:.200}") from None


_NUMBERS = ("layer", "producer", "consumer", "key_group_first", "key_group_last")
_BOOLS = {"true": True, "false": False}


def _number(text: str) -> int:
    require(_NUMBER.fullmatch(text) is not None, f"{text!r:.50} is no number")
    return int(text)
