"""Golden snapshots of every format version: they are read, verified and continued.

They are in tests/golden, one folder per version, and none is ever touched again. Each was taken of the query in
``golden_query`` when rows were in flight, files half read and an epoch not committed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Backend
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.errors import CommitUnknown
from penstock.model.commits import EpochCommit
from penstock.model.manifest import FORMAT_VERSION
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.format.envelope import digest, seal_envelope
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.golden.golden_content import content, watermarks
from tests.support.golden.golden_query import expected, golden_graph, output, write_input
from tests.support.places import GOLDEN

VERSIONS = sorted(path.name for path in GOLDEN.iterdir() if path.name.isdigit())
MADE_BY = ("memory", "rocksdb")
cases = pytest.mark.parametrize(
    ("version", "made_by"), [(version, made_by) for version in VERSIONS for made_by in MADE_BY]
)


def wanted(version: str, made_by: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / version / f"{made_by}.json").read_text())
    return found


def changed(path: Path, change: Callable[[str], str]) -> tuple[int, str]:
    """Metadata with other text in it; its length and checksum then."""
    data = change(path.read_text()).encode()
    path.write_bytes(data)
    return len(data), digest(data)


def moved_input(location: Path, before: str, after: str) -> None:
    """The input is somewhere else now: no more than that is changed, in splits alone."""
    for path in location.glob("snapshots/*/metadata.json"):
        length, checksum = changed(path, lambda text: text.replace(f'"{before}/', f'"{after}/'))
        for entry in location.glob("log/*.json"):
            body = json.loads(entry.read_bytes())["body"]
            records = [body["entry"], *body["entry"].get("snapshots", []), body["entry"].get("snapshot")]
            for record in records:
                if (
                    isinstance(record, dict)
                    and record.get("metadata", {}).get("path") == f"snapshots/{path.parent.name}/metadata.json"
                ):
                    record["metadata"].update(length=length, checksum=checksum)
            entry.write_bytes(seal_envelope(body))


def test_this_version_has_golden_snapshots() -> None:
    assert str(FORMAT_VERSION) in VERSIONS, "python -m tests.golden.make makes them; an older folder is never touched"


@cases
def test_it_holds_what_it_held(version: str, made_by: str) -> None:
    """At every parallelism, in any distribution over the subtasks."""
    location = GOLDEN / version / made_by
    told = wanted(version, made_by)
    assert watermarks(location) == told.pop("watermarks")
    assert told.pop("input")
    for parallelism in (1, 2, 3):
        assert content(location, parallelism) == told
    assert all(told[part] for part in ("tables", "in flight", "splits", "not handed out", "pending"))


@cases
def test_every_verb_reads_it(version: str, made_by: str, tmp_path: Path) -> None:
    location = GOLDEN / version / made_by
    assert not verify_location(str(location)).damage
    opened = open_location_to_read(str(location))
    assert len(list_snapshots(opened, 0).snapshots) == len(opened.view.snapshots) > 1
    golden = opened.record("golden")
    shown = show_snapshot(opened, golden, 0, count_rows=True)
    (table,) = [table for operator in shown.operators for table in operator.tables]
    assert table.rows == len(wanted(version, made_by)["tables"]["aggregate-0/groups"])
    (compared,) = compare_snapshots(opened, opened.view.snapshots[0], golden).tables
    assert compared.keys == ["at", "key"]
    assert not compared.problem
    assert compared.added
    export_snapshot(str(location), "golden", tmp_path / "portable")
    convert_snapshot(tmp_path / "portable", tmp_path / "back")
    assert not verify_location(str(tmp_path / "back")).damage
    told = wanted(version, made_by)
    assert content(tmp_path / "back", 2) == {part: told[part] for part in content(location, 2)}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_portable_one_is_the_same_snapshot(version: str, tmp_path: Path) -> None:
    convert_snapshot(GOLDEN / version / "portable", tmp_path / "back")
    assert content(tmp_path / "back", 3) == content(GOLDEN / version / "memory", 3)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("made_by", "parallelism"), [("memory", 3), ("rocksdb", 1)])
def test_a_query_goes_on_from_it_and_its_output_is_exact(
    version: str, made_by: str, parallelism: int, tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """The other backend than the one that wrote it reads the same format."""
    write_input(tmp_path / "input")
    location = Path(shutil.copytree(GOLDEN / version / made_by, tmp_path / "location"))
    shutil.copytree(GOLDEN / version / f"output-{made_by}", tmp_path / "output")
    moved_input(location, wanted(version, made_by)["input"], str(tmp_path / "input"))
    other = Backend.ROCKSDB if made_by == "memory" else Backend.MEMORY
    query = run(golden_graph(tmp_path, parallelism), location, launcher, state_backend=other)  # type: ignore[arg-type]
    query.execution.process_all_available(60)
    query.execution.stop()
    assert output(tmp_path / "output") == expected()


def test_pending_batches_of_version_1_keep_their_ids_and_new_ones_get_none_that_was_given_away(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 1 counted batches by sink: epochs 2 to 4 were batches 0 to 2, and epoch 5 was pending. The first driver
    dies during the commit of epoch 5, after a summary of the log."""
    write_input(tmp_path / "input")
    location = Path(shutil.copytree(GOLDEN / "1/memory", tmp_path / "location"))
    shutil.copytree(GOLDEN / "1/output-memory", tmp_path / "output")
    moved_input(location, wanted("1", "memory")["input"], str(tmp_path / "input"))
    handed_over: list[tuple[int, int]] = []
    commit = FileSinkCommitter.commit

    def refuse(self: FileSinkCommitter, permit: EpochCommit) -> None:
        handed_over.append((permit.epoch, permit.batch))
        raise CommitUnknown("the driver dies")

    def tell(self: FileSinkCommitter, permit: EpochCommit) -> None:
        handed_over.append((permit.epoch, permit.batch))
        commit(self, permit)

    monkeypatch.setattr(FileSinkCommitter, "commit", refuse)
    query = run(golden_graph(tmp_path, 2), location, launcher, restart_attempts=0)
    assert query.execution.await_termination(60)
    assert "the driver dies" in str(query.execution.error)
    assert handed_over == [(5, 3)]
    types = [json.loads(path.read_bytes())["body"]["entry"]["type"] for path in sorted(location.glob("log/*.json"))]
    assert types[10:12] == ["generation-opened", "summary (format version 3)"], "which earlier releases refuse by name"
    monkeypatch.setattr(FileSinkCommitter, "commit", tell)
    again = run(golden_graph(tmp_path, 2), location, launcher)
    again.execution.process_all_available(60)
    again.execution.stop()
    assert handed_over[1] == (5, 3)
    assert [batch for _, batch in handed_over[2:]] == list(range(5, 5 + len(handed_over[2:])))
    assert handed_over[2:]
    assert output(tmp_path / "output") == expected()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_query_goes_on_from_the_portable_one(version: str, tmp_path: Path, launcher: ProcessLauncher) -> None:
    """A fork's own output has the rows that the snapshot had not emitted, and the later ones."""
    write_input(tmp_path / "input")
    directory = Path(shutil.copytree(GOLDEN / version / "portable", tmp_path / "portable"))
    body = (directory / "manifest.json").read_text()
    body = body.replace(f'"{wanted(version, "memory")["input"]}/', f'"{tmp_path}/input/')
    (directory / "manifest.json").write_bytes(seal_envelope(json.loads(body)["body"]))
    convert_snapshot(directory, tmp_path / "location")
    query = run(golden_graph(tmp_path, 2), tmp_path / "location", launcher)
    query.execution.process_all_available(60)
    query.execution.stop()
    rows = output(tmp_path / "output")
    assert rows == [row for row in expected() if row in rows], "none twice, and none with another count"
    state = {(at, key) for _, at, key, *_ in wanted(version, "memory")["tables"]["aggregate-0/groups"]}
    put_out = {(str(row["at"]), row["key"]) for row in rows}
    due = {(str(row["at"]), row["key"]) for row in expected()}
    assert state & due <= put_out
    assert max(due) in put_out
