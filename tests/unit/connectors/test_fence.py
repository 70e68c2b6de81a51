"""Fenced outputs: drivers on copies of one location, outputs of earlier releases, and users' sinks with a fence."""

from __future__ import annotations

import base64
import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors import fence
from penstock.connectors.base import FenceOpener, Sink, SinkCommitter, SinkContext
from penstock.connectors.files import private_directory as private_home
from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink import FileSink, FileSizes
from penstock.connectors.files.sink_committer import FORMAT_VERSION, FileSinkCommitter
from penstock.connectors.files.sink_retraction import retract_files
from penstock.errors import Fenced, SinkError, SinkFenced
from penstock.model.commits import EpochCommit, LogPosition
from tests.support.connectors.file_sinks import KINDS, batch, sink, visible
from tests.support.connectors.kits import QUERY_ID
from tests.support.places import GOLDEN
from tests.unit.connectors.test_table_sink import Writer, keys, sink_at
from tests.unit.connectors.test_table_sink import batch as table_batch


@dataclass
class Location:
    """The log of a location, as a fence sees it."""

    path: str
    log: list[str] = field(default_factory=lambda: [secrets.token_hex(16)])
    owned: bool = True
    left_at: int = 0

    def copied(self, path: str) -> Location:
        return Location(path, list(self.log))

    def logs(self) -> LogPosition:
        """A snapshot is complete."""
        self.log.append(secrets.token_hex(16))
        return self.newest

    @property
    def newest(self) -> LogPosition:
        return LogPosition(len(self.log), self.log[-1])

    def opener(self, over: Collection[str] = (), has_snapshot: bool = True) -> FenceOpener:
        def check_owned() -> None:
            if not self.owned:
                raise Fenced("another driver")

        return FenceOpener(
            QUERY_ID,
            self.newest,
            self.path,
            lambda position: self.log[position.seq - 1 : position.seq] == [position.token],
            check_owned,
            lambda: secrets.token_hex(16),
            over,
            has_snapshot,
            self.left_at,
        )


class Driver:
    """A driver and its slots."""

    def __init__(self, made: Sink, location: Location, generation: int = 1) -> None:
        self.made = made
        self.location = location
        self.generation = generation
        self.token = ""
        self.committer: SinkCommitter = made.create_committer()
        self.committer.open(QUERY_ID)

    def fence(self, over: Collection[str] = ()) -> Driver:
        opener = self.location.opener(over)
        self.committer.check_fence(opener)
        self.token = self.committer.fence(opener)
        return self

    def stage(self, epoch: int, rows: pa.RecordBatch) -> EpochCommit:
        """An epoch whose snapshot is complete."""
        writer = self.made.create_writer()
        writer.open(SinkContext(QUERY_ID, self.generation, 0, 1, secrets.token_hex(4), 1, self.token))
        writer.write(rows)
        message = writer.prepare(epoch)
        assert message is not None
        return EpochCommit(QUERY_ID, epoch, {0: message}, epoch, self.location.logs())


def seen(made: FileSink) -> list[int]:
    return sorted(int(value) for value in visible(Path(made.path), made.file_format).elements())


@pytest.fixture(autouse=True)
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSinkCommitter, "_set_timer", lambda self, least_s: None)


def test_a_driver_that_loses_the_output_before_it_has_prepared_the_work_directory_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one, two = Driver(made, origin), Driver(made, origin.copied("/b"))

    def opened_and_lost(own: fence.Fence, opener: FenceOpener) -> str:
        monkeypatch.undo()
        token = own.open(opener)
        two.fence()
        return token

    monkeypatch.setattr(fence.Fence, "open", opened_and_lost)
    with pytest.raises(SinkFenced):
        one.fence()
    two.committer.commit(two.stage(1, batch(1)))
    assert seen(made) == [1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept_back", [False, True])
def test_a_fenced_driver_publishes_nothing_and_is_refused_once_another_copy_has(
    tmp_path: Path, kind: str, kept_back: bool
) -> None:
    made = sink(tmp_path, kind, sizes=FileSizes(3_600_000 if kept_back else 0))
    origin = Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1, kind=kind)))
    copy = origin.copied("/b")
    late = one.stage(2, batch(2, kind=kind))
    two = Driver(made, copy).fence()
    with pytest.raises(SinkFenced):
        one.committer.commit(late)
    with pytest.raises(SinkFenced):
        one.committer.check_held()
    with pytest.raises(SinkError, match="cannot write"):
        one.stage(3, batch(3, kind=kind))
    one.committer.close()
    two.committer.commit(two.stage(2, batch(20, kind=kind)))
    with pytest.raises(SinkError, match=r"newer output of query .* than checkpointLocation /a knows of, .*'/b'.*rollb"):
        one.fence()
    with pytest.raises(SinkError, match="newer output"):
        Driver(made, origin).fence()
    Driver(made, copy).fence().committer.close()
    assert seen(made) == [1, 20]


def test_opening_alone_locks_nobody_out(tmp_path: Path) -> None:
    """A copy that is started by mistake and writes nothing: the origin goes on with what it had staged."""
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    two = Driver(made, origin.copied("/b"), generation=9).fence()
    pending = one.stage(2, batch(2)) if one.fence() else None
    two.committer.abandon(9)
    assert pending is not None
    two = Driver(made, two.location, generation=9).fence()
    two.committer.abandon(9)
    with pytest.raises(SinkFenced):
        one.committer.commit(pending)
    one.fence().committer.commit(pending)
    assert seen(made) == [1, 2]
    with pytest.raises(SinkError, match="newer output"):
        two.fence()


def test_an_epoch_that_a_logged_snapshot_covers_is_pending(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    permit = one.stage(1, batch(1))
    backup = origin.copied("/a")
    one.committer.commit(permit)
    origin.logs()
    again = Driver(made, backup).fence()
    again.committer.commit(permit)
    assert seen(made) == [1]


def test_what_another_copy_staged_goes_once_this_one_has_written(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin, generation=3).fence()
    one.stage(1, batch(1))
    two = Driver(made, origin.copied("/b"), generation=4).fence()
    two.committer.abandon(3)
    files = lambda: [path.name for path in tmp_path.glob(f"{HOME}/work/*/staged/*")]  # noqa: E731
    assert [name[:2] for name in files()] == ["g3"]
    two.committer.commit(two.stage(1, batch(2)))
    assert (files(), seen(made)) == ([], [2])


def test_what_another_copy_staged_stays_after_an_epoch_that_both_have_pending(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    shared = one.stage(1, batch(1))
    copy = origin.copied("/b")
    one.committer.commit(shared)
    pending = one.stage(2, batch(2))
    two = Driver(made, copy, generation=5).fence()
    two.committer.commit(shared)
    two.committer.abandon(4)
    one.fence().committer.commit(pending)
    assert seen(made) == [1, 2]


def test_a_driver_that_loses_the_output_while_it_takes_rows_back_removes_none(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    bundles, roller = one.committer._bundles, one.committer._roller  # type: ignore[attr-defined]
    gone = tmp_path / HOME / "work" / secrets.token_hex(16) / "trash"
    with pytest.raises(FileNotFoundError):
        retract_files(tmp_path, QUERY_ID, bundles, roller, 0, 9, gone)
    assert seen(made) == [1]


def test_a_stale_driver_of_the_same_location_goes_no_further_than_its_entry(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    stale, successor = Driver(made, origin), Driver(made, origin).fence()
    late = replace(stale.location.opener(), check_owned=Location("/a", owned=False).opener().check_owned)
    with pytest.raises(Fenced):
        stale.committer.fence(late)
    successor.committer.commit(successor.stage(1, batch(1)))
    assert seen(made) == [1]


def test_a_driver_that_has_the_output_keeps_it(tmp_path: Path) -> None:
    one = Driver(sink(tmp_path), Location("/a")).fence()
    token = one.token
    assert one.fence().token == token
    assert len(list((tmp_path / HOME / "fence").iterdir())) == 1


def test_an_output_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """The file system was unmounted: rows would be written to the directory below the mount point."""
    made = sink(tmp_path / "out")
    one = Driver(made, Location("/a")).fence()
    one.committer.commit(one.stage(1, batch(1)))
    permit = one.stage(2, batch(2))
    shutil.move(tmp_path / "out", tmp_path / "away")
    with pytest.raises(SinkError) as failed:
        one.committer.commit(permit)
    assert not isinstance(failed.value, SinkFenced)
    with pytest.raises(SinkError, match="not the one that was here before"):
        one.fence()
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    shutil.move(tmp_path / "away", tmp_path / "out")
    one.fence().committer.commit(permit)
    assert seen(made) == [1, 2]


def test_a_rollback_adopts_and_takes_back_what_another_copy_wrote(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    copy = origin.copied("/b")
    two = Driver(made, copy).fence()
    two.committer.commit(two.stage(7, batch(70)))
    over = [copy.newest.name]
    assert not one.committer.check_fence(origin.opener(over))
    origin.logs()
    one.fence(over)
    assert one.committer.newest_epoch() == 7
    assert one.committer.next_batch() == 8
    with pytest.raises(SinkFenced):
        two.committer.retract(0, 100)
    assert seen(made) == [1, 70], "a fenced driver removes nothing"
    one.committer.retract(1, 1 << 53)
    assert seen(made) == [1]
    assert Driver(made, origin).fence().token, "it is this location's output from now on"
    with pytest.raises(SinkError, match="newer output"):
        Driver(made, copy).fence()


def test_a_rollback_goes_over_what_was_told_and_over_nothing_newer(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    copy = origin.copied("/b")
    two = Driver(made, copy).fence()
    two.committer.commit(two.stage(2, batch(20)))
    told = copy.newest.name
    with pytest.raises(SinkError, match=f"--over {told}. and --output keep"):
        one.fence()
    two.committer.commit(two.stage(3, batch(30)))
    with pytest.raises(SinkError, match=f"--over {copy.newest.name}. and"):
        one.fence([told])
    origin.logs()
    one.fence([told, copy.newest.name])
    with pytest.raises(SinkError, match=f"written by the location at '/a'.*--over {origin.newest.name}"):
        two.fence([told])


def test_what_is_recorded_never_goes_back(tmp_path: Path) -> None:
    """Two epochs were committed, and the log does not say so: the older one is committed again first."""
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    permits = [one.stage(1, batch(1))]
    copy = origin.copied("/b")
    permits.append(one.stage(2, batch(2)))
    for permit in permits:
        one.committer.commit(permit)
    again = Driver(made, origin).fence()
    again.committer.commit(permits[0])
    with pytest.raises(SinkError, match="newer output"):
        Driver(made, copy).fence()
    again.committer.commit(permits[1])
    assert seen(made) == [1, 2]


def test_a_rollback_without_a_foreign_output_leaves_what_another_copy_staged(tmp_path: Path) -> None:
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    copy = origin.copied("/b")
    two = Driver(made, copy).fence()
    pending = two.stage(2, batch(2))
    rolled_back = Driver(made, origin, generation=5).fence(over=["7-12345678"])
    rolled_back.committer.abandon(4)
    Driver(made, copy).fence().committer.commit(pending)
    assert seen(made) == [1, 2]


def test_an_output_that_is_held_is_kept_from_copies_before_anything_is_written(tmp_path: Path) -> None:
    """Input was cleaned away, or another output of the query was committed to."""
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    copy = origin.copied("/b")
    one.committer.hold(origin.logs())
    with pytest.raises(SinkError, match="newer output"):
        Driver(made, copy).fence()
    two = Driver(made, origin.copied("/c")).fence()
    with pytest.raises(SinkFenced):
        one.committer.hold(origin.logs())
    two.committer.commit(two.stage(1, batch(1)))
    assert seen(made) == [1]


@pytest.mark.parametrize("opens_again", [False, True])
def test_a_location_that_leaves_a_snapshot_keeps_copies_out_that_have_it(tmp_path: Path, opens_again: bool) -> None:
    """The copy has an epoch that awaits its commit; the origin was rolled back to before it, and writes nothing."""
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    pending = one.stage(2, batch(2))
    copy = Driver(made, origin.copied("/b"))
    origin.logs()
    origin.left_at = origin.newest.seq
    (one if opens_again else Driver(made, origin)).fence()
    with pytest.raises(SinkError, match=r"newer output of query .* by the location at '/a'"):
        copy.fence()
    assert pending.position is not None
    assert seen(made) == [1]


def test_a_location_without_a_snapshot_cannot_be_rolled_back(tmp_path: Path) -> None:
    """The way out that it is told works: the output is given to a query at a location of its own."""
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    before = origin.copied("/b")
    one.committer.commit(one.stage(1, batch(1)))
    with pytest.raises(SinkError, match="delete this one, which has no snapshot, and begin anew at an empty") as told:
        Driver(made, before).committer.check_fence(before.opener(has_snapshot=False))
    assert "rollback" not in str(told.value)
    new = made.create_committer()
    with pytest.raises(SinkError, match=r"or delete .*/owner.json if that query is gone for good"):
        new.open("another-query")
    (tmp_path / HOME / "owner.json").unlink()
    new.open("another-query")
    opener = replace(Location("/new").opener(), query_id="another-query")
    assert new.check_fence(opener)
    assert new.fence(opener)
    assert new.next_batch() == 0
    with pytest.raises(SinkFenced):
        one.committer.check_held()


def test_an_output_of_a_later_release_is_refused(tmp_path: Path) -> None:
    made, owner = sink(tmp_path), tmp_path / HOME / "owner.json"
    Driver(made, Location("/a"))
    told = json.loads(owner.read_text())
    owner.write_text(json.dumps({**told, "format_version": told["format_version"] + 1}))
    with pytest.raises(SinkError, match="of a later release"):
        Driver(made, Location("/a"))


def test_an_output_on_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SMB and exFAT have none. A driver that dies at the wrong moment leaves an empty entry."""

    def no_link(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", no_link)
    made, origin = sink(tmp_path), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    (tmp_path / HOME / "fence" / f"{2:020d}.json").touch(exist_ok=False)
    late = one.stage(2, batch(2))
    two = Driver(made, origin.copied("/b")).fence()
    with pytest.raises(SinkFenced):
        one.committer.commit(late)
    two.committer.commit(two.stage(2, batch(20)))
    with pytest.raises(SinkError, match="newer output"):
        one.fence()
    assert seen(made) == [1, 20]


def test_a_mirror_with_work_directories_that_are_gone_at_its_origin(tmp_path: Path) -> None:
    """The output is a copy by ``rsync`` without ``--delete``."""
    made, origin = sink(tmp_path / "out"), Location("/a")
    one = Driver(made, origin).fence()
    one.committer.commit(one.stage(1, batch(1)))
    shutil.copytree(tmp_path / "out", tmp_path / "mirror")
    two = Driver(made, origin).fence()
    pending = two.stage(2, batch(2))
    shutil.copytree(tmp_path / "out", tmp_path / "mirror", dirs_exist_ok=True)
    mirrored = sink(tmp_path / "mirror")
    assert len(list((tmp_path / "mirror" / HOME / "work").iterdir())) == 2
    Driver(mirrored, origin).fence().committer.commit(pending)
    assert seen(mirrored) == [1, 2]


# -- tables --------------------------------------------------------------------------------------------------------


def table(tmp_path: Path, name: str, location: Location, writer: Writer) -> Driver:
    made, _ = sink_at(tmp_path / name, writer)
    return Driver(made, location)


@pytest.mark.parametrize("moment", ["before", "while Spark writes"])
def test_a_fenced_driver_adds_nothing_to_a_table(tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, origin = Writer(tmp_path / "table"), Location("/a")
    one = table(tmp_path, "one", origin, writer).fence()
    one.committer.commit(one.stage(1, table_batch(1)))
    late, copy = one.stage(2, table_batch(2)), origin.copied("/b")
    copy.log.pop()
    two = table(tmp_path, "two", copy, writer)
    write: Callable[..., None] = writer.write

    def slow(files: Any, columns: str, directory: str) -> None:
        monkeypatch.setattr(writer, "write", write)
        two.fence()
        two.committer.commit(two.stage(2, table_batch(20)))
        write(files, columns, directory)

    if moment == "before":
        two.fence()
    else:
        monkeypatch.setattr(writer, "write", slow)
    with pytest.raises(SinkFenced):
        one.committer.commit(late)
    if moment == "before":
        two.committer.commit(two.stage(2, table_batch(20)))
    assert keys(writer.location) == [1, 20]
    with pytest.raises(SinkError, match="table t has newer output"):
        one.fence()
    origin.logs()
    one.fence(over=[copy.newest.name])
    assert one.committer.newest_epoch() == 2
    assert one.committer.next_batch() == 3
    with pytest.raises(SinkFenced):
        two.committer.retract(0, 9)
    assert keys(writer.location) == [1, 20], "a fenced driver removes nothing"
    one.committer.retract(1, 1 << 53)
    assert keys(writer.location) == [1]


# -- what earlier releases wrote -----------------------------------------------------------------------------------

FENCES = GOLDEN / "fence"
VERSIONS = sorted(path.name for path in FENCES.glob("*"))
UNFENCED = "1"


class Crash(BaseException):
    """The driver dies here."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_output_goes_on_at_its_location_and_at_no_other(tmp_path: Path, version: str) -> None:
    out = Path(shutil.copytree(FENCES / version / "files", tmp_path / "files"))
    told = json.loads((FENCES / version / "files.json").read_text())
    made, location = sink(out, "csv"), Location("/elsewhere", told["log"] or ["one"])
    assert seen(made) == [1, 2]
    before = sorted(tmp_path.rglob("*"))
    if version != UNFENCED:
        with pytest.raises(SinkError, match=r"newer output .* by the location at '/checkpoints/golden'"):
            Driver(made, Location("/elsewhere", told["log"][:1])).fence()
        assert sorted(tmp_path.rglob("*")) == before, "a start that is refused moves nothing"
    driver = Driver(made, location).fence()
    driver.committer.commit(pending(told, location))
    driver.committer.close()
    assert seen(made) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_table_goes_on_at_its_location_and_at_no_other(tmp_path: Path, version: str) -> None:
    writer = Writer(Path(shutil.copytree(FENCES / version / "table", tmp_path / "table")))
    log = json.loads((FENCES / version / "table.json").read_text())["log"] or ["one"]
    before = sorted(tmp_path.rglob("*"))
    if version != UNFENCED:
        with pytest.raises(SinkError, match="table t has newer output"):
            table(tmp_path, "one", Location("/elsewhere", log[:1]), writer).fence()
        assert sorted(tmp_path.rglob("*")) == before, "a start that is refused moves nothing"
    driver = table(tmp_path, "one", Location("/elsewhere", log), writer).fence()
    driver.committer.commit(driver.stage(2, table_batch(3, 4)))
    driver.committer.commit(driver.stage(3, table_batch(5)))
    assert keys(writer.location) == [1, 2, 3, 4, 5]
    assert driver.committer.newest_epoch() == 3


def pending(told: dict[str, Any], location: Location) -> EpochCommit:
    messages = {int(index): base64.b64decode(data) for index, data in told["pending"].items()}
    return EpochCommit(QUERY_ID, 3, messages, 3, location.newest)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_driver_may_die_at_every_step_of_the_move(
    tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each driver dies one step later than the one before, until one does not."""
    out = Path(shutil.copytree(FENCES / version / "files", tmp_path / "files"))
    told = json.loads((FENCES / version / "files.json").read_text())
    made, location = sink(out, "csv"), Location("/elsewhere", told["log"] or ["one"])
    steps_left = deaths = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            nonlocal steps_left
            steps_left -= 1
            if steps_left < 0:
                raise Crash
            return real(*given, **named)

        return step

    for module, name in ((private_home, "create_exclusively"), (os, "rename"), (fence, "replace_durably")):
        monkeypatch.setattr(module, name, dying(getattr(module, name)))
    while True:
        steps_left = deaths
        try:
            driver = Driver(made, location).fence()
            break
        except Crash:
            deaths += 1
    assert deaths >= 3
    steps_left = 1 << 30
    driver.committer.commit(pending(told, location))
    driver.committer.close()
    assert seen(made) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", [version for version in VERSIONS if int(version) < FORMAT_VERSION])
def test_drivers_and_slots_of_an_earlier_release_are_stopped(tmp_path: Path, version: str) -> None:
    """They make what directories they miss below ``_penstock``, whose text says what to do."""
    out = Path(shutil.copytree(FENCES / version / "files", tmp_path / "files"))
    told = json.loads((FENCES / version / "files.json").read_text())
    Driver(sink(out, "csv"), Location("/elsewhere", told["log"] or ["one"])).fence()
    for name in ("staged", "work", "forks/another", f"{QUERY_ID}-sink-0"):
        with pytest.raises(OSError, match="_penstock"):
            (out / "_penstock" / name).mkdir(parents=True, exist_ok=True)
    assert "use that release" in (out / "_penstock").read_text()


def test_what_an_earlier_release_writes_while_its_directory_is_moved_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(FENCES / "1" / "files", tmp_path / "files"))
    told = json.loads((FENCES / "1" / "files.json").read_text())
    made, location, real = sink(out, "csv"), Location("/elsewhere"), os.rename

    def renamed(source: Path, target: Path) -> None:
        real(source, target)
        if source == out / "_penstock" and target == out / HOME:
            (source / "staged").mkdir(parents=True)
            (source / "staged" / "g1-1-0-0.csv").write_text("late")

    monkeypatch.setattr(os, "rename", renamed)
    driver = Driver(made, location).fence()
    driver.committer.commit(pending(told, location))
    driver.committer.close()
    assert seen(made) == [1, 2, 3, 4, 5]
    assert (out / "_penstock").is_file()


def test_this_format_has_a_golden_output() -> None:
    assert (FENCES / str(FORMAT_VERSION)).exists(), "python -m tests.golden.make_fence makes it"
