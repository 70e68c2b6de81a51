"""The verbs on a bucket say what they say of a folder, and do not ask the store for every little thing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import LocationError
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.stores import store_at
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.s3_server import S3Server
from tests.support.snapshots.location_kit import Kept

pytestmark = pytest.mark.cluster

SNAPSHOTS = 20
FOLDERS = ("log", "data", "snapshots")


@pytest.fixture(scope="module")
def filled(s3: S3Server) -> Kept:
    """Location with snapshots, read only."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3.environment().items():
            patch.setenv(name, value)
        return filled_with(SNAPSHOTS, s3.location())


def filled_with(snapshots: int, location: str) -> Kept:
    kept = Kept(location)  # type: ignore[arg-type]  # a text does as well
    for number in range(snapshots):
        kept.put(dict.fromkeys(range(number, number + 5), number))
        kept.snapshot("last" if number == snapshots - 1 else "", in_flight=number % 3)
    coordinator = kept.player.core.coordinator
    kept.player.effects.close(coordinator.committed_epoch, coordinator.next_checkpoint)
    return kept


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """Proxy in front of the store that the environment names."""
    with FaultyProxy(s3.endpoint) as running:
        for name, value in s3.environment(running.endpoint).items():
            monkeypatch.setenv(name, value)
        yield running


def copied(store: Store, folder: Path) -> str:
    folder.mkdir()
    here = LocalStore(folder)
    for path in ["query.json", *(path for name in FOLDERS for path in store.list(name))]:
        here.copy_from(path, store)
    return str(folder)


@pytest.mark.usefixtures("proxy")
def test_what_they_say_is_the_same(filled: Kept, tmp_path: Path) -> None:
    there, here = str(filled.location), copied(filled.store, tmp_path / "here")
    said = []
    for location in (there, here):
        opened = open_location_to_read(location)
        first, last = opened.record("chk-1"), opened.record("last")
        documents = [
            list_snapshots(opened, 0),
            show_snapshot(opened, last, 0, count_rows=True),
            compare_snapshots(opened, first, last),
            verify_location(location),
        ]
        said.append(str(msgspec.to_builtins(documents)).replace(location, "<location>"))
    assert said[0] == said[1]
    assert "'damage': []" in said[0]


def test_small_files_are_read_together(filled: Kept, proxy: FaultyProxy) -> None:
    proxy.plan = lambda seen: Fault.SLOW if seen.path.endswith("metadata.json") else None
    listing = list_snapshots(open_location_to_read(str(filled.location)), 0)
    assert len(listing.snapshots) == SNAPSHOTS
    assert proxy.count("GET", "metadata.json") == SNAPSHOTS
    assert proxy.count("HEAD") < SNAPSHOTS
    assert 2 <= proxy.most_at_once <= 20


def test_deleting_and_collecting_is_done_by_few_requests(s3: S3Server, proxy: FaultyProxy) -> None:
    kept = filled_with(8, s3.location())
    snapshots = [record.checkpoint for record in ownership.read_query_log(kept.store).snapshots]
    before = len(kept.store.list("data"))
    proxy.seen.clear()
    answer = ownership.request_change(kept.store, rq.DeleteSnapshots(snapshots[:6]))
    assert answer.files >= 6
    assert len(kept.store.list("data")) < before
    assert proxy.count("POST") == 6 + 1, "metadata behind each log entry, all data files together"
    assert ownership.request_change(kept.store, rq.CollectOrphans()).files == 0
    verified = verify_location(str(kept.location))
    assert (verified.damage, verified.orphans) == ([], [])
    lost = kept.store.list("data")[0]
    kept.store.delete(lost)
    damage = verify_location(str(kept.location)).damage
    assert {one.path for one in damage} == {lost}


def test_a_store_that_is_gone_is_one_error(filled: Kept, proxy: FaultyProxy) -> None:
    location = str(filled.location)
    opened = open_location_to_read(location)
    proxy.plan = lambda seen: Fault.DENIED
    with pytest.raises(LocationError, match=rf"{location}.*cannot be read.*AccessDenied"):
        list_snapshots(opened, 0)
    with pytest.raises(LocationError, match=rf"{location} cannot be read.*AccessDenied"):
        open_location_to_read(location)


@pytest.mark.usefixtures("proxy")
def test_copies_and_moves_cross_schemes(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    location = str(filled_with(4, s3.location()).location)

    def call(*arguments: str) -> None:
        result = CliRunner().invoke(app, ["snapshot", *arguments])
        assert result.exit_code == 0, result.output

    def intact(place: str, snapshots: int) -> None:
        found = verify_location(place)
        assert (found.damage, found.snapshots) == ([], snapshots)

    folder, bucket = str(tmp_path / "archive"), s3.location()
    call("copy", location, "last", folder)
    call("copy", folder, "last", bucket)
    for archive in (folder, bucket):
        intact(archive, 1)
    other, home = s3.location(), str(tmp_path / "home")
    call("move", location, other)
    intact(other, 4)
    call("move", other, home)
    intact(home, 4)
    for left in (location, other):
        assert store_at(left).list("data") == store_at(left).list("snapshots") == []
