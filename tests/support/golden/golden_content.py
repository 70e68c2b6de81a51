"""Content of a snapshot as plain JSON: committed next to a golden snapshot, and compared by later releases."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import LocalStore
from tests.support.golden.golden_query import golden_graph


def content(location: Path, parallelism: int) -> dict[str, Any]:
    """Return the content of the newest snapshot as it would be restored at this parallelism, which does not change the
    rows."""
    store, job = LocalStore(location), golden_graph(location, parallelism)
    record = SnapshotLog(store).refresh().lineage[-1]
    metadata = BlobStore(store).restore_blobs(Catalog(store).read(record))
    tables: dict[str, list[Any]] = {}
    flying: list[Any] = []
    splits: list[Any] = []
    pending: dict[str, list[str]] = {}
    for manifest in (manifest for slot in plan_restore(metadata, job) for manifest in slot):
        restore = load_restore(manifest, store, job.vertex(manifest.vertex).operators)
        for operator_id, state in restore.operators.items():
            for table, pieces in state.tables.items():
                tables.setdefault(f"{operator_id}/{table}", []).extend(_newest(list(pieces)))
        for entry in manifest.inflight:
            flying += [
                list(row.values())
                for batch in load_consumer_rows(store, entry, job).batches
                for row in batch.to_pylist()
            ]
        splits += [[Path(str(split.spec["path"])).name, split.position] for split in manifest.splits]
        for epoch, message in manifest.pending_messages.items():
            pending.setdefault(str(epoch), []).append(base64.b64encode(message).decode())
        for kept in manifest.inherited_messages:
            pending.setdefault(str(kept.epoch), []).append(base64.b64encode(kept.message).decode())
    (source,) = metadata.sources
    found = {
        "snapshot": metadata.id,
        "tables": {name: _sorted(rows) for name, rows in tables.items()},
        "in flight": _sorted(flying),
        "splits": _sorted(splits),
        "not handed out": [Path(str(split.spec["path"])).name for split in source.pending],
        "newest file, ms": dict(source.state)["newest_ms"],  # type: ignore[call-overload, arg-type]
        "pending": {epoch: sorted(messages) for epoch, messages in sorted(pending.items())},
    }
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


def newest(location: Path) -> SnapshotMetadata:
    """The metadata of the newest snapshot."""
    store = LocalStore(location)
    return Catalog(store).read(SnapshotLog(store).refresh().lineage[-1])


def watermarks(location: Path) -> list[int]:
    """Return the watermarks by channel, in microseconds."""
    return sorted(
        mark
        for slot in newest(location).slots
        for subtask in slot.subtasks
        for mark in subtask.channel_watermarks.values()
    )


def _newest(pieces: list[Any]) -> list[Any]:
    """The last row of each key, unless it is a tombstone: by the two columns of the golden query's key."""
    rows: dict[tuple[Any, ...], Any] = {}
    for piece in pieces:
        for row in piece.batch.to_pylist():
            key = row["at"], row["key"]
            rows.pop(key, None)
            if not row.pop("__deleted", False):
                rows[key] = row
    return [list(row.values()) for row in rows.values()]


def _sorted(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))
