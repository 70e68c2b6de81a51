"""The commands ``copy``, ``move``, ``fork`` and ``rollback`` at locations on disk."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands.copying import copy_snapshots
from penstock.snapshots.fork import Origin, start_fork
from penstock.snapshots.format.envelope import digest
from penstock.snapshots.history.reading import History
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.location import claim_identity, identity_of, open_location, read_identity
from penstock.snapshots.log.entries import MetadataRef
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from penstock.snapshots.transfer import SnapshotTransfer
from tests.support.snapshots.history_kit import entry
from tests.support.snapshots.location_kit import flip
from tests.support.snapshots.snapshot_kit import Driver, Target, graph
from tests.unit.cli.test_requests_cli import forget_that_it_ended, ids, location, penstock  # noqa: F401 - the fixture
from tests.unit.snapshots.test_requests import end

pytestmark = pytest.mark.usefixtures("location")


@pytest.fixture
def archive(location: Path, tmp_path: Path) -> Path:  # noqa: F811
    assert penstock("copy", location, tmp_path / "archive").exit_code == 0
    return tmp_path / "archive"


def refused(*words: str | Path, code: int = 1) -> str:
    """One line, and this code."""
    said = penstock(*words)
    assert said.exit_code == code, said.output
    assert said.stderr.count("\n") == 1
    return said.stderr


def intact(place: Path) -> bool:
    return penstock("verify", place).exit_code == 0


# -- copy ----------------------------------------------------


def test_copies_are_links_and_outlive_their_origin(location: Path, archive: Path) -> None:  # noqa: F811
    name = "data/1-1-0-state.arrows"
    assert (archive / name).samefile(location / name)
    assert ids(archive) == [1, 2, 3, 4]
    assert intact(archive)
    assert penstock("delete", location, "chk-1").exit_code == 0
    assert ids(archive) == [1, 2, 3, 4]
    assert intact(archive)


def test_a_nightly_copy_brings_what_is_new(location: Path, archive: Path) -> None:  # noqa: F811
    entries = len(list((archive / "log").iterdir()))
    assert "0 snapshots copied" in penstock("copy", location, archive).output
    assert len(list((archive / "log").iterdir())) == entries, "nothing to do writes nothing"
    driver = Driver(LocalStore(location), Target(), "B", retained=100)
    driver.start()
    new = driver.checkpoint()
    said = json.loads(penstock("copy", location, archive, "--json").output)
    assert (said["copied"], said["present"]) == ([f"chk-{new}"], ["chk-1", "chk-2", "chk-3", "chk-4"])
    assert intact(archive)


def test_every_reading_verb_works_on_an_archive(archive: Path, tmp_path: Path) -> None:
    listed = penstock("list", archive)
    assert listed.output.count("a copy") == 4
    assert "not in the lineage" not in listed.output
    for words in (["show", "chk-2"], ["verify", "chk-2"], ["diff", "chk-1", "chk-2"]):
        assert penstock(words[0], archive, *words[1:]).exit_code == 0
    assert penstock("export", archive, "chk-3", tmp_path / "portable").exit_code == 0
    assert penstock("copy", archive, "chk-2", tmp_path / "second").exit_code == 0
    assert ids(tmp_path / "second") == [2]


def test_copies_are_deleted_as_snapshots_are_the_newest_too(archive: Path) -> None:
    (archive / "data" / "1-9-0.arrows").write_text("left by a copy that was killed")
    assert penstock("delete", archive, "chk-4", "chk-1").exit_code == 0
    assert ids(archive) == [2, 3]
    assert "1 file" in penstock("gc", archive).output
    assert sorted(path.name for path in (archive / "data").iterdir()) == ["1-2-0-state.arrows", "1-3-0-state.arrows"]
    assert intact(archive)


def test_what_needs_a_query_is_refused_at_an_archive(archive: Path, location: Path) -> None:  # noqa: F811
    assert "only a running one can take a snapshot" in refused("take", archive)
    assert "this is an archive" in refused("rollback", archive, "chk-2")
    store = LocalStore(archive)
    with pytest.raises(LocationError, match=r"this is an archive.*startFrom.*another checkpointLocation"):
        claim_identity(store, identity_of(graph(1), "query-9"))
    assert read_identity(store).query_id == read_identity(LocalStore(location)).query_id


def test_only_copies_of_one_query_come_into_an_archive(location: Path, archive: Path, tmp_path: Path) -> None:  # noqa: F811
    other = open_location(str(tmp_path / "other"))
    claim_identity(other, identity_of(graph(1), "query-2"))
    driver = Driver(other, Target(), query_id="query-2")
    driver.start()
    driver.checkpoint()
    assert "every query needs an archive of its own" in refused("copy", tmp_path / "other", archive)
    assert "is the checkpoint location of a query" in refused("copy", location, tmp_path / "other")
    assert "there is no snapshot 'chk-9'" in refused("copy", location, "chk-9", archive)
    assert "there is no such folder" in refused("copy", tmp_path / "nowhere", archive)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").touch()
    assert "not Penstock's" in refused("copy", location, tmp_path / "notes")


def test_a_damaged_snapshot_is_named_and_the_others_come(location: Path, tmp_path: Path) -> None:  # noqa: F811
    flip(location / "data" / "1-2-0-state.arrows")
    said = refused("copy", location, tmp_path / "archive")
    assert "chk-2: section" in said
    assert "All others" in said
    assert ids(tmp_path / "archive") == [1, 3, 4]
    assert not (tmp_path / "archive" / "data" / "1-2-0-state.arrows").exists()
    assert intact(tmp_path / "archive")


def test_an_archive_that_another_copy_did_not_end_needs_force(location: Path, archive: Path) -> None:  # noqa: F811
    penstock("delete", archive, "chk-2")
    forget_that_it_ended(archive)
    assert "another command is writing to this archive" in refused("copy", location, archive)
    assert penstock("copy", location, archive, "--force").exit_code == 0
    assert ids(archive) == [1, 2, 3, 4]


def test_what_the_owner_deletes_meanwhile_is_left_out(location: Path, tmp_path: Path) -> None:  # noqa: F811
    origin, here = LocalStore(location), open_location(str(tmp_path / "archive"))

    def delete(done: int, total: int) -> None:
        if done == 1:
            assert penstock("delete", location, "chk-2", "chk-3").exit_code == 0

    copied = copy_snapshots(origin, here, progress=delete)
    assert (copied.copied, copied.deleted) == ([1, 4], [2, 3])
    copied.check([])
    with pytest.raises(LocationError, match="chk-2, chk-3 was deleted while it was copied"):
        copied.check(["chk-2"])
    assert intact(tmp_path / "archive")


def test_one_starts_from_a_copy(archive: Path, tmp_path: Path) -> None:
    store = open_location(str(tmp_path / "fork"))
    identity = claim_identity(store, identity_of(graph(1), "query-2", "query-1"))
    with pytest.raises(LocationError, match=r"say which with .*#<snapshot>: chk-4, chk-3, chk-2, chk-1"):
        start_fork(Origin(str(archive)), store, identity, graph(1))
    begins_with = start_fork(Origin(str(archive), "chk-2"), store, identity, graph(1))
    ready = Driver(store, Target(), query_id="query-2", forked=begins_with).start()
    assert (ready.opened.restored, ready.opened.generation) == (2, 2)


# -- move ----------------------------------------------------


def test_a_moved_query_leaves_its_log_behind(location: Path, tmp_path: Path) -> None:  # noqa: F811
    moved = tmp_path / "moved"
    SegmentWriter(LocalStore(location)).append([entry(3), entry(4)])
    assert "4 snapshots" in penstock("move", location, moved).output
    assert [one.checkpoint for one in History(LocalStore(moved)).page(None, 9)] == [4, 3]
    assert ids(moved) == [1, 2, 3, 4]
    assert intact(moved)
    assert {path.parent.name for path in location.rglob("*") if path.is_file()} == {"chk", "log"}
    assert "was moved away" in " ".join(penstock("list", location).output.split())
    for words in (["delete", "chk-1"], ["gc"], ["take"], ["rollback", "chk-1"], ["fork", "chk-1", str(tmp_path / "f")]):
        assert "was moved to another one" in refused(words[0], location, *words[1:])
    assert penstock("move", location, moved).exit_code == 0, "it is done"
    assert "to another place" in refused("move", location, tmp_path / "elsewhere")
    assert not (moved / "moving.json").exists()


def test_nothing_starts_at_a_target_that_is_not_complete(location: Path, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "target").mkdir()
    assert penstock("move", location, tmp_path / "moved").exit_code == 0
    (tmp_path / "target" / "moving.json").write_bytes(b"{}")
    with pytest.raises(LocationError, match="a query is being moved here"):
        open_location(str(tmp_path / "target"))


def test_a_move_is_refused_where_something_is(location: Path, archive: Path) -> None:  # noqa: F811
    assert "holds a query already" in refused("move", location, archive)
    forget_that_it_ended(location)
    assert "--force" in refused("move", location, archive.with_name("moved"))
    assert penstock("move", location, archive.with_name("moved"), "--force").exit_code == 0


def test_a_damaged_query_stays_where_it_is(location: Path, tmp_path: Path) -> None:  # noqa: F811
    flip(location / "data" / "1-2-0-state.arrows")
    assert "1-2-0-state.arrows" in refused("move", location, tmp_path / "moved")
    assert ids(location) == [1, 2, 3, 4]
    assert Driver(LocalStore(location), Target(), "B").start().opened.restored == 4


def test_single_snapshots_are_moved_into_an_archive(location: Path, tmp_path: Path) -> None:  # noqa: F811
    words = ["move", location, tmp_path / "archive", "--snapshot", "chk-1", "--snapshot", "chk-3"]
    assert penstock(*words).exit_code == 0
    assert (ids(location), ids(tmp_path / "archive")) == ([2, 4], [1, 3])
    assert intact(location)
    assert intact(tmp_path / "archive")
    assert penstock(*words).exit_code == 0, "it is done"
    assert "is the newest snapshot" in refused("move", location, tmp_path / "archive", "--snapshot", "chk-4")
    assert "there is no snapshot 'chk-9'" in refused("move", location, tmp_path / "archive", "--snapshot", "chk-9")


# -- fork, rollback ----------------------------------------------------


def test_a_fork_is_made_once_and_begins_with_its_snapshot(location: Path, tmp_path: Path) -> None:  # noqa: F811
    fork = tmp_path / "fork"
    first = json.loads(penstock("fork", location, "chk-3", fork, "--json").output)
    assert json.loads(penstock("fork", location, "3", fork, "--json").output) == first
    assert first["origin"] == "query-1"
    assert "begins with chk-3 already" in refused("fork", location, "chk-2", fork)
    store = LocalStore(fork)
    assert start_fork(None, store, read_identity(store), graph(1)) is None
    driver = Driver(store, Target(), query_id=first["query_id"])
    assert driver.start().opened.restored == 3
    assert driver.checkpoint() > 3
    assert intact(fork)
    assert "holds something else" in refused("fork", location, "chk-3", location)


def test_a_fork_of_nothing_leaves_nothing(location: Path, tmp_path: Path) -> None:  # noqa: F811
    flip(location / "data" / "1-2-0-state.arrows")
    assert "chk-2 is not whole" in refused("fork", location, "chk-2", tmp_path / "fork")
    assert not [path for path in (tmp_path / "fork").rglob("*") if path.is_file()]
    assert "there is no snapshot 'chk-9'" in refused("fork", location, "chk-9", tmp_path / "fork")


def test_a_rollback_is_shown_and_undone_by_nothing(location: Path) -> None:  # noqa: F811
    assert "--output retract" in refused("rollback", location, "chk-2")
    assert "choose retract or keep" in refused("rollback", location, "chk-2", "--output", "both", code=2)
    said = json.loads(penstock("rollback", location, "chk-2", "--output", "keep", "--json").output)
    assert said == {"snapshot": "chk-2", "left": ["chk-3", "chk-4"], "retracts": False, "changed": True}
    assert penstock("list", location).output.count("not in the lineage") == 2
    assert intact(location)
    assert "as it is" in penstock("rollback", location, "chk-2", "--output", "keep").output
    driver = Driver(LocalStore(location), Target(), "B", retained=100)
    assert driver.start().opened.restored == 2
    assert "no driver answers" in refused("rollback", location, "chk-1", "--output", "keep")
    end(driver)


def test_a_rollback_to_a_damaged_snapshot_is_refused(location: Path) -> None:  # noqa: F811
    flip(location / "data" / "1-2-0-state.arrows")
    assert "1-2-0-state.arrows" in refused("rollback", location, "chk-2", "--output", "keep")
    flip(location / "snapshots" / "chk-4" / "metadata.json")
    assert penstock("rollback", location, "chk-3", "--output", "retract").exit_code == 0, "away from a damaged one"
    assert SnapshotLog(LocalStore(location)).refresh().lineage[-1].checkpoint == 3


def test_a_forged_length_or_path_is_damage_and_nothing_is_read(location: Path, tmp_path: Path) -> None:  # noqa: F811
    store = LocalStore(location)
    (record,) = [r for r in SnapshotLog(store).refresh().snapshots if r.checkpoint == 2]
    metadata = Catalog(store).read(record)
    for changes, reason in (({"length": 1 << 35}, "the file has only"), ({"path": "../../etc/passwd"}, "leads out of")):
        (state,) = [s for slot in metadata.slots for subtask in slot.subtasks for s in subtask.states][:1]
        forged = msgspec.json.encode(metadata).replace(
            msgspec.json.encode(state.section), msgspec.json.encode(msgspec.structs.replace(state.section, **changes))
        )
        here = open_location(str(tmp_path / reason.replace(" ", "-")))
        ref = MetadataRef(record.metadata.path, len(forged), digest(forged))
        (location / record.metadata.path).write_bytes(forged)
        with pytest.raises(CorruptSnapshot, match=reason):
            SnapshotTransfer(store, here).copy_snapshot(
                msgspec.structs.replace(record, metadata=ref), msgspec.json.decode(forged, type=SnapshotMetadata)
            )
