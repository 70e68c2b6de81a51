"""Portable snapshots in an object store: written there, read from there, and not trusted any more than a folder."""

from __future__ import annotations

import copy
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.location import IDENTITY_PATH
from penstock.snapshots.portable import jobs, layout, local_snapshot
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.in_place import EXPORT_MARK_PATH
from penstock.snapshots.portable.layout import MANIFEST
from penstock.snapshots.portable.portable_form import write_portable_form
from penstock.snapshots.store import object_store
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.stores import store_at
from tests.support.faulty_proxy import Fault, FaultyProxy, Seen, no_faults
from tests.support.s3_server import S3Server
from tests.support.snapshots.portable_kit import LABEL, Scene, restored

pytestmark = pytest.mark.cluster

Body = dict[str, Any]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), rounds=2)


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as running:
        for name, value in s3.environment(running.endpoint).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def portable(scene: Scene, s3: S3Server, proxy: FaultyProxy) -> str:
    place = s3.location()
    export_snapshot(str(scene.location), LABEL, place)
    return place


def files(store: Store) -> dict[str, bytes]:
    folders = [name for name in store.top_names() if name != MANIFEST]
    return {path: store.read(path) for path in [MANIFEST, *(path for name in folders for path in store.list(name))]}


def replace(store: Store, path: str, data: bytes) -> None:
    store.delete(path)
    assert store.create_if_absent(path, data)


def test_it_is_what_a_folder_would_be_and_comes_back(scene: Scene, portable: str, tmp_path: Path) -> None:
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    assert files(store_at(portable)) == files(LocalStore(tmp_path / "portable"))
    result = CliRunner().invoke(app, ["snapshot", "convert", portable, str(tmp_path / "new" / "back"), "--json"])
    assert json.loads(result.stdout)["snapshot"] == "chk-2"
    assert restored(tmp_path / "new" / "back", scene.graph) == restored(scene.location, scene.graph)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["back"], "what was fetched is gone"
    result = CliRunner().invoke(app, ["snapshot", "export", str(scene.location), LABEL, portable])
    assert (result.exit_code, "is not empty" in result.stderr) == (1, True)


@pytest.mark.usefixtures("proxy")
def test_the_one_beside_a_native_snapshot_is_read_where_it_is(s3: S3Server, scene: Scene, tmp_path: Path) -> None:
    location = s3.location()
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    convert_snapshot(tmp_path / "portable", location)
    place = write_portable_form(location, "chk-2")
    assert place == f"{location}/portable/chk-2"
    convert_snapshot(place, tmp_path / "back")
    assert restored(tmp_path / "back", scene.graph) == restored(scene.location, scene.graph)


def test_a_query_starts_from_it_without_a_conversion(scene: Scene, portable: str, s3: S3Server, tmp_path: Path) -> None:
    """A location here, a location in a bucket, and a fork of that one."""

    def fork(there: str, here: str) -> None:
        result = CliRunner().invoke(app, ["snapshot", "fork", there, "chk-2", here])
        assert result.exit_code == 0, result.output

    in_bucket = s3.location()
    fork(portable, str(tmp_path / "one"))
    fork(portable, in_bucket)
    fork(in_bucket, str(tmp_path / "two"))
    convert_snapshot(portable, tmp_path / "converted")
    expected = restored(tmp_path / "converted", scene.graph)
    assert restored(tmp_path / "one", scene.graph) == expected
    assert restored(tmp_path / "two", scene.graph) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["converted", "one", "two"], "what was fetched is gone"


def lane(body: Body) -> Body:
    found: Body = body["lane"][0]
    return found


def test_what_it_declares_is_compared_before_anything_is_fetched(
    portable: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    store = store_at(portable)
    body = json.loads(store.read(MANIFEST))["body"]
    longer, elsewhere, outside = (copy.deepcopy(body) for _ in range(3))
    lane(longer).update(length=1 << 52)
    elsewhere["streams"][0]["file"].update(path="inflight/other")
    outside["streams"][0]["file"].update(path="../chk-1/metadata.json")
    for match, lie in {
        "has 23 bytes instead of 4503599627370496": longer,
        f"inflight/other in {portable} is missing": elsewhere,
        "is not a clean relative path": outside,
    }.items():
        replace(store, MANIFEST, seal_envelope(lie))
        proxy.seen.clear()
        with pytest.raises(CorruptSnapshot, match=match):
            convert_snapshot(portable, tmp_path / "back")
        assert not any(proxy.count("GET", name) for name in ("parquet", "arrows", "other")), "files were asked for"
        assert list(tmp_path.iterdir()) == []


def test_what_is_not_what_it_declares_is_refused_and_leaves_nothing(
    portable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_at(portable)
    for path, data in files(store).items():
        replace(store, path, data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        with pytest.raises(CorruptSnapshot, match=r"does not match its checksum|not the manifest"):
            convert_snapshot(portable, tmp_path / "back")
        replace(store, path, data)
    with monkeypatch.context() as patch:
        patch.setattr(local_snapshot.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
        with pytest.raises(LocationError, match=r"bytes, and .* has 100 free"):
            convert_snapshot(portable, tmp_path / "back")
    with monkeypatch.context() as patch:
        patch.setattr(layout, "MAX_MANIFEST_BYTES", 100)
        with pytest.raises(CorruptSnapshot, match="more than 100 bytes"):
            convert_snapshot(portable, tmp_path / "back")
    store.delete(MANIFEST)
    with pytest.raises(LocationError, match="is no portable snapshot"):
        convert_snapshot(portable, tmp_path / "back")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(4 * int(os.environ.get("PENSTOCK_S3_RUNS", "1"))))
def test_behind_faults_the_same_again_completes_it(
    scene: Scene, s3: S3Server, proxy: FaultyProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Requests fail somehow, done or not done, and the library repeats none of them."""
    for name, value in (("RETRIES", 0), ("LISTING_ATTEMPTS", 1), ("CREATE_PAUSES_S", (0.0,))):
        monkeypatch.setattr(object_store, name, value)
    chance, lock = random.Random(seed), threading.Lock()
    faults = [Fault.UNAVAILABLE, Fault.UNAVAILABLE_AFTER, Fault.RESET, Fault.RESET_AFTER, Fault.CUT]

    def plan(seen: Seen) -> Fault | None:
        with lock:
            return chance.choice(faults) if chance.random() < 1 / 30 else None

    def until_done(do: Callable[[], object], is_done: Callable[[], bool]) -> None:
        for attempt in range(30):
            proxy.plan = plan if attempt < 25 else no_faults
            try:
                do()
                return
            except CorruptSnapshot:
                raise
            except LocationError as error:
                proxy.plan = no_faults
                if is_done():
                    return
                if "in use" in str(error) or "not empty" in str(error):
                    raise AssertionError("it is done, or it can be completed") from error
        raise AssertionError("no end")

    portable, location = s3.location(), s3.location()
    there, here = store_at(portable), store_at(location)
    until_done(
        lambda: export_snapshot(str(scene.location), LABEL, portable),
        lambda: there.exists(MANIFEST) and not there.exists(EXPORT_MARK_PATH),
    )
    until_done(lambda: convert_snapshot(portable, location), lambda: here.exists(IDENTITY_PATH))
    proxy.plan = no_faults
    assert verify_location(location).damage == []
    convert_snapshot(write_portable_form(location, "chk-2"), tmp_path / "back")
    assert restored(tmp_path / "back", scene.graph) == restored(scene.location, scene.graph)


@pytest.mark.usefixtures("proxy")
def test_an_export_that_was_killed_is_completed_by_the_same_one(
    scene: Scene, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3.location()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(jobs.StreamJob, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            export_snapshot(str(scene.location), LABEL, place)
    store = store_at(place)
    assert store.list("state")
    with pytest.raises(LocationError, match="the export of another snapshot was begun there"):
        export_snapshot(str(scene.location), "chk-1", place)
    assert export_snapshot(str(scene.location), LABEL, place).metadata.id == "chk-2"
    export_snapshot(str(scene.location), LABEL, tmp_path / "portable")
    there = files(LocalStore(tmp_path / "portable"))
    assert files(store) == there
    store.create_if_absent(
        EXPORT_MARK_PATH, seal_envelope({"query_id": "query-1", "snapshot": "chk-2"})
    )  # killed before the end
    export_snapshot(str(scene.location), LABEL, place)
    store.create_if_absent(EXPORT_MARK_PATH, seal_envelope({"query_id": "query-1", "snapshot": "chk-2"}))
    store.delete(store.list("state")[0])
    export_snapshot(str(scene.location), LABEL, place)
    assert files(store) == there
