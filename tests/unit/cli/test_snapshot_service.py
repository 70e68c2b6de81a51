"""``penstock snapshot take``, ``delete`` and ``label`` of a query that a service runs: what is asked for, and what is
said when it is refused, or when what came of it is not known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.query import operations
from penstock.cli.snapshot import rest_client
from tests.support.cli.calling import assert_one_line, snapshot
from tests.support.cli.fake_service import (
    QUERY,
    FakeService,
    Reply,
    Request,
    fake_service,
    operation_document,
    problem,
    query_document,
)

TOKEN = "a-token-of-some-length"
HERE = "/not/on/this/machine/chk"
OPERATION = "/api/v1/operations/op-1"
NO_FOLDER = "there is no such folder"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    """Its query runs at ``HERE``, takes chk-7, and deletes."""
    monkeypatch.setattr(rest_client, "PAUSE_S", 0.0)
    with fake_service() as fake:
        runs_at(fake, HERE)
        fake.routes |= {
            f"POST {QUERY}/snapshots": Reply(operation_document("snapshot"), 202),
            f"DELETE {QUERY}/snapshots": Reply(operation_document("delete-snapshot"), 202),
            f"GET {QUERY}/snapshots": Reply({"location": HERE, "snapshots": [stored(5, "five"), stored(6), stored(7)]}),
            f"PATCH {QUERY}/snapshots/chk-5": Reply(stored(5, "mine")),
            f"GET {OPERATION}": ended(snapshot="chk-7"),
        }
        yield fake


def runs_at(fake: FakeService, location: str, **changes: Any) -> None:
    fake.routes["GET /api/v1/queries"] = Reply({"queries": [query_document(location=location, **changes)]})


def stored(checkpoint: int, label: str = "") -> dict[str, Any]:
    name = f"chk-{checkpoint}"
    return {
        "id": name, "checkpoint": checkpoint, "label": label, "note": "", "kind": "periodic", "in_lineage": True,
    }  # fmt: skip


def ended(**more: Any) -> Reply:
    return Reply(operation_document("snapshot", state="succeeded", **more))


def failed(kind: str, text: str) -> Reply:
    return Reply(operation_document("snapshot", state="failed", error={"kind": kind, "text": text}))


def gone(fake: FakeService) -> Reply:
    fake.end()
    return Reply(raw=b"")


def test_a_snapshot_is_asked_for_and_followed(fake: FakeService) -> None:
    answers = [Reply(operation_document("snapshot"))] * 2 + [ended(snapshot="chk-7")]
    fake.routes[f"GET {OPERATION}"] = lambda _: answers.pop(0)
    assert snapshot("take", HERE, "--url", fake.url) == (0, "chk-7\n", "")
    assert not answers
    (sent,) = fake.asked("POST")
    assert json.loads(sent.body) == {"label": "", "note": ""}
    assert len(sent.headers["Idempotency-Key"]) == 32
    assert "Authorization" not in sent.headers


def test_all_that_can_be_said_of_it_is_sent(fake: FakeService) -> None:
    said = ["--label", "mine", "--note", "why", "--alignment", "Unaligned", "--timeout", "2.5", "--format", "portable"]
    fake.routes[f"GET {OPERATION}"] = ended(snapshot="chk-7")
    code, out, _ = snapshot("take", HERE, *said, "--json", PENSTOCK_URL=fake.url, PENSTOCK_TOKEN=TOKEN)
    assert (code, json.loads(out)) == (0, {"snapshot": "chk-7", "format": "portable"})
    (sent,) = fake.asked("POST")
    assert json.loads(sent.body) == {
        "label": "mine", "note": "why", "alignment": "unaligned", "timeout_ms": 2500, "format": "portable",
    }  # fmt: skip
    assert {one.headers["Authorization"] for one in fake.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9"])
def test_a_wrong_time_out_is_a_wrong_argument(fake: FakeService, seconds: str) -> None:
    code, out, err = snapshot("take", HERE, "--timeout", seconds, "--url", fake.url)
    assert (code, out) == (2, "")
    assert "Invalid value for '--timeout'" in err
    assert not fake.requests


def test_several_are_deleted_by_one_request(fake: FakeService) -> None:
    fake.routes[f"GET {OPERATION}"] = ended(freed_files=3, freed_bytes=4096)
    told = snapshot("delete", HERE, "6", "five", "chk-6", "--url", fake.url)
    assert told == (0, "chk-5, chk-6: 3 files, 4,096 bytes gone\n", "")
    (sent,) = fake.asked("DELETE")
    assert sent.path == f"{QUERY}/snapshots?snapshot=chk-5&snapshot=chk-6"


def test_a_label_is_a_patch_of_what_is_named(fake: FakeService) -> None:
    assert snapshot("label", HERE, "five", "--label", "mine", "--url", fake.url)[:2] == (
        0, "chk-5 is called 'mine', periodic\n",
    )  # fmt: skip
    assert snapshot("label", HERE, "five", "--remove", "--note", "", "--url", fake.url)[0] == 0
    assert [json.loads(one.body) for one in fake.asked("PATCH")] == [{"label": "mine"}, {"label": "", "note": ""}]


def test_on_a_terminal_a_bar_shows_how_far_it_is(fake: FakeService) -> None:
    def told(*words: str) -> tuple[int, str, str]:
        answers = [Reply(operation_document("snapshot"))] * 5 + [ended(snapshot="chk-7")]
        fake.routes[f"GET {OPERATION}"] = lambda _: answers.pop(0)
        return snapshot("take", HERE, *words, FORCE_COLOR="1", TERM="xterm", PENSTOCK_URL=fake.url)

    code, out, err = told()
    assert (code, out, "1/4" in err) == (0, "chk-7\n", True)
    assert told("--json")[2] == "", "none for programs"


@pytest.mark.parametrize(
    ("location", "changes"),
    [("/another/chk", {}), (HERE, {"state": "stopped"}), (HERE, {"state": "failed"}), ("abc://later/release", {})],
)
def test_what_the_service_does_not_run_goes_by_the_files(fake: FakeService, location: str, changes: Any) -> None:
    runs_at(fake, location, **changes)
    for words in (["take", HERE], ["delete", HERE, "five"], ["label", HERE, "five", "--label", "x"]):
        assert_one_line(snapshot(*words, PENSTOCK_URL=fake.url), NO_FOLDER)
    assert {one.path for one in fake.requests} == {"/api/v1/queries"}


def test_what_is_here_at_the_same_path_and_no_location_is_another_place(fake: FakeService, tmp_path: Path) -> None:
    runs_at(fake, str(tmp_path))
    assert snapshot("take", str(tmp_path), "--url", fake.url)[:2] == (0, "chk-7\n"), "such as a mount that is missing"
    (tmp_path / "notes.txt").write_text("mine")
    assert_one_line(snapshot("take", str(tmp_path), "--url", fake.url), "holds files that are not Penstock's")
    assert len(fake.asked("POST")) == 1


def test_nobody_is_asked_whom_the_user_has_not_named(fake: FakeService) -> None:
    assert_one_line(snapshot("take", HERE, PENSTOCK_TOKEN=TOKEN), NO_FOLDER)
    assert_one_line(snapshot("take", HERE, "--url", "", PENSTOCK_URL=fake.url, PENSTOCK_TOKEN=TOKEN), NO_FOLDER)
    assert_one_line(snapshot("delete", HERE, "five", "--force", PENSTOCK_URL=fake.url), NO_FOLDER)
    assert_one_line(snapshot("delete", HERE, "five", "--dry-run", PENSTOCK_URL=fake.url), NO_FOLDER)
    assert not fake.requests


def test_a_token_for_no_service_is_refused(fake: FakeService, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    words = ["delete", HERE, "five", "--token-file", str(tmp_path / "token")]
    assert_one_line(snapshot(*words), "--token-file", "--url", code=2)
    assert snapshot(*words, "--url", fake.url)[0] == 0


def test_a_service_that_was_named_and_does_not_answer_is_not_passed_over(fake: FakeService) -> None:
    fake.end()
    for named in ({"PENSTOCK_URL": fake.url}, {}):
        words = ["take", HERE, *([] if named else ["--url", fake.url])]
        assert_one_line(snapshot(*words, **named), f"no REST service can be reached at {fake.url}", "--url ''")


def test_a_service_that_wants_a_token_is_not_passed_over(fake: FakeService) -> None:
    fake.routes["GET /api/v1/queries"] = problem(401, "no")
    called = snapshot("take", HERE, "--url", fake.url)
    assert_one_line(called, "asks for a token", "PENSTOCK_TOKEN", "--token-file", "--url ''")
    called = snapshot("take", HERE, "--url", fake.url, PENSTOCK_TOKEN=TOKEN)
    assert_one_line(called, "does not know the token", "PENSTOCK_TOKEN")
    assert TOKEN not in called[2]
    assert not fake.asked("POST")


def test_what_is_refused_says_why_and_nothing_else(fake: FakeService) -> None:
    for status, why in ((409, "16 operations on this query's snapshots go on"), (404, "no query runs")):
        fake.routes[f"POST {QUERY}/snapshots"] = problem(status, why)
        fake.routes[f"DELETE {QUERY}/snapshots"] = problem(status, why)
        fake.routes[f"PATCH {QUERY}/snapshots/chk-5"] = problem(status, why)
        for words in (["take", HERE], ["delete", HERE, "five"], ["label", HERE, "five", "--label", "x"]):
            assert snapshot(*words, "--url", fake.url) == (1, "", f"penstock: {why}\n")
    called = snapshot("delete", HERE, "nobody", "--url", fake.url)
    assert_one_line(called, f"{HERE}: there is no snapshot 'nobody'", "chk-5 ('five')")
    assert_one_line(snapshot("delete", HERE, "chk-5", "chk-7", "--url", fake.url), "chk-7 is the newest snapshot")
    assert len(fake.asked("DELETE")) == 2, "nothing is asked for that cannot be"


def test_an_operation_that_fails_says_why_and_nothing_else(fake: FakeService) -> None:
    fake.routes[f"GET {OPERATION}"] = failed("CheckpointFailed", "the snapshot failed: [red]\x1b[2Jtimed out")
    for words in (["take", HERE], ["delete", HERE, "chk-6"]):
        told = snapshot(*words, "--url", fake.url)
        assert told == (1, "", "penstock: the snapshot failed: [red] [2Jtimed out\n")


def test_a_lost_answer_is_asked_for_again_and_takes_no_second_one(fake: FakeService) -> None:
    answers = [Reply(raw=b"HTTP/1.1 202 Acc"), Reply(operation_document("snapshot"), 202)]
    fake.routes[f"POST {QUERY}/snapshots"] = lambda _: answers.pop(0)
    assert snapshot("take", HERE, "--url", fake.url)[:2] == (0, "chk-7\n")
    keys = [one.headers["Idempotency-Key"] for one in fake.asked("POST")]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    assert snapshot("take", HERE, "--url", fake.url)[0] == 1
    assert fake.asked("POST")[-1].headers["Idempotency-Key"] not in keys, "another command asks for another one"


@pytest.mark.parametrize("then", ["lost", "gone", "refused"])
def test_once_an_answer_is_lost_it_is_not_known_what_was_done(fake: FakeService, then: str) -> None:
    def answer(_: Request) -> Reply:
        fake.routes[f"POST {QUERY}/snapshots"] = problem(409, "the query has ended")
        return gone(fake) if then == "gone" else Reply(raw=b"")

    fake.routes[f"POST {QUERY}/snapshots"] = Reply(raw=b"") if then == "lost" else answer
    called = snapshot("take", HERE, "--url", fake.url)
    why = {"lost": "did not answer POST", "gone": "can be reached", "refused": "the query has ended"}[then]
    assert_one_line(called, why, f"not known whether a snapshot is taken: `penstock snapshot list {HERE}` tells")
    assert len(fake.asked("POST")) == (1 if then == "gone" else rest_client.TRIES)


def test_what_may_be_done_once_only_is_sent_once(fake: FakeService) -> None:
    fake.routes[f"DELETE {QUERY}/snapshots"] = fake.routes[f"PATCH {QUERY}/snapshots/chk-5"] = Reply(raw=b"HTTP/1.1 2")
    tells = f"`penstock snapshot list {HERE}` tells"
    called = snapshot("delete", HERE, "five", "6", "--url", fake.url)
    assert_one_line(called, f"not known whether chk-5, chk-6 are deleted: {tells}")
    called = snapshot("label", HERE, "five", "--label", "x", "--url", fake.url)
    assert_one_line(called, f"not known whether chk-5 is called so: {tells}")
    assert (len(fake.asked("DELETE")), len(fake.asked("PATCH"))) == (1, 1)


def test_a_service_that_goes_amid_it_leaves_it_unknown(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "PATIENCE_S", 0.3)
    fake.routes[f"GET {OPERATION}"] = lambda _: gone(fake)
    called = snapshot("take", HERE, "--url", fake.url)
    assert_one_line(
        called,
        "the snapshot of sums (5b0c1f2e), operation op-1, was begun, and what came of it is not known",
        f"`penstock snapshot list {HERE}` tells",
        "no REST service can be reached",
    )


def test_an_operation_that_does_not_name_its_snapshot_is_no_success(fake: FakeService) -> None:
    fake.routes[f"GET {OPERATION}"] = ended()
    assert_one_line(snapshot("take", HERE, "--url", fake.url), "does not say which")
