"""Repeated opening of a location: each reads the current log, and only the appended entries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.snapshots.commands import location_cache
from penstock.snapshots.commands.location_cache import LogCache
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.unit.cli.test_requests_cli import location, penstock  # noqa: F401 - the fixture


def from_the_beginning(location: Path) -> LogView:  # noqa: F811
    return SnapshotLog(LocalStore(str(location))).refresh()


@pytest.fixture
def entries_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The log's files that were read, as they are."""
    found: list[str] = []
    read = LocalStore.read

    def noted(self: LocalStore, path: str) -> bytes:
        if path.startswith("log/"):
            found.append(path)
        return read(self, path)

    monkeypatch.setattr(LocalStore, "read", noted)
    return found


def test_only_what_was_appended_is_read(location: Path, entries_read: list[str]) -> None:  # noqa: F811
    logs = LogCache()
    first = open_location_to_read(str(location), logs=logs).view
    assert len(entries_read) > 4
    entries_read.clear()
    assert open_location_to_read(str(location), logs=logs).view is first
    newest = max((location / "log").iterdir()).name
    assert entries_read == [f"log/{newest}"]  # whether this is the same log
    assert penstock("delete", location, "chk-1").exit_code == 0
    entries_read.clear()
    again = open_location_to_read(str(location), logs=logs).view
    assert min(entries_read) == f"log/{newest}"
    assert again == from_the_beginning(location) != first


def test_another_log_at_the_same_place_is_read_anew(location: Path, tmp_path: Path) -> None:  # noqa: F811
    """A copy of an older day is put back; then it goes on in another way, to as many entries."""
    logs = LogCache()
    older = tmp_path / "older"
    shutil.copytree(location, older)
    assert penstock("delete", location, "chk-1").exit_code == 0
    gone = open_location_to_read(str(location), logs=logs).view
    shutil.rmtree(location)
    shutil.copytree(older, location)
    assert penstock("delete", location, "chk-2").exit_code == 0
    after = open_location_to_read(str(location), logs=logs).view
    assert after == from_the_beginning(location)
    assert after.next_seq == gone.next_seq
    assert [record.checkpoint for record in after.snapshots] == [1, 3, 4]


def test_so_many_logs_are_remembered(
    location: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(location_cache, "MAX_LOGS", 2)
    logs = LogCache()
    for number in range(3):
        shutil.copytree(location, tmp_path / str(number))
        open_location_to_read(str(tmp_path / str(number)), logs=logs)
    assert list(logs._logs) == [str(tmp_path / "1"), str(tmp_path / "2")]
