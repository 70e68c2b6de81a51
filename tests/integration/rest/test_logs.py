"""The log lines of one query: bounded, by level, in pages, without secrets; other handlers notice nothing."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.logs import about, get_logger, now_about
from penstock.queries.query_logs import KEPT, QUERIES, QueryLogs
from penstock.worker.log_relay import MOST_LINES, MOST_TEXT, LogRelay, relayed
from tests.support.queries.query_running import Inbox, Start, eventually
from tests.support.rest.rest_client import Client, assert_problem

log = get_logger("penstock.made_up")


@pytest.fixture
def logs() -> Iterator[QueryLogs]:
    heard = QueryLogs()
    heard.listen()
    yield heard
    logging.getLogger("penstock").removeHandler(heard)


def messages(logs: QueryLogs, query_id: str, level: int = 0, before: int | None = None, limit: int = 10) -> list[str]:
    return [line.message for line in logs.page(query_id, level, before, limit)[0]]


def test_lines_are_kept_by_query_and_level_in_pages(logs: QueryLogs) -> None:
    with about(query="orders", query_id="a"):
        now_about(generation=2)
        for number in range(5):
            log.warning("line %d", number)
        try:
            raise ValueError("no such thing")
        except ValueError:
            log.exception("it failed")
    with about(query="b", query_id="b"):
        log.warning("of another one")
    log.warning("of nobody")
    assert messages(logs, "b") == ["[query b] of another one"]
    newest, more = logs.page("a", logging.ERROR, None, 10)
    assert not more
    assert [(line.level_name, line.generation) for line in newest] == [("error", 2)]
    assert "ValueError: no such thing" in newest[0].exception
    lines, more = logs.page("a", logging.WARNING, newest[0].number, 2)
    assert more
    assert [line.message[-6:] for line in lines] == ["line 4", "line 3"]
    assert messages(logs, "a", before=lines[-1].number)[-1].endswith("line 0")


def test_it_is_bounded(logs: QueryLogs) -> None:
    with about(query_id="much"):
        for _ in range(KEPT + 10):
            log.warning("%s", "x" * 4_001)
    lines, more = logs.page("much", 0, None, 2 * KEPT)
    assert (len(lines), more, len(lines[0].message)) == (KEPT, False, 4000)
    for number in range(QUERIES):
        with about(query_id=f"q{number}"):
            log.warning("one line")
    assert not logs.page("much", 0, None, 1)[0]
    assert logs.page("q0", 0, None, 1)[0]


def test_warnings_reach_stderr_as_without_it_and_slots_lines_not_at_all() -> None:
    program = (
        "from penstock.queries.query_logs import QUERY_LOGS\n"
        "from penstock.worker.log_relay import relayed\n"
        "from penstock.network.messages import LoggedLine, SlotLogged\n"
        "from penstock.logs import get_logger\n"
        "import logging, sys\n"
        "QUERY_LOGS.listen()\n"
        "get_logger('penstock.x').warning('nothing is set up')\n"
        "relayed(SlotLogged(1, [LoggedLine(0.0, 40, 'penstock.x', 'written on an executor', '')], 0))\n"
        "logging.basicConfig(stream=sys.stderr, format='set up: %(message)s')\n"
        "get_logger('penstock.x').warning('once')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stderr == "nothing is set up\nset up: once\n"


def test_a_slot_tells_its_lines_and_how_many_it_leaves_out(logs: QueryLogs) -> None:
    relay = LogRelay()
    assert relay.take(1) is None
    with relay.listening():
        log.warning("the first")
        try:
            raise OSError("the disk is full")
        except OSError:
            log.exception("it failed")
        for _ in range(MOST_LINES):
            log.warning("%s", "x" * 10_000)
    log.warning("nobody listens")
    told = relay.take(1)
    assert told is not None
    assert relay.take(1) is None
    with about(query="orders", query_id="slots", generation=3):
        relayed(msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=type(told)))
    lines = [line for line in reversed(logs.page("slots", 0, None, 200)[0]) if "xxx" not in line.message]
    assert [line.message for line in lines[:2]] == ["the first", "it failed"]
    assert "OSError: the disk is full" in lines[1].exception
    assert lines[2].message == "slot 1 logged 2 lines more at this time: its executor's log has them"
    assert {(line.generation, line.slot, line.logger) for line in lines} == {(3, 1, "penstock.made_up")}
    assert len(logs.page("slots", 0, None, 200)[0]) == MOST_LINES + 1


def test_a_secret_is_removed_before_a_slot_cuts_its_line() -> None:
    """If a line is cut inside a secret, the name of the secret may be missing."""
    relay = LogRelay()
    with relay.listening():
        log.warning("%s", "x" * (MOST_TEXT - 30) + " jdbc:oracle:thin:me/hunter2hunter2@host")
        try:
            raise ValueError("password=" + "hunter2" * 10 + " " + "y" * (MOST_TEXT - 30))
        except ValueError:
            log.exception("it failed")
    told = relay.take(0)
    assert told is not None
    assert "hunt" not in told.lines[0].message
    assert "unter" not in told.lines[1].exception
    assert told.lines[1].exception.endswith("yyy\n")


@pytest.mark.spark
def test_the_log_of_a_query_has_lines_of_its_slots(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    def warns(value: int) -> int:
        import logging

        logging.getLogger("penstock.users").warning("the value is %d, password=hunter2", value)
        return value

    inbox.add([(1, 17, 1.0)])
    df = inbox.stream(spark).select(F.udf(warns, "bigint", useArrow=False)("value").alias("value"))
    query = start(df, format="noop", parallelism=2)
    with penstock.serve(token="") as server:
        client = Client(server.url)
        path = f"/api/v1/queries/{query.id}/logs"

        def told() -> list[dict[str, object]]:
            return [one for one in client.get(path).json["records"] if one["logger"] == "penstock.users"]

        eventually(lambda: told() != [], "the slot's warning")
        assert [(one["message"], one["level"], one["generation"]) for one in told()] == [
            ("the value is 17, password=***", "warning", 1)
        ]
        assert told()[0]["slot"] in (0, 1)


@pytest.mark.spark
def test_the_log_of_a_query_is_read_over_http(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add([(1, 1, 1.0)])
    query = start(inbox.stream(spark), format="noop", queryName="watched")
    query.processAllAvailable()
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    eventually(lambda: query.generation == 2 and query.view().state.value == "running", "Generation 2")
    with penstock.serve(token="") as server:
        client = Client(server.url)
        path = f"/api/v1/queries/{query.id}/logs"
        page = client.get(f"{path}?level=warning&limit=1").json
        eventually(lambda: client.get(path).json["records"] != [], "the warning")
        records = client.get(f"{path}?level=warning").json["records"]
        assert any("the Generation failed" in one["message"] for one in records)
        assert all(one["level"] in ("warning", "error") for one in records)
        assert len(page["records"]) == 1
        assert_problem(client.get("/api/v1/queries/unknown/logs"), 404, "unknown")
        assert_problem(client.get(f"{path}?level=loud"), 422)
