"""Labels and notes that snapshots get after they were taken, and what a label does to how long one is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.elements import Alignment
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.log.entries import (
    GenerationOpened,
    LogView,
    MetadataRef,
    SnapshotComplete,
    SnapshotDeleted,
    SnapshotLabelled,
    SnapshotRecord,
    relabeled,
)
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.retention import expired
from penstock.snapshots.store.store import MemoryStore
from tests.support.snapshots.snapshot_kit import Driver, Target
from tests.unit.cli.test_requests_cli import forget_that_it_ended, location, penstock  # noqa: F401 - the fixture
from tests.unit.snapshots.test_requests import Asker, a_driver, end, requests_of

REF = MetadataRef("snapshots/chk-1/metadata.json", 1, "0" * 32)
TEXTS = st.sampled_from(["", "mine", "theirs", None])


def tokens() -> Callable[[], str]:
    numbers = iter(range(1 << 30))
    return lambda: f"token-{next(numbers)}"


def kept(store: MemoryStore) -> dict[int, tuple[str, str, bool]]:
    view = SnapshotLog(store).refresh()
    return {record.checkpoint: (record.label, record.note, record.requested) for record in view.snapshots}


def entries(store: MemoryStore) -> int:
    return sum(path.startswith("log/") for path in store.files)


# -- what the log says ----------------------------------------------------


@given(
    st.booleans(),
    st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), max_size=8),
)
def test_who_reads_the_entries_or_a_summary_sees_the_same_and_a_label_is_a_wish_to_keep(
    requested: bool, changes: list[tuple[str | None, str | None, bool]]
) -> None:
    store = MemoryStore()
    log = SnapshotLog(store, tokens())
    log.append(GenerationOpened(1, 0, 1, 65, 0))
    log.append(SnapshotComplete(1, 1, requested, REF, 0, 65, "first" if requested else ""))
    log.append(SnapshotComplete(1, 2, False, REF, 0, 65))
    label, note = "first" if requested else "", ""
    for new_label, new_note, summarised in changes:
        log.append(SnapshotLabelled(1, 1, new_label, new_note))
        label, note = (old if new is None else new for old, new in ((label, new_label), (note, new_note)))
        if summarised:
            while log.view.next_seq - log.view.last_summary <= 64:
                log.append(SnapshotLabelled(1, 1))
            log.summarise()
        view = SnapshotLog(store).refresh()
        assert view == log.view
        first, other = view.snapshots
        assert (first.label, first.note, first.requested) == (label, note, requested or bool(label))
        assert (other.label, other.note, other.requested) == ("", "", False)


def test_one_that_is_not_there_cannot_have_been_labelled() -> None:
    store = MemoryStore()
    log = SnapshotLog(store, tokens())
    for entry in (GenerationOpened(1, 0, 1, 65, 0), SnapshotComplete(1, 1, False, REF, 0, 65), SnapshotDeleted(1, 1)):
        log.append(entry)
    with pytest.raises(ValueError, match="snapshot 1 is labelled, and does not exist"):
        log.append(SnapshotLabelled(1, 1, "mine"))
    assert entries(store) == 3


def test_records_of_earlier_releases_mean_what_they_meant() -> None:
    said = msgspec.to_builtins(SnapshotRecord(1, 1, True, REF, "mine"))
    del said["kept_by_label"]
    record = msgspec.convert(said, SnapshotRecord)
    assert record == SnapshotRecord(1, 1, True, REF, "mine")
    assert relabeled(record, "", None).requested, "a user asked for it, by whatever name"


def test_retention_spares_what_has_a_label_and_takes_it_once_it_has_none() -> None:
    records = tuple(SnapshotRecord(checkpoint, 1, False, REF) for checkpoint in (1, 2, 3))
    mine = relabeled(records[0], "mine", None)
    view = LogView(owner=1, snapshots=(mine, *records[1:]))
    assert expired(view, 1, ()) == [2]
    assert expired(LogView(owner=1, snapshots=(relabeled(mine, "", None), *records[1:])), 1, ()) == [1, 2]


# -- a driver carries it out ----------------------------------------------------


def test_a_driver_labels_what_it_is_asked_to_and_keeps_it() -> None:
    store = MemoryStore()
    driver = Driver(store, Target(), retained=1)
    driver.start()
    driver.checkpoint()
    ownership.request_change(store, rq.LabelSnapshot(1, "mine", "by hand"), ask=Asker(driver))
    assert requests_of(store) == []
    for _ in range(3):
        driver.checkpoint()
    assert kept(store) == {1: ("mine", "by hand", True), 4: ("", "", False)}
    ownership.request_change(store, rq.LabelSnapshot(1, ""), ask=Asker(driver))
    assert kept(store)[1] == ("", "by hand", False)
    driver.checkpoint()
    assert kept(store) == {5: ("", "", False)}, "it is as any other again"


def test_one_that_was_asked_for_stays_without_its_label() -> None:
    store = MemoryStore()
    driver = Driver(store, Target(), retained=1)
    driver.start()
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, "mine", ticket=1))
    driver.acknowledge(1)
    driver.work()
    ownership.request_change(store, rq.LabelSnapshot(1, ""), ask=Asker(driver))
    for _ in range(2):
        driver.checkpoint()
    assert kept(store) == {1: ("", "", True), 3: ("", "", False)}


def test_what_is_so_already_takes_no_entry_and_one_that_is_gone_is_refused() -> None:
    store = MemoryStore()
    driver = a_driver(store)
    ownership.request_change(store, rq.LabelSnapshot(2, "mine"), ask=Asker(driver))
    before = entries(store)
    ownership.request_change(store, rq.LabelSnapshot(2, "mine", ""), ask=Asker(driver))
    assert entries(store) == before
    with pytest.raises(LocationError, match="no snapshot chk-9 any more"):
        ownership.request_change(store, rq.LabelSnapshot(9, "mine"), ask=Asker(driver))
    end(driver)
    with pytest.raises(LocationError, match="no snapshot chk-9 any more"):
        ownership.request_change(store, rq.LabelSnapshot(9, "mine"), ask=Asker(None))
    assert kept(store)[2] == ("mine", "", True)


def test_the_next_driver_knows_and_goes_on_from_the_same() -> None:
    store, target = MemoryStore(), Target()
    driver = a_driver(store, target=target)
    end(driver)
    ownership.request_change(store, rq.LabelSnapshot(3, "mine"), ask=Asker(None))
    successor = Driver(store, target, "B", retained=1)
    assert successor.start().opened.restored == 3
    for _ in range(2):
        successor.checkpoint()
    assert [label for label, _, _ in kept(store).values()] == ["mine", ""]


# -- the command ----------------------------------------------------


def label_of(place: Path, name: str) -> tuple[str, str, str]:
    listed = json.loads(penstock("list", place, "--json").output)["snapshots"]
    line = next(one for one in listed if one["id"] == name)
    return line["label"], line["note"], line["kind"]


def test_the_command_gives_and_takes_labels(location: Path) -> None:  # noqa: F811
    said = penstock("label", location, "chk-2", "--label", "mine", "--note", "by [hand]")
    assert (said.exit_code, said.output) == (0, "chk-2 is called 'mine', requested\n")
    assert label_of(location, "chk-2") == ("mine", "by [hand]", "requested")
    assert "note: by [hand]" in penstock("show", location, "mine").output
    as_json = json.loads(penstock("label", location, "mine", "--remove", "--json").output)
    assert as_json == {"snapshot": "chk-2", "label": "", "note": "by [hand]", "kind": "periodic"}
    assert penstock("label", location, "2", "--note", "").output == "chk-2 has no label, periodic\n"
    assert label_of(location, "chk-2") == ("", "", "periodic")
    assert penstock("verify", location).exit_code == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["chk-2"], "--label L, --remove or --note N"),
        (["chk-2", "--label", ""], "choose one"),
        (["chk-2", "--label", "mine", "--remove"], "choose one"),
        (["chk-2", "--label", "x" * 201], "201 characters"),
        (["chk-7", "--label", "mine"], "no snapshot 'chk-7'"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    location: Path,  # noqa: F811
    words: list[str],
    reason: str,
) -> None:
    before = sorted(location.rglob("*"))
    said = penstock("label", location, *words)
    assert said.exit_code == (1 if "chk-7" in reason else 2)
    assert reason in said.stderr
    assert said.stderr.count("\n") == 1
    assert sorted(location.rglob("*")) == before


def test_a_driver_that_may_run_is_only_passed_over_by_force(location: Path) -> None:  # noqa: F811
    forget_that_it_ended(location)
    refused = penstock("label", location, "chk-2", "--label", "mine")
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert penstock("label", location, "chk-2", "--label", "mine", "--force").exit_code == 0
    assert label_of(location, "chk-2") == ("mine", "", "requested")


def test_archives_forks_and_portable_copies_have_the_label_that_it_has_now(
    location: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert penstock("label", location, "chk-2", "--label", "mine").exit_code == 0
    assert penstock("copy", location, "mine", tmp_path / "archive").exit_code == 0
    assert label_of(tmp_path / "archive", "chk-2") == ("mine", "", "requested")
    assert penstock("label", tmp_path / "archive", "mine", "--label", "copied").exit_code == 0
    assert penstock("label", tmp_path / "archive", "copied", "--remove").exit_code == 0
    assert label_of(tmp_path / "archive", "chk-2") == ("", "", "requested"), "copies stay"
    assert penstock("fork", location, "mine", tmp_path / "fork").exit_code == 0
    assert label_of(tmp_path / "fork", "chk-2") == ("mine", "", "periodic"), "a fork need not keep what it began with"
    assert penstock("label", tmp_path / "fork", "mine", "--label", "mine").exit_code == 0
    assert label_of(tmp_path / "fork", "chk-2") == ("mine", "", "requested")
    exported = penstock("export", location, "mine", tmp_path / "portable")
    assert exported.exit_code == 0, exported.stderr
    manifest = json.loads((tmp_path / "portable" / "manifest.json").read_bytes())
    assert manifest["body"]["metadata"]["label"] == "mine"
    for place in (location, tmp_path / "archive", tmp_path / "fork"):
        assert penstock("verify", place).exit_code == 0


def test_a_broken_entry_is_named(location: Path) -> None:  # noqa: F811
    assert penstock("label", location, "chk-2", "--label", "mine").exit_code == 0
    entry = next(path for path in (location / "log").iterdir() if b"snapshot-labelled" in path.read_bytes())
    entry.write_bytes(entry.read_bytes().replace(b"mine", b"your"))
    refused = penstock("list", location)
    assert (refused.exit_code, entry.name in refused.stderr) == (1, True)
    assert issubclass(CorruptSnapshot, LocationError)
