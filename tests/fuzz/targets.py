"""Targets of the fuzzers: functions of any bytes. They raise only errors of the tree, which are caught.

Checksums are set right where they would end a try at once: whoever forges a file forges them as well.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from penstock.errors import PenstockError
from penstock.model.manifest import InflightEntry, SectionRef, StateEntry, SubtaskManifest
from penstock.snapshots.catalog import Catalog, metadata_path
from penstock.snapshots.commands.log_check import check_log
from penstock.snapshots.commands.snapshot_sizes import measure_snapshot
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.format.envelope import digest, open_envelope, seal_envelope
from penstock.snapshots.format.sections import read_content
from penstock.snapshots.log.entries import MetadataRef, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog, entry_path
from penstock.snapshots.portable.layout import Column, FileRef, Table, TablePart, read_manifest
from penstock.snapshots.portable.manifest_checks import checked_manifest
from penstock.snapshots.portable.parquet_pages import read_footer
from penstock.snapshots.portable.untrusted_files import read_rows, read_stream
from penstock.snapshots.restoring.restore import load_inflight, load_restore
from penstock.snapshots.store.store import MemoryStore

Target = Callable[[bytes], None]


def resealed(data: bytes) -> bytes:
    """An envelope whose body is what the bytes say, if they are JSON; else they themselves."""
    try:
        body = json.loads(data)
        return seal_envelope(body["body"] if isinstance(body, dict) and "body" in body else body)
    except (ValueError, RecursionError):
        return data


def each(*works: Callable[[], object]) -> None:
    """All of them, whatever the others end in; refused if all are."""
    refused = [error for work in works if (error := attempt(lambda _, work=work: work(), b"")) is not None]  # type: ignore[misc]
    if len(refused) == len(works):
        raise refused[0]


def envelope(data: bytes) -> None:
    open_envelope(data, "file")


def log(data: bytes) -> None:
    """The bytes are the first entry, and the one behind a real one."""
    opened = {"type": "generation-opened", "generation": 1, "restored": 0, "first_checkpoint": 1}
    first = {"seq": 1, "token": "t", "entry": {**opened, "reserved_until": 9, "committed_epoch": 0}}
    stores = MemoryStore(), MemoryStore()
    for store, entries in zip(stores, ([resealed(data)], [seal_envelope(first), resealed(data)]), strict=True):
        store.files = {entry_path(seq): entry for seq, entry in enumerate(entries, 1)}
        check_log(store)
    each(*(SnapshotLog(store).refresh for store in stores))


def metadata(data: bytes) -> None:
    """Read the bytes as metadata, of whatever checkpoint they name."""
    store = MemoryStore()
    try:
        said = msgspec.json.decode(data)
        checkpoint, generation = said["checkpoint"], said["generation"]
        path = metadata_path(checkpoint)
    except (ValueError, TypeError, KeyError, RecursionError):
        checkpoint, generation, path = 1, 1, metadata_path(1)
    store.files[path] = data
    read = Catalog(store).read(
        SnapshotRecord(checkpoint, generation, False, MetadataRef(path, len(data), digest(data)))
    )
    measure_snapshot(read)
    BlobStore(store).restore_blobs(read)


def section(data: bytes) -> None:
    store = MemoryStore()
    store.files["data/1-1-0.arrows"] = data
    checksum = xxhash.xxh3_128(b"g1/c1\0" + data).hexdigest()
    ref = SectionRef("data/1-1-0.arrows", 0, len(data), "g1/c1", checksum)
    rows = sum(batch.num_rows for batch in read_content(store, ref).batches)

    def state(kind: str) -> None:
        states = [StateEntry("op", "table", kind, rows, 0, 127, ref)]
        for piece in load_restore(SubtaskManifest(0, 0, states=states), store).operators["op"].tables["table"]:
            piece.batch.to_string()

    flying = InflightEntry(0, 0, 0, 0, "consumer", 0, rows, 0, 127, ref)
    each(lambda: load_inflight(store, flying), lambda: state("base"), lambda: state("delta"))


def manifest(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "manifest.json").write_bytes(resealed(data))
        checked_manifest(read_manifest(Path(folder)), folder)


COLUMNS = [Column(name, name, kind, "") for name, kind in (("__key_group", "int16"), ("k", "string"), ("n", "int64"))]


def parquet(data: bytes) -> None:
    """Read the bytes as a part of a table with as many rows as it says, and as an Arrow stream."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part")
        path.write_bytes(data)
        try:
            rows = sum(group.rows for group in read_footer(pa.memory_map(str(path))))
        except (OSError, ValueError):
            rows = 0
        part = TablePart(0, rows, FileRef("part", len(data), ""))
        table = Table("op", "table", 1, COLUMNS, [part])
        each(lambda: list(read_rows(path, table, part, 128)[1]), lambda: list(read_stream(path, "part")[1]))


TARGETS: dict[str, Target] = {
    "envelope": envelope,
    "log": log,
    "metadata": metadata,
    "section": section,
    "manifest": manifest,
    "parquet": parquet,
}


def attempt(target: Target, data: bytes) -> PenstockError | None:
    """Call the function; refusals are expected, and anything else that it raises is a finding."""
    try:
        target(data)
    except PenstockError as error:
        return error
    return None
