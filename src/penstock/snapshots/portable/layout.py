"""Format of portable snapshots: names, the manifest, and the reader of the manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.decoding import decode_json
from penstock.errors import CorruptSnapshot, LocationError
from penstock.grammar import FreeText, OperatorName
from penstock.model.elements import Side
from penstock.model.manifest import (
    Count,
    Index,
    InflightEntry,
    SectionRef,
    SnapshotMetadata,
    StateEntry,
    SubtaskManifest,
)
from penstock.snapshots.format.envelope import canonical_json, check_values, digest

FORMAT = "penstock-portable-snapshot"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 256 << 20
"""Maximum size of a manifest in bytes. It contains commit messages and positions."""

STATE_FOLDER = "state"
INFLIGHT_FOLDER = "inflight"
BLOB_FOLDER = "sources"

PLACE = "place"
"""Custom metadata of an in-flight batch: position of its entry in the metadata, ``slot:subtask:entry``, all from 0."""

_NO_DATA = SectionRef("", 0, 0, "", "")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


class FileRef(msgspec.Struct, frozen=True):
    """File of the directory. ``checksum`` is the xxh3-128 hex digest of its bytes."""

    path: str
    length: Count
    checksum: FreeText


class Column(msgspec.Struct, frozen=True):
    """Column of a table: its names in the query and in the Parquet files, and its types for Arrow and for Spark."""

    name: FreeText
    stored_as: FreeText
    type: FreeText
    spark: FreeText


class TablePart(msgspec.Struct, frozen=True):
    """One subtask's part of a table."""

    subtask: Index
    rows: Count
    file: FileRef


class Table(msgspec.Struct, frozen=True):
    """Keyed table.

    Attributes:
        key_columns: number of key columns, which follow ``__key_group``; None if it is unknown.
    """

    operator_id: OperatorName
    table: FreeText
    key_columns: Index | None
    columns: list[Column]
    parts: list[TablePart]


class Stream(msgspec.Struct, frozen=True):
    """In-flight rows of one exchange to one of its consumers, in restore order."""

    exchange: OperatorName
    consumer: Index
    rows: Count
    file: FileRef


class Blobs(msgspec.Struct, frozen=True):
    """Blobs of one source's discovery state, by number."""

    operator_id: OperatorName
    files: list[FileRef]


class Manifest(msgspec.Struct, frozen=True):
    """Body of ``manifest.json``.

    Attributes:
        metadata: metadata as in the native format, but without references to data: ``states``, ``inflight`` and
            ``sections`` are empty. It has a plan.
        source_files: the sources' own files (stored as ``lane``), with the same paths as at a checkpoint location. They
            include all files that splits name.
    """

    format: FreeText
    format_version: Count
    metadata: SnapshotMetadata
    tables: list[Table]
    streams: list[Stream]
    blobs: list[Blobs]
    source_files: list[FileRef] = msgspec.field(name="lane")

    def files(self) -> list[FileRef]:
        """Return all files except the manifest."""
        return [
            *(part.file for table in self.tables for part in table.parts),
            *(stream.file for stream in self.streams),
            *(file for blobs in self.blobs for file in blobs.files),
            *self.source_files,
        ]

    def outline(self) -> SnapshotMetadata:
        """Return the metadata with one entry per part of a table and per stream. The entries refer to no data.

        The result is enough to check whether a query can start from the snapshot.
        """
        plan = self.metadata.plan
        assert plan is not None
        found: dict[tuple[int, int], SubtaskManifest] = {}
        for table in self.tables:
            vertex = int(str(plan.operators[table.operator_id]["vertex"]))
            for part in table.parts:
                state = StateEntry(table.operator_id, table.table, "base", part.rows, 0, -1, _NO_DATA)
                one = found.setdefault((vertex, part.subtask), SubtaskManifest(vertex, part.subtask))
                one.states.append(state)
        groups = 0, self.metadata.max_parallelism - 1
        for stream in (stream for stream in self.streams if stream.rows):
            edge = plan.edges[stream.exchange]
            vertex = int(str(edge["consumer"]))
            one = found.setdefault((vertex, stream.consumer), SubtaskManifest(vertex, stream.consumer))
            position = 0, int(str(edge["id"])), 0, stream.consumer, Side.CONSUMER.value, 0, stream.rows
            one.inflight.append(InflightEntry(*position, *groups, _NO_DATA))

        def outlined(subtask: SubtaskManifest) -> SubtaskManifest:
            one = found.get((subtask.vertex, subtask.index))
            return subtask if one is None else replace(subtask, states=one.states, inflight=one.inflight)

        slots = [replace(slot, subtasks=[*map(outlined, slot.subtasks)]) for slot in self.metadata.slots]
        return replace(self.metadata, slots=slots)


def safe_file_name(name: str) -> str:
    """Return a folder name for an operator, table or exchange.

    It is the name itself if that is a safe file name. Otherwise it consists of the safe characters of the name and a
    part of its digest.
    """
    if _PLAIN_NAME.fullmatch(name):
        return name
    kept = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60]
    return f"{kept}-{digest(name.encode())[:12]}" if kept else digest(name.encode())[:12]


def unique_column_names(names: Sequence[str]) -> list[str]:
    """Return the names without duplicates. Spark does not distinguish ``A`` from ``a``."""
    found: dict[str, str] = {}
    for name in names:
        stored, number = name, 1
        while stored.lower() in found:
            number += 1
            stored = f"{name}__{number}"
        found[stored.lower()] = stored
    return list(found.values())


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the bytes of ``manifest.json``."""
    body = json.loads(msgspec.json.encode(manifest))
    return canonical_json({"body": body, "checksum": digest(canonical_json(body))}) + b"\n"


def read_manifest(directory: Path) -> Manifest:
    """Return the intact manifest of a directory. Its values are not checked yet.

    Raises:
        LocationError: the directory has no manifest, or the manifest has a later format version.
        CorruptSnapshot: the manifest is damaged.
    """
    path = directory / MANIFEST
    if path.is_symlink() or not path.is_file():
        raise no_manifest_error(str(directory))
    try:
        check_manifest_size(path.stat().st_size, str(path))
        data = path.read_bytes()
    except OSError as error:
        raise LocationError(f"{path} cannot be read: {error}") from error
    return parse_manifest(data, str(path))


def no_manifest_error(directory: str) -> LocationError:
    """Return the error for a directory without a manifest."""
    return LocationError(
        f"{directory} is no portable snapshot: it has no {MANIFEST}; name a directory that was made by "
        "penstock snapshot export"
    )


def check_manifest_size(size: int, path: str) -> None:
    """Raise CorruptSnapshot for a manifest that is too large to read."""
    if size > MAX_MANIFEST_BYTES:
        raise CorruptSnapshot(f"{path} has more than {MAX_MANIFEST_BYTES} bytes; export the snapshot again")


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Parse an intact manifest. Raises as ``read_manifest``."""
    try:
        return _parse(data, path)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CorruptSnapshot(f"{path} is not the manifest of a portable snapshot: {error}") from error


def _parse(data: bytes, path: str) -> Manifest:
    check_values(data, path)
    envelope = json.loads(data)
    if not isinstance(envelope, dict) or set(envelope) != {"body", "checksum"}:
        raise ValueError("it is not an envelope")
    body = envelope["body"]
    content = canonical_json(body)
    if digest(content) != envelope["checksum"]:
        raise CorruptSnapshot(f"{path} does not match its checksum; export the snapshot again")
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ValueError(f"it is not of the format {FORMAT}")
    if body.get("format_version") != FORMAT_VERSION:
        raise LocationError(
            f"{path} has format version {body.get('format_version')!r:.40}; this release reads {FORMAT_VERSION}"
        )
    return decode_json(content, Manifest)
