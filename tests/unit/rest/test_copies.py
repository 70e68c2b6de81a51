"""Snapshots exported, forked and copied over HTTP, and which files they share."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock
from penstock.errors import ConfigError
from penstock.queries import snapshot_operations as snapshot_steering
from penstock.snapshots.commands import sharing
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.format.envelope import seal_envelope
from penstock.snapshots.location import read_identity
from penstock.snapshots.portable import export as portable_export
from penstock.snapshots.portable.layout import read_manifest
from penstock.snapshots.store.store import LocalStore
from tests.support.queries.query_running import eventually
from tests.support.rest.rest_client import Answer, Client, assert_problem
from tests.unit.cli.test_requests_cli import penstock as command

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "exports"


@pytest.fixture
def writing(known_query: str, root: Path) -> Iterator[Client]:
    """Client of a service with an export root."""
    with penstock.serve(token="", export_root=root) as server:
        yield Client(server.url)


def post(client: Client, query_id: str, what: str, wanted: Any, snapshot: str = "chk-2") -> Answer:
    path = f"/api/v1/queries/{query_id}/snapshots/{snapshot}/{what}"
    return client.send("POST", path, json.dumps(wanted), JSON)


def ended(client: Client, begun: Answer) -> Any:
    assert begun.status == 202, begun.text
    path = begun.headers["location"]
    eventually(lambda: client.get(path).json["state"] != "running", "the operation to end", 60)
    return client.get(path).json


def test_an_export_is_what_the_command_writes(writing: Client, known_query: str, root: Path, location: Path) -> None:
    done = ended(writing, post(writing, known_query, "exports", {"name": "before-the-move"}))
    assert (done["state"], done["verb"], done["snapshot"], done["error"]) == (
        "succeeded", "export-snapshot", "chk-2", None,
    )  # fmt: skip
    assert done["location"] == str(root / "before-the-move")
    assert command("export", location, "chk-2", root / "by-command").exit_code == 0
    manifests = [read_manifest(root / name) for name in ("before-the-move", "by-command")]
    assert manifests[0] == manifests[1]
    assert manifests[0].metadata.id == "chk-2"
    assert_problem(post(writing, known_query, "exports", {"name": "before-the-move"}), 409, "already", str(root))
    assert_problem(post(writing, known_query, "forks", {"name": "before-the-move"}), 409, "already")


def test_a_fork_is_a_location_where_a_query_can_begin(
    writing: Client, known_query: str, root: Path, location: Path
) -> None:
    done = ended(writing, post(writing, known_query, "forks", {"name": "try-2.0"}))
    assert (done["state"], done["location"]) == ("succeeded", str(root / "try-2.0"))
    made = open_location_to_read(done["location"])
    assert made.identity.origin == read_identity(LocalStore(str(location))).query_id
    assert [record.checkpoint for record in made.view.lineage] == [2]
    assert command("verify", root / "try-2.0").exit_code == 0
    (root / "empty").mkdir()
    assert ended(writing, post(writing, known_query, "forks", {"name": "empty"}))["state"] == "succeeded"


def test_copies_of_one_query_are_collected_in_an_archive(
    writing: Client, known_query: str, root: Path, location: Path
) -> None:
    for snapshot in ("chk-2", "chk-3", "chk-2"):
        done = ended(writing, post(writing, known_query, "copies", {"name": "archive"}, snapshot))
        assert (done["state"], done["verb"], done["snapshot"], done["location"]) == (
            "succeeded", "copy-snapshot", snapshot, str(root / "archive"),
        )  # fmt: skip
    made = open_location_to_read(str(root / "archive"))
    assert made.identity == msgspec.structs.replace(read_identity(LocalStore(str(location))), archive=True)
    assert [record.checkpoint for record in made.view.snapshots] == [2, 3]
    assert command("verify", root / "archive").exit_code == 0


def test_copies_go_into_nothing_but_an_archive_of_the_query(
    writing: Client, known_query: str, root: Path, location: Path
) -> None:
    assert ended(writing, post(writing, known_query, "copies", {"name": "another"}))["state"] == "succeeded"
    theirs = msgspec.structs.replace(read_identity(LocalStore(str(root / "another"))), query_id="query-2")
    (root / "another" / "query.json").write_bytes(seal_envelope(msgspec.to_builtins(theirs)))
    assert ended(writing, post(writing, known_query, "exports", {"name": "export"}))["state"] == "succeeded"
    assert ended(writing, post(writing, known_query, "forks", {"name": "fork"}))["state"] == "succeeded"
    (root / "damaged").mkdir()
    (root / "damaged" / "query.json").write_text("{}")
    before = sorted(root.rglob("*"))
    for name in ("another", "export", "fork", "damaged"):
        assert_problem(post(writing, known_query, "copies", {"name": name}), 409, "no archive of this query")
    assert sorted(root.rglob("*")) == before
    (location / "snapshots/chk-3/metadata.json").write_bytes(b"{}")
    failed = ended(writing, post(writing, known_query, "copies", {"name": "archive"}, "chk-3"))
    assert (failed["state"], failed["error"]["kind"]) == ("failed", "CorruptSnapshot")


def test_a_copy_that_is_under_way_has_its_archive_to_itself(
    writing: Client, known_query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, copy = threading.Event(), snapshot_steering.copying.copy_snapshots

    def slow(there: Any, here: Any, names: Any, *, progress: Any) -> Any:
        assert go_on.wait(30)
        return copy(there, here, names, progress=progress)

    monkeypatch.setattr(snapshot_steering.copying, "copy_snapshots", slow)
    first = post(writing, known_query, "copies", {"name": "archive"})
    assert first.json["progress"] == {"message": "Copying a snapshot", "done": 0, "total": 1}
    assert post(writing, known_query, "copies", {"name": "archive"}).json["id"] == first.json["id"]
    assert_problem(post(writing, known_query, "copies", {"name": "archive"}, "chk-3"), 409, "something else")
    assert_problem(post(writing, known_query, "forks", {"name": "archive"}), 409, "something else")
    go_on.set()
    assert ended(writing, first)["state"] == "succeeded"
    assert ended(writing, post(writing, known_query, "copies", {"name": "archive"}, "chk-3"))["state"] == "succeeded"


@pytest.mark.parametrize("what", ["exports", "forks", "copies"])
def test_what_cannot_be_writes_nothing(writing: Client, known_query: str, root: Path, what: str) -> None:
    root.mkdir()
    for name in ("", ".", "..", ".hidden", "a/b", "../out", "a\\b", "a b", "a\n", "ä", "x" * 201, None, 7):
        assert_problem(post(writing, known_query, what, {"name": name}), 422)
    for wanted in ({}, {"name": "a", "root": "/"}, [], "a"):
        assert_problem(post(writing, known_query, what, wanted), 422)
    assert_problem(post(writing, known_query, what, {"name": "a"}, "chk-9"), 404, "chk-9")
    assert_problem(post(writing, known_query, what, {"name": "a"}, "mine"), 422)
    assert_problem(post(writing, "unknown", what, {"name": "a"}), 404, "unknown")
    (root / "file").write_text("in the way")
    assert_problem(post(writing, known_query, what, {"name": "file"}), 409, "already")
    assert [path.name for path in root.iterdir()] == ["file"]


def test_without_an_export_root_the_way_out_is_said(client: Client, known_query: str) -> None:
    for what in ("exports", "forks", "copies"):
        assert_problem(
            post(client, known_query, what, {"name": "a"}), 409, "rest.exportRoot", "penstock snapshot export"
        )
    assert client.get(f"/api/v1/queries/{known_query}").json["service"] == {"export_root": False}


def test_a_ui_hears_that_it_can_be_offered(writing: Client, known_query: str) -> None:
    assert writing.get(f"/api/v1/queries/{known_query}").json["service"] == {"export_root": True}
    assert writing.get("/api/v1/queries").json["queries"][0]["service"] == {"export_root": True}


def test_a_root_that_cannot_be_is_refused(tmp_path: Path, known_query: str) -> None:
    for root in ("", "gopher://somewhere", "s3://key:secret@bucket/x"):
        with pytest.raises(ConfigError, match=r"rest\.exportRoot") as refused:
            penstock.serve(token="", export_root=root)
        assert "secret" not in str(refused.value)
    (tmp_path / "file").write_text("no folder")
    with penstock.serve(token="", export_root=tmp_path / "file") as server:
        assert_problem(post(Client(server.url), known_query, "exports", {"name": "a"}), 409, "already")


def test_the_same_request_again_is_the_same_operation_and_only_so_many_write(
    writing: Client, known_query: str, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    go_on = threading.Event()
    told: list[Any] = []

    def slow(there: Any, name: str, here: Any) -> None:
        told.append(name)
        assert go_on.wait(30)

    monkeypatch.setattr(snapshot_steering.forking, "fork_snapshot", slow)
    first = post(writing, known_query, "forks", {"name": "one"})
    assert post(writing, known_query, "forks", {"name": "one"}).json["id"] == first.json["id"]
    assert first.json["progress"] == {"message": "Forking a snapshot", "done": 0, "total": 1}
    assert_problem(post(writing, known_query, "forks", {"name": "one"}, "chk-3"), 409, "something else")
    assert_problem(post(writing, known_query, "exports", {"name": "one"}), 409, "something else")
    assert_problem(post(writing, known_query, "copies", {"name": "one"}), 409, "something else")
    second = post(writing, known_query, "forks", {"name": "two"}, "chk-3")
    assert_problem(post(writing, known_query, "forks", {"name": "three"}), 409, "2 snapshots")
    go_on.set()
    assert {ended(writing, begun)["state"] for begun in (first, second)} == {"succeeded"}
    assert sorted(told) == ["chk-2", "chk-3"]


def test_an_export_tells_how_many_rows_are_written(
    writing: Client, known_query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, some = threading.Event(), threading.Event()
    export_to = portable_export.export_snapshot

    def slow(*arguments: Any, progress: Callable[[int, int], None], **named: Any) -> Any:
        def told(done: int, total: int) -> None:
            progress(done, total)
            some.set()
            assert go_on.wait(30)

        return export_to(*arguments, progress=told, **named)

    monkeypatch.setattr(portable_export, "export_snapshot", slow)
    begun = post(writing, known_query, "exports", {"name": "slowly"})
    try:
        assert some.wait(30)
        progress = writing.get(begun.headers["location"]).json["progress"]
        assert progress == {"message": "Exporting a snapshot", "done": 2, "total": 2}, "its table has two rows"
    finally:
        go_on.set()
    done = ended(writing, begun)
    assert (done["state"], done["progress"]) == ("succeeded", None)


def test_an_export_that_fails_says_why_and_leaves_nothing(
    writing: Client, known_query: str, root: Path, location: Path
) -> None:
    shutil.rmtree(location / "data")
    done = ended(writing, post(writing, known_query, "exports", {"name": "a"}))
    assert (done["state"], done["error"]["kind"], done["location"]) == ("failed", "CorruptSnapshot", None)
    assert "chk-2" in done["error"]["text"]
    assert not (root / "a").exists()
    assert ended(writing, post(writing, known_query, "forks", {"name": "b"}))["state"] == "failed"


# -- which files are shared ----------------------------------------------------


def shared(client: Client, query_id: str) -> Any:
    answer = client.get(f"/api/v1/queries/{query_id}/snapshots/sharing")
    assert answer.status == 200, answer.text
    return answer.json


def test_every_file_is_told_once_with_its_users_and_size(client: Client, known_query: str, location: Path) -> None:
    assert command("export", location, "chk-2", location / "portable" / "chk-2").exit_code == 0
    told = shared(client, known_query)
    assert told["snapshots"] == ["chk-1", "chk-2", "chk-3", "chk-4"]
    assert told["truncated"] is False
    files = {file["path"]: file for file in told["files"]}
    assert len(files) == len(told["files"])
    stored = {
        str(path.relative_to(location)): path.stat().st_size
        for folder in ("data", "snapshots", "portable")
        for path in (location / folder).rglob("*")
        if path.is_file()
    }
    assert {path: file["bytes"] for path, file in files.items()} == stored
    assert [file["bytes"] for file in told["files"]] == sorted(stored.values(), reverse=True)
    assert {file["kind"] for path, file in files.items() if path.endswith("-state.arrows")} == {"state"}
    assert files["snapshots/chk-3/metadata.json"]["kind"] == "metadata"
    assert files["portable/chk-2/manifest.json"] == {
        "path": "portable/chk-2/manifest.json", "bytes": stored["portable/chk-2/manifest.json"], "kind": "portable",
        "snapshots": ["chk-2"],
    }  # fmt: skip
    exclusive = {
        one["id"]: one["exclusive_bytes"]
        for one in client.get(f"/api/v1/queries/{known_query}/snapshots").json["snapshots"]
    }
    for name in told["snapshots"]:
        own = [file for file in told["files"] if file["snapshots"] == [name]]
        assert sum(file["bytes"] for file in own) == exclusive[name]


def test_it_can_only_be_read(client: Client, known_query: str) -> None:
    for method in ("DELETE", "PATCH", "POST", "PUT"):
        answer = client.send(method, f"/api/v1/queries/{known_query}/snapshots/sharing")
        assert_problem(answer, 405)
        assert answer.headers["allow"] == "GET"


def test_a_damaged_snapshot_hides_no_other(client: Client, known_query: str, location: Path) -> None:
    before = {file["path"] for file in shared(client, known_query)["files"]}
    (location / "snapshots/chk-3/metadata.json").write_bytes(b"{}")
    told = shared(client, known_query)
    assert "chk-3" in told["snapshots"]
    assert {file["path"] for file in told["files"]} == {path for path in before if not path.startswith("data/1-3-")}


def test_it_is_bounded(client: Client, known_query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shared(client, known_query)["files"]
    monkeypatch.setattr(sharing, "MAX_FILES", 3)
    told = shared(client, known_query)
    assert (told["files"], told["truncated"]) == (whole[:3], True)
    monkeypatch.setattr(sharing, "MAX_FILES", 2000)
    monkeypatch.setattr(sharing, "MAX_SNAPSHOTS", 2)
    told = shared(client, known_query)
    assert (told["snapshots"], told["truncated"]) == (["chk-3", "chk-4"], True)
