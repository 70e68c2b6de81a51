"""Changes are guarded by what was read, followed to their end, and the code says what came of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from penstock.cli.query import operations, service
from tests.support.cli.calling import assert_one_line, query
from tests.support.cli.fake_service import (
    QUERY,
    FakeService,
    Reply,
    Request,
    SteeredQuery,
    fake_service,
    operation_document,
    problem,
)

OPERATION = "/api/v1/operations/op-1"


@pytest.fixture
def fake() -> Iterator[FakeService]:
    with fake_service() as fake:
        yield fake


@pytest.fixture
def steered(fake: FakeService) -> SteeredQuery:
    return SteeredQuery(fake)


def test_a_rescale_is_followed_to_its_end(fake: FakeService, steered: SteeredQuery) -> None:
    states = ["running", "running", "succeeded"]
    steered.operation = lambda _: Reply(operation_document(state=states.pop(0)))
    assert query("rescale", "sums", "4", PENSTOCK_URL=fake.url) == (0, "sums (5b0c1f2e) runs at parallelism 4\n", "")
    assert not states
    (sent,) = fake.asked("PATCH")
    assert (sent.path, sent.headers["If-Match"]) == (QUERY, '"1"')
    assert json.loads(sent.body) == {"spec": {"parallelism": 4}}


def test_on_a_terminal_a_bar_shows_how_far_it_is(fake: FakeService, steered: SteeredQuery) -> None:
    states = ["running"] * 5 + ["succeeded"]
    steered.operation = lambda _: Reply(operation_document(state=states.pop(0)))
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm", "PENSTOCK_URL": fake.url}
    code, out, err = query("rescale", "sums", "4", **terminal)
    assert (code, out) == (0, "sums (5b0c1f2e) runs at parallelism 4\n"), "stdout has the result alone"
    assert "Recovering as generation 4" in err
    assert "1/4" in err
    states = ["running"] * 5 + ["succeeded"]
    assert query("rescale", "sums", "4", "--json", **terminal)[2] == "", "none for programs"


def test_suspended_and_resumed(fake: FakeService, steered: SteeredQuery) -> None:
    assert query("suspend", "sums", PENSTOCK_URL=fake.url) == (0, "sums (5b0c1f2e) is suspended\n", "")
    assert query("resume", "sums", PENSTOCK_URL=fake.url) == (0, "sums (5b0c1f2e) runs already\n", "")
    steered.change(wanted="suspended")
    assert query("suspend", "sums", PENSTOCK_URL=fake.url) == (0, "sums (5b0c1f2e) is suspended already\n", "")
    told = query("resume", "sums", "--from", "before", "--output", "keep", PENSTOCK_URL=fake.url)
    assert told == (0, "sums (5b0c1f2e) goes on from before\n", "")
    sent = [json.loads(one.body) for one in fake.asked("PATCH")]
    assert sent[0] == {"spec": {"state": "suspended"}}
    assert sent[-1] == {"spec": {"state": "running"}, "resume_from": {"snapshot": "before", "output": "keep"}}
    assert_one_line(
        query("resume", "sums", "--output", "keep", PENSTOCK_URL=fake.url), "nothing without --from", code=2
    )


def test_no_wait_returns_at_once(fake: FakeService, steered: SteeredQuery) -> None:
    code, out, _ = query("rescale", "sums", "4", "--no-wait", PENSTOCK_URL=fake.url)
    assert (code, "the rescale of sums (5b0c1f2e), operation op-1, is begun" in out) == (0, True)
    assert not fake.asked("GET", OPERATION)
    told = json.loads(query("stop", "sums", "--no-wait", "--json", PENSTOCK_URL=fake.url)[1])
    assert (told["asked"], told["changed"], told["operation"]["state"]) == ({"state": "stopped"}, True, "running")


def test_what_the_spec_says_already_changes_nothing(fake: FakeService, steered: SteeredQuery) -> None:
    assert query("rescale", "sums", "2", PENSTOCK_URL=fake.url)[1] == "sums (5b0c1f2e) runs at parallelism 2 already\n"
    told = json.loads(query("rescale", "sums", "2", "--json", PENSTOCK_URL=fake.url)[1])
    assert (told["changed"], told["operation"], told["name"]) == (False, None, "sums")


def test_what_is_under_way_already_is_waited_for(fake: FakeService, steered: SteeredQuery) -> None:
    fake.routes[f"PATCH {QUERY}"] = Reply(operation_document(), 202)
    assert query("rescale", "sums", "2", PENSTOCK_URL=fake.url) == (0, "sums (5b0c1f2e) runs at parallelism 2\n", "")
    assert fake.asked("GET", OPERATION)
    told = json.loads(query("rescale", "sums", "2", "--json", PENSTOCK_URL=fake.url)[1])
    assert (told["changed"], told["operation"]["state"]) == (False, "succeeded")


def test_what_is_under_way_is_shown_with_its_query(fake: FakeService, steered: SteeredQuery) -> None:
    fake.routes[f"GET {QUERY}/graph"] = Reply({"generation": 3, "vertices": [], "edges": []})
    fake.routes[f"GET {QUERY}/exceptions"] = Reply({"failure": None, "restarts": []})
    assert "under way" not in query("show", "sums", PENSTOCK_URL=fake.url)[1]
    message = "Starting at parallelism 4: 1 of 4 slots run"
    steered.change(message=message, converged=False, operations=[{"id": "op-1", "verb": "rescale", "began_at_ms": 1}])
    code, shown, _ = query("show", "sums", PENSTOCK_URL=fake.url)
    assert code == 0
    assert f"running: {message}\n" in shown
    assert "under way: rescale, operation op-1\n" in shown


def test_an_operation_that_fails_ends_with_1(fake: FakeService, steered: SteeredQuery) -> None:
    error = {"kind": "ResourceError", "text": "99 slots are not free"}
    steered.operation = Reply(operation_document(state="failed", error=error))
    called = query("rescale", "sums", "99", PENSTOCK_URL=fake.url)
    assert_one_line(
        called, "the rescale of sums (5b0c1f2e), operation op-1, failed: ResourceError: 99 slots are not free"
    )
    steered.operation = problem(404, "there is no operation")
    assert_one_line(query("rescale", "sums", "99", PENSTOCK_URL=fake.url), "what came of it is not known")


def test_a_suspended_query_is_not_said_to_run_at_another_parallelism(fake: FakeService, steered: SteeredQuery) -> None:
    steered.change(wanted="suspended", state="suspended")
    code, out, _ = query("rescale", "sums", "4", PENSTOCK_URL=fake.url)
    assert (code, out) == (0, "sums (5b0c1f2e) is suspended, and is resumed at parallelism 4\n")


def test_a_change_of_something_else_is_no_conflict(fake: FakeService, steered: SteeredQuery) -> None:
    steered.before_patch = lambda: steered.change(interval_ms=7)
    assert query("rescale", "sums", "4", PENSTOCK_URL=fake.url)[0] == 0
    assert [one.headers["If-Match"] for one in fake.asked("PATCH")] == ['"1"', '"2"']


def test_somebody_who_was_quicker_is_told_of_and_not_overwritten(fake: FakeService, steered: SteeredQuery) -> None:
    steered.before_patch = lambda: steered.change(parallelism=6)
    called = query("rescale", "sums", "4", PENSTOCK_URL=fake.url)
    assert_one_line(called, "another client changed parallelism of sums (5b0c1f2e) from 2 to 6", "if you still want 4")
    assert len(fake.asked("PATCH")) == 1
    steered.before_patch = lambda: steered.change(parallelism=6, run_id="run-2")
    assert_one_line(query("stop", "sums", PENSTOCK_URL=fake.url), "was started anew meanwhile; nothing was done")


def test_who_wanted_the_same_is_no_conflict(fake: FakeService, steered: SteeredQuery) -> None:
    steered.before_patch = lambda: steered.change(parallelism=4)
    code, out, _ = query("rescale", "sums", "4", PENSTOCK_URL=fake.url)
    assert (code, out) == (0, "sums (5b0c1f2e) is to run at parallelism 4 already\n")


def test_a_spec_that_never_rests_is_given_up(fake: FakeService, steered: SteeredQuery) -> None:
    fake.routes[f"PATCH {QUERY}"] = problem(412, "changed")
    assert_one_line(query("rescale", "sums", "4", PENSTOCK_URL=fake.url), "5 attempts", "nothing was done")
    assert len(fake.asked("PATCH")) == 5


def test_a_lost_answer_to_a_change_is_not_called_a_failure(fake: FakeService, steered: SteeredQuery) -> None:
    fake.routes[f"PATCH {QUERY}"] = Reply(raw=b"HTTP/1.1 202 Acc")
    called = query("rescale", "sums", "4", PENSTOCK_URL=fake.url)
    assert_one_line(called, "not known whether the query is changed: `penstock query show 5b0c1f2e` tells")
    assert len(fake.asked("PATCH")) == 1


def test_settings_are_sent_as_the_service_takes_them(fake: FakeService, steered: SteeredQuery) -> None:
    code, out, _ = query("set", "sums", "--interval", "1500ms", "--alignment", "UNALIGNED", PENSTOCK_URL=fake.url)
    assert (code, out) == (0, "sums (5b0c1f2e) takes checkpoints every 1500ms, unaligned\n")
    assert json.loads(fake.asked("PATCH")[0].body)["spec"] == {
        "checkpoint": {"interval_ms": 1500, "alignment": "unaligned"}
    }
    for wrong, text in [([], "say what to set"), (["--interval", "soon"], "200ms"), (["--alignment", "no"], "choose")]:
        assert_one_line(query("set", "sums", *wrong, PENSTOCK_URL=fake.url), text, code=2)
    assert len(fake.asked("PATCH")) == 1


def gone(fake: FakeService) -> Reply:
    fake.end()
    return Reply(raw=b"")


def test_a_driver_that_ends_with_its_query_has_stopped_it(fake: FakeService, steered: SteeredQuery) -> None:
    steered.operation = lambda _: gone(fake)
    code, out, _ = query("stop", "sums", PENSTOCK_URL=fake.url)
    assert (code, out) == (0, "sums (5b0c1f2e) has ended with its driver\n")


def test_a_service_that_goes_amid_a_rescale_leaves_it_unknown(
    fake: FakeService, steered: SteeredQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "PATIENCE_S", 0.3)
    steered.operation = lambda _: gone(fake)
    called = query("rescale", "sums", "4", PENSTOCK_URL=fake.url)
    assert_one_line(
        called, "operation op-1, was begun, and what came of it is not known", "no REST service can be reached"
    )


def test_a_service_that_comes_back_is_asked_again(fake: FakeService, steered: SteeredQuery) -> None:
    answers = [
        Reply(raw=b""),
        Reply(raw=b"HTTP/1.1 503 No"),
        Reply(raw=b"HTTP/1.1 200"),
        Reply(operation_document(state="succeeded")),
    ]
    steered.operation = lambda _: answers.pop(0)
    assert query("rescale", "sums", "4", PENSTOCK_URL=fake.url)[0] == 0


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Its output. Python loses an interrupt that comes while an object is finalized: as users do, we press again."""
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError(f"three interrupts did not end it: {process.communicate()}")


def test_ctrl_c_stops_following_and_says_that_it_goes_on(fake: FakeService, steered: SteeredQuery) -> None:
    steered.operation = Reply(operation_document())
    words = [sys.executable, "-c", "from penstock.cli.main import app; app()", "query", "rescale", "sums", "4"]
    environment = {**os.environ, "PENSTOCK_URL": fake.url}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as called:
        deadline_s = time.monotonic() + 60
        while len(fake.asked("GET", OPERATION)) < 2:
            assert called.poll() is None, called.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        out, err = interrupted(called)
    assert (called.returncode, out) == (130, "")
    assert "the rescale of sums (5b0c1f2e), operation op-1, goes on" in err
    assert "Traceback" not in err


def test_an_id_is_quoted_where_it_goes_into_a_path(fake: FakeService) -> None:
    asked: list[Request] = []
    fake.routes["GET /api/v1/queries/a%2F..%3F"] = lambda request: asked.append(request) or Reply({})
    assert service.service_at(fake.url).get("queries", "a/..?").document == {}
    assert len(asked) == 1
