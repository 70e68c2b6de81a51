"""The commands ``take``, ``delete`` and ``gc`` at locations where no query runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.location import IDENTITY_PATH, identity_of, open_location
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.snapshots.snapshot_kit import Driver, Target, graph
from tests.unit.snapshots.test_requests import end


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four snapshots, and nobody to be waited for."""
    monkeypatch.setitem(rq.ask.__kwdefaults__, "patience_s", 0.0)
    store = open_location(str(tmp_path / "chk"))
    store.create_if_absent(IDENTITY_PATH, seal_envelope(msgspec.to_builtins(identity_of(graph(), "query-1"))))
    driver = Driver(store, Target(), retained=100)
    driver.start()
    for _ in range(4):
        driver.checkpoint()
    end(driver)
    return tmp_path / "chk"


def penstock(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["snapshot", *map(str, words)])


def ids(location: Path) -> list[int]:
    return [record.checkpoint for record in SnapshotLog(LocalStore(str(location))).refresh().snapshots]


def forget_that_it_ended(location: Path) -> None:
    newest = max((location / "log").iterdir())
    newest.unlink()


def test_a_dry_run_lists_the_files_and_bytes_that_go(location: Path) -> None:
    said = penstock("delete", location, "chk-1", "--dry-run")
    assert said.exit_code == 0
    *paths, total = said.output.splitlines()
    occupied = sum((location / path).stat().st_size for path in paths)
    assert total == f"chk-1: {len(paths)} files, {occupied:,} bytes would go"
    assert ids(location) == [1, 2, 3, 4]
    as_json = json.loads(penstock("delete", location, "chk-1", "--dry-run", "--json").output)
    assert as_json == {
        "snapshots": ["chk-1"], "files": len(paths), "bytes": occupied, "dry_run": True, "paths": paths,
    }  # fmt: skip
    assert penstock("delete", location, "chk-1").output == f"chk-1: {len(paths)} files, {occupied:,} bytes gone\n"
    assert not [path for path in paths if (location / path).exists()]
    assert ids(location) == [2, 3, 4]


def test_many_go_in_several_requests(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rq, "MAX_IDS", 2)
    said = json.loads(penstock("delete", location, "chk-1", "chk-2", "chk-3", "--json").output)
    assert (said["snapshots"], said["files"]) == (["chk-1", "chk-2", "chk-3"], 6)
    assert ids(location) == [4]


@pytest.mark.parametrize("verb", ["delete", "gc"])
def test_a_driver_that_did_not_say_that_it_ended_is_only_passed_over_by_force(location: Path, verb: str) -> None:
    forget_that_it_ended(location)
    words = [verb, location, *(["chk-1"] if verb == "delete" else [])]
    refused = penstock(*words)
    assert refused.exit_code == 1
    assert "no driver answers at this location" in refused.stderr
    assert "--force" in refused.stderr
    assert ids(location) == [1, 2, 3, 4]
    assert penstock(*words, "--dry-run").exit_code == 0
    assert penstock(*words, "--force").exit_code == 0
    assert ids(location) == ([2, 3, 4] if verb == "delete" else [1, 2, 3, 4])
    assert list((location / "requests").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["delete", "chk-4"], 1, "chk-4 is the newest snapshot"),
        (["delete", "chk-9"], 1, "there is no snapshot 'chk-9'"),
        (["delete", "chk-4", "--dry-run"], 1, "chk-4 is the newest snapshot"),
        (["take"], 1, "no query runs at this location"),
        (["take", "--alignment", "sideways"], 2, "choose auto, aligned or unaligned"),
        (["take", "--note", "x" * 2001], 2, "more than 2000"),
    ],
)
def test_what_is_refused_is_one_line_and_a_wrong_argument_has_a_code_of_its_own(
    location: Path, words: list[str], code: int, reason: str
) -> None:
    said = penstock(words[0], location, *words[1:])
    assert said.exit_code == code
    assert reason in said.stderr
    assert said.stderr.count("\n") == 1
    assert said.stdout == ""
    assert ids(location) == [1, 2, 3, 4]


def test_a_location_that_is_none_or_fails_is_one_line_too(location: Path, tmp_path: Path) -> None:
    assert "there is no such folder" in penstock("gc", tmp_path / "nowhere").stderr
    forget_that_it_ended(location)
    (location / "requests").write_text("in the way")
    said = penstock("gc", location)
    assert (said.exit_code, said.stderr.count("\n")) == (1, 1)
    assert "cannot be used" in said.stderr
