"""Opening a checkpoint location: whose it is, and whether the plan still fits what is stored there."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.errors import CorruptSnapshot, LocationError, NotYet, PlanChanged
from penstock.graph.model import JobGraph
from penstock.operators.base import Plain
from penstock.snapshot.envelope import open_envelope, seal_envelope
from penstock.snapshot.log import FOLDER as LOG_FOLDER
from penstock.snapshot.model import FORMAT_VERSION, QueryIdentity
from penstock.snapshot.store import LocalStore, Store

IDENTITY_PATH = "query.json"
SPARK_NAMES = ("metadata", "offsets", "commits", "state", "sources")
"""What a checkpoint of Spark's own Structured Streaming consists of."""


def open_location(location: str) -> LocalStore:
    """The store of a checkpoint location; an absent or empty folder becomes a new one.

    Args:
        location: a path, with or without ``file:`` in front.

    Raises:
        LocationError: not a folder, not writable, a Spark checkpoint, or somebody else's files; the way out is said.
    """
    path = _local_path(location)
    if path.exists() and not path.is_dir():
        raise LocationError(f"checkpointLocation {path} is a file; give a folder")
    try:
        path.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in path.iterdir())
        _check_writable(path)
    except OSError as error:
        raise LocationError(f"checkpointLocation {path} cannot be used: {error}; choose a writable folder") from error
    own = [name for name in names if not (name.startswith(".") and name.endswith(".tmp"))]
    if own and IDENTITY_PATH not in own:
        raise LocationError(_foreign_text(path, own))
    return LocalStore(path)


def _local_path(location: str) -> Path:
    if not location:
        raise LocationError("checkpointLocation is empty; give a folder that the driver and all executors share")
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return Path(location).absolute()
    if scheme != "file":
        raise LocationError(
            f"checkpointLocation {location}: {scheme} is not supported yet; give a path of a file system that driver"
            " and executors share"
        )
    return Path("/" + rest.lstrip("/")) if rest.startswith("/") else Path(rest).absolute()


def _check_writable(path: Path) -> None:
    probe = path / f".probe.{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.close(descriptor)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _foreign_text(path: Path, names: list[str]) -> str:
    if "metadata" in names and any(name in names for name in SPARK_NAMES[1:]):
        return (
            f"checkpointLocation {path} is a checkpoint of Spark's own Structured Streaming; Penstock cannot resume"
            " from it. Give an empty folder (the query then starts from the beginning of its sources), and leave this"
            " one to Spark"
        )
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"checkpointLocation {path} holds files that are not Penstock's ({listed}); give an empty folder"


# -- identity ---------------------------------------------------------------------------------------------------------


def schema_text(schema: pa.Schema) -> list[Plain]:
    """A schema as it is stored and compared: ``name type`` per column."""
    return [f"{field.name} {field.type}" for field in schema]


def identity_of(graph: JobGraph, query_id: str) -> QueryIdentity:
    """What a plan is compared by: operator ids, state and edge schemas, keys. Never user code, paths or literals."""
    operators: dict[str, dict[str, Plain]] = {}
    edges: dict[str, dict[str, Plain]] = {}
    for vertex in graph.vertices:
        if vertex.source is not None:
            operators[vertex.source.operator_id] = _operator(vertex.source.name, vertex.source.source.schema, {})
        for spec in vertex.operators:
            operators[spec.operator_id] = _operator(spec.name, spec.output_schema, spec.state_schemas)
        if vertex.sink is not None:
            operators[vertex.sink.operator_id] = _operator(vertex.sink.name, pa.schema([]), {})
    for edge in graph.edges:
        keys: list[Plain] = [edge.schema.names[position] for position in edge.key_columns]
        edges[str(edge.id)] = {"kind": edge.kind.value, "keys": keys, "schema": schema_text(edge.schema)}
    return QueryIdentity(FORMAT_VERSION, query_id, graph.max_parallelism, graph.parallelism, operators, edges)


def _operator(name: str, schema: pa.Schema, states: Mapping[str, pa.Schema]) -> dict[str, Plain]:
    tables: dict[str, Plain] = {table: schema_text(state) for table, state in sorted(states.items())}
    return {"name": name, "schema": schema_text(schema), "states": tables}


class Difference(NamedTuple):
    """One line of the table of what changed."""

    what: str
    stored: str
    new: str


def differences(old: QueryIdentity, new: QueryIdentity) -> list[Difference]:
    """What keeps a snapshot taken under ``old`` from being restored into ``new``; empty if nothing does."""
    found: list[Difference] = []
    for operator_id in dict.fromkeys([*old.operators, *new.operators]):
        before, after = old.operators.get(operator_id), new.operators.get(operator_id)
        if before is None or after is None:
            found.append(Difference(f"operator {operator_id}", _name(before), _name(after)))
            continue
        _compare_parts(found, f"state of {operator_id}", before["states"], after["states"])
    for edge_id in dict.fromkeys([*old.edges, *new.edges]):
        edge_before, edge_after = old.edges.get(edge_id), new.edges.get(edge_id)
        if edge_before is None or edge_after is None:
            found.append(Difference(f"exchange {edge_id}", _kind(edge_before), _kind(edge_after)))
            continue
        _compare_parts(found, f"exchange {edge_id}", edge_before, edge_after)
    if old.max_parallelism != new.max_parallelism:
        found.append(Difference("maxParallelism", str(old.max_parallelism), str(new.max_parallelism)))
    return found


def compare_identity(old: QueryIdentity, new: QueryIdentity) -> None:
    """Refuse a plan that does not fit.

    Raises:
        PlanChanged: with the table of what changed.
        NotYet: only the parallelism differs.
    """
    changed = differences(old, new)
    if changed:
        rows = "\n".join(f"  {line.what}: stored {line.stored}, now {line.new}" for line in changed)
        raise PlanChanged(
            f"the query does not fit the state at its checkpointLocation:\n{rows}\n"
            "Undo the change, or give an empty checkpointLocation to start anew"
        )
    if old.parallelism != new.parallelism:
        raise NotYet(
            f"the snapshots were taken with parallelism {old.parallelism}, the query has {new.parallelism}: changing it"
            f" is not possible yet; set spark.penstock.parallelism={old.parallelism}"
        )


def claim_identity(store: Store, identity: QueryIdentity) -> QueryIdentity:
    """Write ``query.json`` at a new location, or compare the plan with the one that is there.

    Returns:
        The stored identity: its ``query_id`` is the query's, whatever ``identity`` proposed.

    Raises:
        PlanChanged, NotYet: see ``compare_identity``.
        LocationError: ``query.json`` is of a later release.
        CorruptSnapshot: it is damaged.
    """
    if store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity))):
        return identity
    stored = read_identity(store)
    compare_identity(stored, identity)
    return stored


def release_identity(store: Store) -> None:
    """Take back a claim from which nothing came, so that another plan may be started here: no Generation was opened."""
    if not store.list(LOG_FOLDER):
        store.delete(IDENTITY_PATH)


def read_identity(store: Store) -> QueryIdentity:
    """The identity at a location; see ``claim_identity`` for errors. FileNotFoundError where there is none."""
    body = open_envelope(store.read(IDENTITY_PATH), IDENTITY_PATH)
    try:
        stored = msgspec.convert(body, QueryIdentity)
    except msgspec.ValidationError as error:
        raise CorruptSnapshot(f"{IDENTITY_PATH} is not a query's identity: {error}") from error
    if stored.format_version != FORMAT_VERSION:
        raise LocationError(
            f"{IDENTITY_PATH} has format version {stored.format_version}; this release reads {FORMAT_VERSION}"
        )
    return stored


def _name(operator: dict[str, Plain] | None) -> str:
    return "absent" if operator is None else str(operator["name"])


def _kind(edge: dict[str, Plain] | None) -> str:
    return "absent" if edge is None else f"{edge['kind']} on {edge['keys']}"


def _compare_parts(found: list[Difference], what: str, before: Plain, after: Plain) -> None:
    """Compare two dicts of one operator's tables or one edge's attributes, part by part."""
    assert isinstance(before, dict)
    assert isinstance(after, dict)
    for part in dict.fromkeys([*before, *after]):
        if before.get(part) != after.get(part):
            found.append(Difference(f"{what}, {part}", _text(before.get(part)), _text(after.get(part))))


def _text(value: Plain) -> str:
    if value is None:
        return "absent"
    return f"({', '.join(map(str, value))})" if isinstance(value, list) else str(value)
