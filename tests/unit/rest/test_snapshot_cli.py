"""``penstock snapshot delete`` and ``label`` through the service, at a location whose driver has ended: what is done
and told is what is done and told by the location's files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.operations import OPERATIONS, OperationState, Verb
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.queries.query_running import eventually
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Client, assert_problem
from tests.unit.cli.test_requests_cli import forget_that_it_ended, ids

SNAPSHOTS = "/api/v1/queries/query-1/snapshots"


@pytest.fixture
def url(location: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a service to which the location's query seems to run."""
    facts = replace(MadeUpQuery(vertices=2, parallelism=1).facts(), id="query-1", location=str(location))
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [facts])
    monkeypatch.setattr(OPERATIONS, "_operations", {})
    with penstock.serve(token="") as server:
        yield server.url


def called(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["snapshot", *map(str, words)], env={"PENSTOCK_URL": None, "COLUMNS": "80"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def operations() -> int:
    return len(OPERATIONS._operations)


COMMANDS = [
    ["delete", "@", "chk-1"],
    ["delete", "@", "3", "chk-1", "3", "--json"],
    ["delete", "@", "mine"],
    ["delete", "@", "chk-1", "twice"],
    ["delete", "@", "chk-1", "chk-9"],
    ["delete", "@", "chk-1", "chk-4"],
    ["delete", "@", "chk-1", "chk-2", "--dry-run"],
    ["delete", "@", "chk-1", "--dry-run", "--json"],
    ["label", "@", "chk-3", "--label", "[new]", "--note", "by hand"],
    ["label", "@", "mine", "--label", "yours", "--json"],
    ["label", "@", "mine", "--remove"],
    ["label", "@", "mine", "--note", "", "--json"],
    ["label", "@", "nobody", "--label", "x"],
    ["label", "@", "twice", "--label", "x"],
    ["label", "@", "chk-1", "--label", "x", "--remove"],
    ["take", "@", "--format", "zip"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_both_ways_do_and_tell_the_same(location: Path, url: str, command: list[str]) -> None:
    for words in (
        ["chk-2", "--label", "mine", "--note", "kept"],
        ["chk-1", "--label", "twice"],
        ["3", "--label", "twice"],
    ):
        assert called("label", location, *words)[0] == 0
    before = location.with_name("before")
    shutil.copytree(location, before)

    def done(*more: str) -> object:
        shutil.rmtree(location)
        shutil.copytree(before, location)
        told = called(*(str(location) if word == "@" else word for word in command), *more)
        records = SnapshotLog(LocalStore(str(location))).refresh().snapshots
        return told, [(record.checkpoint, record.label, record.note, record.requested) for record in records]

    by_files = done()
    assert not operations()
    assert done("--url", url) == by_files
    deletes = command[0] == "delete" and by_files[0][0] == 0 and "--dry-run" not in command  # type: ignore[index]
    assert operations() == int(deletes)


def test_a_label_goes_over_http(location: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **more: object) -> None:
        raise AssertionError("the files were asked")

    monkeypatch.setattr("penstock.cli.snapshot.file_client.located", never)
    code, out, _ = called("label", location, "chk-2", "--label", "mine", "--url", url)
    assert (code, out) == (0, "chk-2 is called 'mine', requested\n")
    assert called("delete", location, "mine", "--url", url)[0] == 0
    with pytest.raises(AssertionError, match="the files were asked"):
        called("delete", location, "chk-1", "--url", url, "--force")  # whoever takes it over has to be there
    with pytest.raises(AssertionError, match="the files were asked"):
        called("delete", location, "chk-1")


def test_of_more_than_one_request_takes_none_goes_if_the_newest_is_among_them(
    location: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.snapshots.commands.requests.MAX_IDS", 2)
    code, _, err = called("delete", location, "chk-1", "chk-2", "chk-3", "chk-4", "--url", url)
    assert (code, "chk-4 is the newest snapshot" in err, ids(location)) == (1, True, [1, 2, 3, 4])
    assert called("delete", location, "chk-1", "chk-2", "chk-3", "--url", url)[1].startswith("chk-1, chk-2, chk-3: 6 f")
    assert (operations(), ids(location)) == (2, [4])


def test_another_query_of_the_same_path_is_not_this_one(
    location: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(location, target_is_directory=True)
    assert called("delete", link, "chk-1", "--url", url)[0] == 0
    assert operations() == 1, "a link leads to the same place"
    (facts,) = ACTIVE_QUERIES.known()
    linked = replace(facts, location=f"file://{link}/")
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [linked])
    assert called("delete", location, "chk-2", "--url", url)[0] == 0
    assert operations() == 2, "whoever has named it so"
    other = replace(facts, id="query-of-another-machine")
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [other])
    assert called("delete", location, "chk-3", "--url", url)[0] == 0
    assert (operations(), ids(location)) == (2, [4])


def test_several_are_deleted_by_one_request_or_none_is(location: Path, url: str) -> None:
    client = Client(url)
    assert_problem(client.send("DELETE", f"{SNAPSHOTS}?snapshot=chk-1&snapshot=chk-4"), 409, "chk-4 is the newest")
    assert_problem(client.send("DELETE", f"{SNAPSHOTS}?snapshot=chk-1&snapshot=chk-9"), 404, "chk-9")
    too_many = "&".join(f"snapshot=chk-{number}" for number in range(1, 102))
    assert_problem(client.send("DELETE", f"{SNAPSHOTS}?{too_many}"), 422)
    assert (operations(), ids(location)) == (0, [1, 2, 3, 4])
    begun = client.send("DELETE", f"{SNAPSHOTS}?snapshot=chk-2&snapshot=chk-1")
    assert (begun.status, begun.json["snapshot"]) == (202, None)
    operation = begun.headers["location"]
    eventually(lambda: client.get(operation).json["state"] != "running", "the end")
    ended = client.get(operation).json
    assert (ended["state"], ended["snapshot"], ended["freed_files"]) == ("succeeded", None, 4)
    assert ids(location) == [3, 4]


def test_what_fails_says_what_it_says_at_the_location(location: Path, url: str) -> None:
    forget_that_it_ended(location)
    by_files = called("delete", location, "chk-1")
    by_service = called("delete", location, "chk-1", "--url", url)
    assert by_service == by_files
    assert (by_service[0], "no driver answers at this location" in by_service[2]) == (1, True)
    (operation,) = OPERATIONS._operations.values()
    assert (operation.verb, operation.state) == (Verb.DELETE_SNAPSHOT, OperationState.FAILED)
