"""A location that somebody has changed, with all checksums set right again; and everything that reads one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import xxhash

from penstock.errors import PenstockError
from penstock.model.job_graph import JobGraph
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.portable.export import export_snapshot
from tests.support.snapshots.portable_kit import restored

Body = dict[str, Any]


def log_entries(location: Path) -> list[Path]:
    return sorted((location / "log").iterdir())


def reseal(path: Path, change: Callable[[Body], object]) -> None:
    """Change the body of an envelope."""
    body = json.loads(path.read_bytes())["body"]
    change(body)
    path.write_bytes(seal_envelope(body))


def completes(path: Path, checkpoint: int) -> bool:
    entry = json.loads(path.read_bytes())["body"]["entry"]
    return entry["type"] == "snapshot-complete" and entry["checkpoint"] == checkpoint


def put_metadata(location: Path, checkpoint: int, data: bytes) -> None:
    """Other metadata, and a log that fits it."""
    (location / f"snapshots/chk-{checkpoint}/metadata.json").write_bytes(data)
    for path in log_entries(location):
        if completes(path, checkpoint):
            reseal(path, lambda body: body["entry"]["metadata"].update(length=len(data), checksum=digest(data)))


def rewrite_metadata(location: Path, checkpoint: int, change: Callable[[Body], object]) -> None:
    metadata = json.loads((location / f"snapshots/chk-{checkpoint}/metadata.json").read_bytes())
    change(metadata)
    put_metadata(location, checkpoint, json.dumps(metadata).encode())


def sections(metadata: Body) -> list[Body]:
    """Return the sections of state and in-flight rows from the metadata."""
    subtasks = [subtask for slot in metadata["slots"] for subtask in slot["subtasks"]]
    return [entry["section"] for subtask in subtasks for entry in (*subtask["states"], *subtask["inflight"])]


def replace_section(location: Path, section: Body, data: bytes) -> None:
    """Another content for a section, behind the others in its file."""
    path = location / section["path"]
    actual = xxhash.xxh3_128(section["identity"].encode() + b"\0" + data).hexdigest()
    section |= {"offset": path.stat().st_size, "length": len(data), "checksum": actual}
    with path.open("ab") as file:
        file.write(data)


def read_everything(location: Path, job: JobGraph, *, newest_only: bool = False) -> list[PenstockError]:
    """Read a location in every way; return the refusals and raise every other error.

    Args:
        newest_only: restore only the newest snapshot.
    """
    refused: list[PenstockError] = []

    def attempt(what: Callable[[], object]) -> None:
        try:
            what()
        except PenstockError as error:
            refused.append(error)

    attempt(lambda: restored(location, job))
    if newest_only:
        return refused
    attempt(lambda: verify_location(str(location)))
    with suppress(PenstockError):
        opened = open_location_to_read(str(location))
        attempt(lambda: list_snapshots(opened, 0))
        records = opened.view.snapshots
        for record in records:
            attempt(lambda record=record: show_snapshot(opened, record, 0, count_rows=True))  # type: ignore[misc]
            with tempfile.TemporaryDirectory() as folder:
                name, target = f"chk-{record.checkpoint}", Path(folder, "portable")
                attempt(lambda name=name, target=target: export_snapshot(str(location), name, target))  # type: ignore[misc]
        for one, other in pairwise(records):
            attempt(lambda one=one, other=other: compare_snapshots(opened, one, other, examples=2))  # type: ignore[misc]
        return refused
    attempt(lambda: open_location_to_read(str(location)))
    return refused
