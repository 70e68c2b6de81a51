"""Locations that begin with a snapshot, made in place: killed at every step, and by two at once."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots import bootstrap as fd
from penstock.snapshots.catalog import Catalog, sections_of
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.location import BOOTSTRAP_MARK_PATH, IDENTITY_PATH, read_identity
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.retention import checkpoints_in_names
from penstock.snapshots.store.store import DataFile, Effect, LocalStore, MemoryStore
from tests.support.snapshots.portable_kit import Scene, rewritten

PLACE = "s3://bucket/location"


class _Killed(BaseException):
    pass


class _Object(DataFile):
    """There with ``close``, and not before."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store, self._path, self._data = store, path, b""

    def write(self, data: bytes) -> None:
        self._data += bytes(data)

    def close(self) -> None:
        self._store._effect("close", self._path, "before")
        self._store.files[self._path] = self._data
        self._store._effect("close", self._path, "after")

    def abandon(self) -> None:
        self._data = b""


class Bucket(MemoryStore):
    """Calls ``at`` when so many effects have happened."""

    def __init__(self) -> None:
        super().__init__()
        self.effects = 0
        self.at: dict[int, Callable[[], None]] = {}
        self.hook = self._happened

    def create(self, path: str) -> DataFile:
        if self.exists(path):
            raise FileExistsError(path)
        return _Object(self, path)

    def _happened(self, effect: Effect) -> None:
        self.effects += 1
        act = self.at.pop(self.effects, None)
        if act is not None:
            act()


class Origin:
    """Two portable snapshots of one query."""

    def __init__(self, directory: Path) -> None:
        scene = Scene(directory, rounds=2)
        other = rewritten(scene.location, lambda metadata: msgspec.structs.replace(metadata, label="another"))
        self.one, self.two = directory / "one", directory / "two"
        export_snapshot(str(scene.location), "chk-2", self.one)
        export_snapshot(str(scene.location), other, self.two)
        self.second = other


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return Origin(tmp_path_factory.mktemp("origin"))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket()
    monkeypatch.setattr(fd, "open_location", lambda *_, **__: made)
    return made


def killed() -> None:
    raise _Killed


def convert(portable: Path) -> SnapshotMetadata:
    return convert_snapshot(portable, PLACE)


def interrupted(bucket: Bucket, portable: Path, at: int, act: Callable[[], None] = killed) -> str:
    """Return the result of a conversion that is interrupted there. A killed one takes nothing back."""
    bucket.at = {bucket.effects + at: act}
    take_back = fd.LocationBootstrap.discard
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                fd.LocationBootstrap, "discard", lambda attempt: None if act is killed else take_back(attempt)
            )
            return convert(portable).id
    except _Killed:
        return "killed"
    except LocationError as error:
        return str(error)
    finally:
        bucket.at = {}


def check_whole(bucket: Bucket) -> SnapshotMetadata:
    """It is a location, with one snapshot, and nothing else is there."""
    assert BOOTSTRAP_MARK_PATH not in bucket.files
    [record] = SnapshotLog(bucket).refresh().snapshots
    metadata = Catalog(bucket).read(record)
    Catalog(bucket).check(metadata, checksums=True)
    assert read_identity(bucket).origin == metadata.query_id
    assert set(bucket.list("data")) == {ref.path for ref in sections_of(metadata)}
    assert bucket.list("snapshots") == [record.metadata.path]
    assert bucket.list("lane")
    return metadata


def effects_of(portable: Path, bucket: Bucket) -> int:
    convert(portable)
    total, bucket.effects = bucket.effects, 0
    bucket.files.clear()
    return total


def test_killed_anywhere_the_same_completes_it(origin: Origin, bucket: Bucket) -> None:
    total = effects_of(origin.one, bucket)
    done = []
    for at in range(1, total + 1):
        bucket.files.clear()
        assert interrupted(bucket, origin.one, at) == "killed"
        done.append(BOOTSTRAP_MARK_PATH not in bucket.files and IDENTITY_PATH in bucket.files)
        assert convert_or_none(origin.one) == (None if done[-1] else "chk-2")
        assert check_whole(bucket).id == "chk-2"
    assert done.count(False) > total // 2


def test_killed_anywhere_another_one_takes_its_place_unless_it_was_decided(origin: Origin, bucket: Bucket) -> None:
    total = effects_of(origin.one, bucket)
    outcomes = set()
    for at in range(1, total + 1):
        bucket.files.clear()
        interrupted(bucket, origin.one, at)
        decided = bool(bucket.list("log"))
        assert convert_or_none(origin.two) == (None if decided else origin.second)
        outcomes.add(check_whole(bucket).id)
    assert outcomes == {"chk-2", origin.second}


def convert_or_none(portable: Path) -> str | None:
    try:
        return convert(portable).id
    except LocationError:
        return None


@pytest.mark.parametrize("same", [True, False])
def test_of_two_at_once_one_wins_and_what_it_refers_to_is_there(origin: Origin, bucket: Bucket, same: bool) -> None:
    total = effects_of(origin.one, bucket)
    rival = origin.one if same else origin.two
    won: dict[str, int] = {}
    for at in range(1, total + 1):
        bucket.files.clear()
        theirs: list[str | None] = []
        mine = interrupted(bucket, origin.one, at, lambda: theirs.append(convert_or_none(rival)))  # noqa: B023
        ids = {mine, *theirs} & {"chk-2", origin.second}
        assert ids == {mine, *theirs} or "in the meantime" in mine or "is in use" in mine or theirs == [None]
        metadata = check_whole(bucket)
        assert ids == {metadata.id}, "who was told that it is done is right"
        won[metadata.id] = won.get(metadata.id, 0) + 1
    assert same or min(won["chk-2"], won[origin.second]) > 1


def test_who_fails_takes_nothing_back_that_another_one_has_built_on(origin: Origin, bucket: Bucket) -> None:
    total = effects_of(origin.one, bucket)
    failed = 0
    for at in range(1, total + 1):
        bucket.files.clear()

        def the_other_one_goes_on() -> None:
            convert_or_none(origin.one)
            raise OSError(28, "No space left on device")

        mine = interrupted(bucket, origin.one, at, the_other_one_goes_on)
        failed += "No space left" in mine
        assert check_whole(bucket).id == "chk-2"
    assert failed > total // 2


def test_another_snapshot_of_that_number_is_not_mistaken_for_it(origin: Origin, bucket: Bucket, tmp_path: Path) -> None:
    shutil.copytree(origin.one, tmp_path / "other")
    body = json.loads((origin.one / MANIFEST).read_bytes())["body"]
    body["metadata"]["label"] = "edited"
    (tmp_path / "other" / MANIFEST).write_bytes(seal_envelope(body))
    total = effects_of(origin.one, bucket)
    refused = 0
    for at in range(1, total + 1):
        bucket.files.clear()
        interrupted(bucket, origin.one, at)
        begun, decided = bool(bucket.list("snapshots")), bool(bucket.list("log"))
        said = interrupted(bucket, tmp_path / "other", 1 << 30)
        assert said == "chk-2" or ("in use" if decided else "repeat the command that began it") in said
        assert (said == "chk-2") is not begun
        refused += begun and not decided
        if begun:
            convert_or_none(origin.one)
        assert check_whole(bucket).label == ("für später" if begun else "edited")
    assert refused > 0


def test_what_an_interrupted_one_has_left_is_verified_and_its_numbers_are_not_used_again(
    origin: Origin, bucket: Bucket
) -> None:
    total = effects_of(origin.one, bucket)
    for at in range(1, total + 1):
        bucket.files.clear()
        interrupted(bucket, origin.two, at)
        numbers = checkpoints_in_names([*bucket.list("data"), *bucket.list("snapshots")])
        if bucket.list("log"):
            break
        convert(origin.one)
        assert SnapshotLog(bucket).refresh().next_checkpoint > max([2, *numbers])
    damaged = 0
    for at in range(1, total + 1):
        bucket.files.clear()
        interrupted(bucket, origin.one, at)
        if bucket.list("snapshots") and not bucket.list("log"):
            path = next(path for path in bucket.list("data") if path.endswith("-state.arrows"))
            bucket.files[path] = bytes(reversed(bucket.files[path]))
            with pytest.raises(CorruptSnapshot, match=path):
                convert(origin.one)
            assert bucket.list("log") == []
            damaged += 1
    assert damaged > 0


def test_two_that_are_interrupted_in_turn(origin: Origin, bucket: Bucket) -> None:
    """At a random step of one, the other runs up to a random step of its own, and is killed or continues."""
    total = effects_of(origin.one, bucket)
    rng = random.Random(7)
    for _ in range(120):
        bucket.files.clear()
        inner, rival = rng.randrange(1, total), rng.choice([origin.one, origin.two])

        def other(inner: int = inner, rival: Path = rival) -> None:
            interrupted(bucket, rival, inner)

        interrupted(bucket, origin.one, rng.randrange(1, total), other)
        for portable in (origin.one, origin.two):
            convert_or_none(portable)
        [record] = SnapshotLog(bucket).refresh().snapshots
        Catalog(bucket).check(Catalog(bucket).read(record), checksums=True)
        assert IDENTITY_PATH in bucket.files


def test_a_location_that_is_there_and_files_of_others_are_left_alone(origin: Origin, tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create_if_absent("theirs.txt", b"x")
    with (
        pytest.raises(LocationError, match="holds files that are not Penstock's"),
        fd.bootstrap_location(str(tmp_path)),
    ):
        raise AssertionError
    assert store.top_names() == ["theirs.txt"]
    with pytest.raises(ZeroDivisionError), fd.bootstrap_location(str(tmp_path / "new")):
        raise ZeroDivisionError
    assert LocalStore(tmp_path / "new").top_names() == []
