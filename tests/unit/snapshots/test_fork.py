"""Forks: what is brought, in which order, and what a crash or a rival in between leaves."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pytest

from penstock.coordinator.commands import DrainRequested
from penstock.coordinator.machines.checkpoint_events import FailGeneration, SnapshotRequested, Tick
from penstock.errors import CorruptSnapshot, Fenced, LocationError
from penstock.model.elements import Alignment
from penstock.model.manifest import QueryIdentity
from penstock.model.messages import DeclineCheckpoint, FromSlot, TriggerCheckpoint
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.fork import Origin, start_fork
from penstock.snapshots.location import claim_identity, identity_of, open_location, release_identity
from penstock.snapshots.log.entries import Forked, GenerationOpened, LogView, PlannedBatch, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store import store as store_module
from penstock.snapshots.store.store import LocalStore, MemoryStore, Store
from tests.support.snapshots.snapshot_kit import Driver, NoSource, Target, graph


class Killed(BaseException):
    """The process ends here."""


class Scene:
    """A query that has run, and a location for a fork of it."""

    def __init__(self, directory: Path, source: NoSource | None = None) -> None:
        self.there, self.here = directory / "there", directory / "here"
        self.target = Target()
        store = open_location(str(self.there))
        claim_identity(store, identity_of(graph(1), "query-1"))
        self.owner = Driver(store, self.target, source=source)
        self.owner.start()
        self.owner.checkpoint()

    def request(self, label: str) -> int:
        """A snapshot that its user keeps."""
        self.owner.feed(SnapshotRequested(Alignment.UNALIGNED, label, ticket=len(label)))
        checkpoint = self.owner.core.coordinator.in_flight[0]
        self.owner.acknowledge(checkpoint)
        self.owner.work()
        return checkpoint

    def open(self) -> tuple[LocalStore, QueryIdentity]:
        store = open_location(str(self.here))
        return store, claim_identity(store, identity_of(graph(1), "query-2", "query-1"))

    def fork(self, snapshot: str = "") -> tuple[LocalStore, Forked | None]:
        store, identity = self.open()
        return store, start_fork(Origin(str(self.there), snapshot), store, identity, graph(1))

    def driver(self, store: Store, begins_with: Forked | None, name: str = "F") -> Driver:
        return Driver(store, Target(), name, query_id="query-2", forked=begins_with)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def somebody_is_quicker(monkeypatch: pytest.MonkeyPatch, rival: Driver) -> None:
    """The rival starts just before the next entry is appended."""
    real = SnapshotLog.append

    def append(self: SnapshotLog, entry: Any) -> LogView:
        monkeypatch.setattr(SnapshotLog, "append", real)
        rival.start()
        return real(self, entry)

    monkeypatch.setattr(SnapshotLog, "append", append)


def test_a_fork_goes_on_behind_its_snapshot_and_commits_none_of_its_origins_epochs(scene: Scene) -> None:
    pending = scene.owner.trigger()
    scene.owner.acknowledge(pending)
    while len(scene.owner.effects.view.snapshots) < 2:  # logged, and not committed
        event = scene.owner.effects.execute(scene.owner.works.pop(0))
        if event is not None:
            scene.owner.feed(event)
    assert sorted(scene.target.visible) == [1]
    store, begins_with = scene.fork()
    fork = scene.driver(store, begins_with)
    ready = fork.start()
    opened = ready.opened
    assert (opened.generation, opened.next_checkpoint, opened.committed_epoch) == (2, pending + 1, pending)
    assert ready.restored is not None
    assert ready.restored.query_id == "query-1"
    assert ready.opened.pending == ()
    assert [subtask.pending_messages for slot in ready.slots for subtask in slot] == [{}, {}]
    own = fork.checkpoint()
    assert own == pending + 1
    assert sorted(fork.committer.target.visible) == [own]
    scene.owner.work()
    assert sorted(scene.target.visible) == [1, pending], "it was the origin's to commit"


def test_a_kept_snapshot_expires_in_the_fork_and_stays_in_its_origin(scene: Scene) -> None:
    kept = scene.request("kept")
    store, begins_with = scene.fork("kept")
    fork = scene.driver(store, begins_with)
    fork.start()
    brought = {path for path in files(scene.here) if path.startswith(("data/", "snapshots/"))}
    for _ in range(4):
        fork.checkpoint()
    assert brought
    assert not brought & set(files(scene.here))
    assert kept in [record.checkpoint for record in SnapshotLog(LocalStore(scene.there)).refresh().snapshots]


class Errands(NoSource):
    """Source whose state has actions on its input that only its own query may perform."""

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        return Discovery((), {"errands": ["delete /in/a"]} if state is None else state)

    def adopt_state(self, state: Plain) -> Plain:
        return {"errands": []}


def test_a_fork_drops_pending_actions_on_the_input_of_its_origin(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Errands())
    scene.owner.checkpoint()
    store, begins_with = scene.fork()
    fork = Driver(store, Target(), "F", query_id="query-2", forked=begins_with, source=Errands())
    for _ in range(2):  # before and after its own first snapshot
        ready = fork.start()
        assert ready.restored is not None
        assert [source.state for source in ready.restored.sources] == [{"errands": []}]
        fork.checkpoint()
        fork.end_generation()
    again = Driver(LocalStore(scene.there), Target(), "B", source=Errands()).start()
    assert again.restored is not None
    assert [source.state for source in again.restored.sources] == [{"errands": ["delete /in/a"]}]


def killed_at(step: int, real: Callable[..., None]) -> Callable[..., None]:
    calls = iter(range(step))

    def copy_from(self: Store, path: str, origin: Store) -> None:
        if next(calls, None) is None:
            raise Killed
        real(self, path, origin)

    return copy_from


def test_a_fork_killed_at_any_step_is_made_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.copy_from
    for step in range(2):  # in front of its data, and of its metadata
        monkeypatch.setattr(LocalStore, "copy_from", killed_at(step, real))
        with pytest.raises(Killed):
            scene.fork()
        with pytest.raises(LocationError, match=r"a fork of query query-1 was begun .* and not finished"):
            start_fork(None, *scene.open(), graph(1))
    monkeypatch.setattr(LocalStore, "copy_from", real)
    scene.fork()
    with pytest.raises(LocationError, match=r"a fork of query query-1 was begun .* and not finished"):
        start_fork(None, *scene.open(), graph(1))
    store, begins_with = scene.fork()
    assert scene.driver(store, begins_with).start().restored is not None
    assert not [name for name in files(scene.here) if name.endswith(".tmp")]


def test_what_an_interrupted_fork_of_a_newer_snapshot_left_is_in_nobodys_way(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = scene.request("older"), scene.request("newest")
    scene.fork("newest")
    store, begins_with = scene.fork("older")
    fork = scene.driver(store, begins_with)
    assert fork.start().opened.next_checkpoint == newer + 1
    assert older < newer
    for _ in range(3):
        fork.checkpoint()
    assert not [path for path in files(scene.here) if f"chk-{newer}/" in path], "it is collected"


def test_another_fork_that_was_quicker_is_not_taken_for_this_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.request("mine")
    scene.request("theirs")
    one, theirs = scene.fork("theirs")
    two, mine = scene.fork("mine")
    somebody_is_quicker(monkeypatch, scene.driver(one, theirs, "W"))
    with pytest.raises(LocationError, match="another driver has begun another query"):
        scene.driver(two, mine, "L").start()


class Ends(NoSource):
    """Has nothing more once it is frozen."""

    frozen = False

    def freeze(self) -> None:
        self.frozen = True

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = super().discover(state, parallelism)
        return Discovery(found.splits, found.state, finished=self.frozen)


def test_a_snapshot_amid_a_drain_cannot_be_start_fork(tmp_path: Path) -> None:
    scene = Scene(tmp_path, Ends())
    scene.owner.feed(DrainRequested())
    for _ in range(5):
        scene.owner.now += 150
        scene.owner.feed(Tick())
        scene.owner.work()
        scene.owner.ask(0, generation=1, frozen=True)
    newest = scene.owner.checkpoint()
    metadata = Catalog(scene.owner.store).read(scene.owner.effects.view.snapshots[-1])
    assert (metadata.checkpoint, metadata.drained, metadata.sources[0].drained) == (newest, False, True)
    with pytest.raises(LocationError, match="was taken when the query was drained"):
        scene.fork()


def test_a_begun_fork_of_another_query_is_refused(scene: Scene, tmp_path: Path) -> None:
    scene.open()
    other = open_location(str(tmp_path / "other"))
    claim_identity(other, identity_of(graph(1), "query-9"))
    with pytest.raises(LocationError, match="was begun as a fork of query query-1"):
        start_fork(Origin(str(tmp_path / "other")), *scene.open(), graph(1))


def test_two_drivers_that_make_the_same_fork_share_it(scene: Scene) -> None:
    one, first = scene.fork()
    two, second = scene.fork()
    winner = scene.driver(one, first, "W")
    winner.start()
    ready = scene.driver(two, second, "L").start()
    assert ready.opened.generation == 3
    with pytest.raises(Fenced):
        winner.checkpoint()


def test_a_driver_that_loses_the_first_entry_reads_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    one, first = scene.fork()
    two, second = scene.fork()
    somebody_is_quicker(monkeypatch, scene.driver(one, first, "W"))
    assert scene.driver(two, second, "L").start().opened.generation == 3


def test_the_origins_owner_may_collect_meanwhile(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    real = LocalStore.copy_from
    newest: list[int] = []

    def copy_from(self: LocalStore, path: str, origin: Store) -> None:
        if not newest:
            newest.extend(scene.owner.checkpoint() for _ in range(4))
        real(self, path, origin)

    monkeypatch.setattr(LocalStore, "copy_from", copy_from)
    _, begins_with = scene.fork()
    assert begins_with is not None
    assert begins_with.snapshot.checkpoint == newest[-1]
    newest.clear()
    monkeypatch.setattr(scene, "here", scene.here.with_name("named"))
    with pytest.raises(LocationError, match=r"there is no snapshot 'chk-\d+'; there are: chk-9, chk-8"):
        scene.fork(f"chk-{begins_with.snapshot.checkpoint}")


def test_labels_and_ids_name_snapshots(scene: Scene) -> None:
    with pytest.raises(LocationError, match=r"no snapshot 'mine'; there are: chk-1$"):
        scene.fork("mine")
    first = scene.request("mine")
    _, begins_with = scene.fork("mine")
    assert begins_with is not None
    assert begins_with.snapshot.checkpoint == first
    scene.request("mine")
    with pytest.raises(LocationError, match="several snapshots have the label 'mine'"):
        scene.fork("mine")
    assert scene.fork(f"chk-{first}")[1] == begins_with


def test_a_query_without_a_snapshot_cannot_be_start_fork(tmp_path: Path) -> None:
    claim_identity(open_location(str(tmp_path / "a")), identity_of(graph(1), "query-1"))
    store = open_location(str(tmp_path / "b"))
    identity = claim_identity(store, identity_of(graph(1), "query-2", "query-1"))
    with pytest.raises(LocationError, match=r"no complete snapshot yet.*Wait for its first .*start without startFrom"):
        start_fork(Origin(str(tmp_path / "a")), store, identity, graph(1))


def test_a_corrupt_snapshot_is_found_before_anything_begins(scene: Scene) -> None:
    (data,) = (scene.there / "data").glob("*.arrows")
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    with pytest.raises(CorruptSnapshot, match=r"chk-1 is not whole: section .*data/1-1-0-state.arrows.*checksum"):
        scene.fork()
    assert not list(scene.here.glob("log/*"))
    release_identity(open_location(str(scene.here)))
    assert files(scene.here) == []
    open_location(str(scene.here))


def links_fail(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    real = os.link

    def link(source: str, target: str, **folders: Any) -> None:
        if not source.endswith(".tmp"):
            raise OSError(error, os.strerror(error))
        real(source, target, **folders)

    monkeypatch.setattr(os, "link", link)


def test_files_are_linked_where_that_can_be_and_copied_elsewhere(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.fork()
    name = "data/1-1-0-state.arrows"
    assert (scene.here / name).samefile(scene.there / name)
    links_fail(monkeypatch, errno.EXDEV)
    monkeypatch.setattr(scene, "here", scene.here.with_name("elsewhere"))
    store, begins_with = scene.fork()
    assert not (scene.here / name).samefile(scene.there / name)
    assert (scene.here / name).stat().st_mtime_ns == (scene.there / name).stat().st_mtime_ns
    assert scene.driver(store, begins_with).start().restored is not None


def test_a_full_disk_is_said_and_leaves_nothing_half_written(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    links_fail(monkeypatch, errno.EXDEV)

    def copy(source: BinaryIO, target: BinaryIO) -> None:
        target.write(source.read(5))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with pytest.raises(LocationError, match=r"there: the snapshot cannot be copied: .*No space left"):
        scene.fork()
    assert files(scene.here) == ["query.json"]


def test_only_an_empty_log_begins_with_a_fork(scene: Scene) -> None:
    _, begins_with = scene.fork()
    assert begins_with is not None
    opened = GenerationOpened(1, 0, 1, 101, 0)
    with pytest.raises(ValueError, match="in use cannot become a fork"):
        fold(fold(LogView(), opened), begins_with)


def test_any_store_brings_from_any_other() -> None:
    origin, store = MemoryStore(), MemoryStore()
    origin.files["data/1-1-0.arrows"] = b"content" * 9
    store.files["data/1-1-0.arrows"] = b"cont"
    store.copy_from("data/1-1-0.arrows", origin)
    assert store.files == origin.files
    with pytest.raises(FileNotFoundError):
        store.copy_from("data/1-2-0.arrows", origin)
    origin.files["data/1-2-0.arrows"] = b"more"

    def fails(effect: store_module.Effect) -> None:
        if effect.operation == "close":
            raise OSError("full")

    store.hook = fails
    with pytest.raises(OSError, match="full"):
        store.copy_from("data/1-2-0.arrows", origin)
    assert list(store.files) == ["data/1-1-0.arrows"]


class Looked(NoSource):
    """Source that counts its discoveries."""

    looks = 0

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        self.looks += 1
        return super().discover(state, parallelism)


def test_a_planned_batch_is_an_epoch_of_its_own_or_begins_again(scene: Scene) -> None:
    """There is no other discovery, and a failed checkpoint of the batch ends the Generation: some sinks may have ended
    the epoch, and others not."""
    store, begins_with = scene.fork()
    assert begins_with is not None
    planned = PlannedBatch("spark", 40)
    begins_with = msgspec.structs.replace(begins_with, planned=planned, next_batch=41, first_checkpoint=42)
    source = Looked()
    fork = Driver(store, Target(), "F", query_id="query-2", forked=begins_with, source=source)
    for attempt in (2, 3):
        assert fork.start().opened.planned == 40
        fork.now += 60_000
        fork.feed(Tick())
        assert not [o for o in fork.others if isinstance(o, TriggerCheckpoint) and o.checkpoint > 42], (
            "it is not read yet"
        )
        for index in range(fork.graph.parallelism):
            fork.ask(index, generation=attempt)
        trigger = next(o for o in reversed(fork.others) if isinstance(o, TriggerCheckpoint))
        assert (trigger.alignment, source.looks) == (Alignment.ALIGNED, 0)
        if attempt == 2:
            fork.feed(FromSlot(2, DeclineCheckpoint(0, trigger.checkpoint, "no room")))
            failed = fork.others[-1]
            assert isinstance(failed, FailGeneration)
            assert "batch 40, which Spark had planned, failed: slot 0 declined: no room" in failed.reason
            fork.end_generation(failed.reason)
            assert fork.others[-1] == failed or not isinstance(fork.others[-1], FailGeneration)
    fork.acknowledge(trigger.checkpoint)
    fork.work()
    assert fork.committer.permits[-1].batch == 40
    assert fork.committer.permits[-1].writer_id == "spark", "the query that had begun it"
    assert source.looks > 0
    (following,) = fork.core.coordinator.in_flight
    fork.acknowledge(following)
    fork.work()
    assert (fork.committer.permits[-1].batch, fork.committer.permits[-1].writer_id) == (41, "query-2")
    again = Driver(store, Target(), "A", query_id="query-2")
    assert again.start().opened.planned is None
    assert again.effects.view.planned == PlannedBatch("spark", 40, pending=False)
