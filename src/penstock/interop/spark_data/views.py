"""Views of a location's metadata: small tables of snapshots, state tables, positions, watermarks and scalars."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.interop.spark_data.read_options import OFFSETS, SCALARS, TABLES, WATERMARKS
from penstock.model.manifest import PlanManifest, SnapshotMetadata
from penstock.model.plain import Plain
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import OpenedLocation
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.commands.positions import edges_of, sources_of
from penstock.snapshots.commands.snapshot_sizes import inflight_entries, stored_bytes, subtasks_of
from penstock.snapshots.format.plan import key_column_count
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.restoring.state_tables import table_name

_TIME = pa.timestamp("us", tz="UTC")
_YEAR_1_US, _YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
"""Limits of Spark's timestamps. Watermarks beyond them stand for the start and the end of event time."""

_SNAPSHOT_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "label", "note", "kind", "alignment")),
        ("created", _TIME),
        *((name, pa.int64()) for name in ("checkpoint", "generation")),
        *((name, pa.int32()) for name in ("parallelism", "subtasks", "unaligned_subtasks")),
        *((name, pa.int64()) for name in ("state_rows", "state_bytes", "inflight_rows", "inflight_bytes")),
        *((name, pa.int64()) for name in ("bytes", "exclusive_bytes")),
        ("in_lineage", pa.bool_()),
        ("problem", pa.string()),
    ]
)
_SCHEMAS = {
    TABLES: pa.schema(
        [
            *((name, pa.string()) for name in ("kind", "name", "operator")),
            ("columns", pa.list_(pa.field("element", pa.string()))),
            ("keys", pa.list_(pa.field("element", pa.string()))),
            ("bytes", pa.int64()),
        ]
    ),
    OFFSETS: pa.schema(
        [
            *((name, pa.string()) for name in ("operator_id", "source", "kind", "progress", "split_id")),
            ("subtask", pa.int32()),
            *((name, pa.string()) for name in ("spec", "position")),
        ]
    ),
    WATERMARKS: pa.schema(
        [
            *((name, pa.string()) for name in ("exchange", "operators")),
            *((name, pa.int32()) for name in ("producer", "consumer")),
            ("watermark", _TIME),
            ("watermark_us", pa.int64()),
        ]
    ),
    SCALARS: pa.schema(
        [("operator_id", pa.string()), ("subtask", pa.int32()), ("name", pa.string()), ("value", pa.string())]
    ),
}
"""Columns of the views; docs/snapshots-as-data.md describes them."""


def snapshots_view(opened: OpenedLocation) -> pa.RecordBatch:
    """Return the snapshots, as ``penstock snapshot list`` does. Raises LocationError if a file cannot be read."""
    notes = {record.checkpoint: record.note for record in opened.view.snapshots}
    rows = []
    for line in list_snapshots(opened, int(time.time() * 1000)).snapshots:
        row: dict[str, Any] = {name: getattr(line, name, None) for name in _SNAPSHOT_SCHEMA.names}
        row["note"] = notes.get(line.checkpoint, "")
        row["created"] = None if line.problem else line.created_ms * 1000
        rows.append(row)
    return _batch(rows, _SNAPSHOT_SCHEMA)


def snapshot_view(view: str, metadata: SnapshotMetadata, plan: PlanManifest) -> pa.RecordBatch:
    """Return one of ``VIEWS`` for a snapshot."""
    return _batch(list(_ROWS[view](metadata, plan)), _SCHEMAS[view])


def _tables(metadata: SnapshotMetadata, plan: PlanManifest) -> Iterator[dict[str, Any]]:
    names = PlanNames(plan)
    for (operator_id, table), entries in table_entries(metadata).items():
        states = plan.operators.get(operator_id, {}).get("states")
        columns = _names(states.get(table) if isinstance(states, dict) else None)
        keys = key_column_count(plan, operator_id, table)
        yield {
            "kind": "state",
            "name": table_name(operator_id, table),
            "operator": names.operator(operator_id),
            "columns": columns,
            "keys": None if keys is None else columns[1 : 1 + keys],
            "bytes": stored_bytes(entry.section for entry in entries),
        }
    for exchange, edge in plan.edges.items():
        found = [entry for entry in inflight_entries(metadata) if entry.edge == edge["id"]]
        yield {
            "kind": "inflight",
            "name": exchange,
            "operator": names.edge(int(str(edge["id"]))).text,
            "columns": _names(edge["schema"]),
            "keys": edge["keys"],
            "bytes": stored_bytes(entry.section for entry in found),
        }


def _names(columns: Plain) -> list[str]:
    return [str(column).partition(" ")[0] for column in columns] if isinstance(columns, list) else []


def _offsets(metadata: SnapshotMetadata, plan: PlanManifest) -> Iterator[dict[str, Any]]:
    for source in sources_of(metadata, plan):
        known = {"operator_id": source.operator_id, "source": source.name, "kind": source.kind}
        yield {**known, "progress": "discovery", "position": _json(source.state)}
        for progress, splits in (("pending", source.pending), ("reading", source.reading)):
            for split in splits:
                said = {"split_id": split.split_id, "subtask": split.subtask}
                yield {
                    **known,
                    **said,
                    "progress": progress,
                    "spec": _json(split.spec),
                    "position": _json(split.position),
                }


def _watermarks(metadata: SnapshotMetadata, plan: PlanManifest) -> Iterator[dict[str, Any]]:
    for edge in edges_of(metadata, plan):
        for channel in edge.channels:
            moment = channel.watermark_us
            yield {
                "exchange": edge.exchange,
                "operators": f"{edge.producer} -> {edge.consumer}",
                "producer": channel.producer,
                "consumer": channel.consumer,
                "watermark": moment if moment is not None and _YEAR_1_US <= moment < _YEAR_10000_US else None,
                "watermark_us": moment,
            }


def _scalars(metadata: SnapshotMetadata, plan: PlanManifest) -> Iterator[dict[str, Any]]:
    for subtask in subtasks_of(metadata):
        for operator_id, values in subtask.scalars.items():
            for name, value in values.items():
                yield {"operator_id": operator_id, "subtask": subtask.index, "name": name, "value": _json(value)}


_ROWS: dict[str, Callable[[SnapshotMetadata, PlanManifest], Iterator[dict[str, Any]]]] = {
    TABLES: _tables,
    OFFSETS: _offsets,
    WATERMARKS: _watermarks,
    SCALARS: _scalars,
}


def _json(value: Plain) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
