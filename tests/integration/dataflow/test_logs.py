"""Log lines: each names its subject, and there are none if nothing happened."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import parse_options
from penstock.errors import CheckpointFailed, ConfigError
from penstock.logs import JsonLines, LogFormat, SparingLog, about, daemon_thread, get_logger, now_about
from penstock.model.elements import Alignment
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, tiny_graph


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("penstock")]


def test_lines_that_a_client_can_cause_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    sparing = SparingLog(get_logger("penstock.test"), 10.0, lambda: now_s)
    for number in range(1000):
        sparing.warning("refused: %s", number)
    now_s = 10.0
    sparing.warning("refused: %s", "again")
    sparing.warning("refused: %s", "and again")
    assert lines(caplog) == ["refused: 0", "refused: again (and 999 more like it before)"]


def test_a_line_says_what_it_is_about_in_text_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("penstock.somewhere")
    with about(query="100% sure", generation=1), about(slot=2, subtask="v1[2]"):
        log.warning("took %d s", 3)
    log.warning("about nothing")
    assert lines(caplog) == [
        "[query 100% sure, Generation 1, slot 2, subtask v1[2]] took 3 s",
        "about nothing",
    ]
    told = vars(caplog.records[0])
    assert (told["query"], told["generation"], told["slot"], told["subtask"]) == ("100% sure", 1, 2, "v1[2]")
    with pytest.raises(ValueError, match="no field"), about(message="taken by logging itself"):
        log.warning("not reached")


def test_threads_speak_of_what_their_maker_spoke_of_and_hear_of_changes(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("penstock.somewhere")
    with about(query="q"):
        thread = daemon_thread(lambda: log.warning("from a thread"), "penstock-test")
        now_about(generation=7)
    thread.start()
    thread.join()
    now_about(generation=8)  # about nothing: nobody is to hear of it
    log.warning("afterwards")
    assert lines(caplog) == ["[query q, Generation 7] from a thread", "afterwards"]


def test_a_normal_run_logs_nothing(
    tmp_path: Path, launcher: ProcessLauncher, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A snapshot that a user gave up is no news either: the user had the exception."""
    slow = tmp_path / "slow"
    slow.write_text("300")
    graph = tiny_graph(tmp_path / "out", 2, Numbers(20_000), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20)
    query.until(lambda v: v.committed_epoch > 0, what="a commit")
    with pytest.raises(CheckpointFailed):
        query.execution.request_snapshot("impatient", Alignment.ALIGNED, 0.001)
    slow.unlink()
    query.execution.process_all_available(60)
    query.execution.stop()
    assert lines(caplog) == []
    assert "penstock" not in capfd.readouterr().err  # of the slots


def test_a_killed_slot_is_told_of_once_with_query_and_generation(
    tmp_path: Path, launcher: ProcessLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    query = run(tiny_graph(tmp_path / "out", 2, Numbers(10**9, rate=2000)), tmp_path / "chk", launcher)
    query.until(lambda v: v.committed_epoch > 0, what="a commit")
    launcher.jobs[0].processes[1].kill()
    query.until_running(2)
    query.execution.stop()
    [line] = lines(caplog)
    assert line.startswith("[query tiny, Generation 1] the Generation failed: slot 1 (pid")


def test_slots_log_to_stderr_as_spark_does() -> None:
    program = (
        "import logging; from penstock.logs import *; log_to_stderr(logging.INFO); log_to_stderr(logging.INFO);"
        "log = get_logger('penstock.worker.slot')\n"
        "with about(query='q', slot=1): log.info('here')\n"
        "log.debug('not here')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    day, time, *rest = line.split(" ", 2)
    assert (len(day.split("/")), len(time.split(":"))) == (3, 3)
    assert rest == ["INFO penstock.worker.slot: [query q, slot 1] here"]
    assert logging.getLogger("penstock").level == logging.NOTSET  # that was another process


def as_json(log_lines: Callable[[logging.LoggerAdapter[logging.Logger]], None]) -> list[dict[str, object]]:
    """Return what a handler with ``JsonLines`` writes of the record."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("penstock.json")
    logger.addHandler(handler)
    try:
        log_lines(get_logger("penstock.json"))
    finally:
        logger.removeHandler(handler)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_json_line_has_what_it_is_about_in_fields_and_not_in_its_text() -> None:
    def speak(log: logging.LoggerAdapter[logging.Logger]) -> None:
        with about(query="100% sure", generation=1), about(slot=2, subtask="v1[2]"):
            log.warning("took %d s\nin two lines", 3, extra={"checkpoint": 7})
        log.warning("about nothing")

    first, second = as_json(speak)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", str(first.pop("time")))
    assert first == {
        "level": "WARNING",
        "logger": "penstock.json",
        "message": "took 3 s\nin two lines",
        "query": "100% sure",
        "generation": 1,
        "slot": 2,
        "subtask": "v1[2]",
        "checkpoint": 7,
    }
    assert set(second) == {"time", "level", "logger", "message"}


def test_a_json_line_has_no_field_that_nobody_asked_for_and_its_traceback() -> None:
    def speak(log: logging.LoggerAdapter[logging.Logger]) -> None:
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed", extra={"token": "s3cret"})

    [line] = as_json(speak)
    assert set(line) == {"time", "level", "logger", "message", "exception"}
    assert str(line["exception"]).endswith("ValueError: broken")


def test_log_format_is_an_option() -> None:
    assert parse_options({}).log_format is LogFormat.TEXT
    assert parse_options({"log.format": "JSON"}).log_format is LogFormat.JSON
    with pytest.raises(ConfigError, match="choose text or json"):
        parse_options({"log.format": "xml"})


def test_slots_and_driver_log_json_where_that_is_wanted_and_nobody_else_has_set_up_logging() -> None:
    program = (
        "import logging, sys; from penstock.logs import *; log = get_logger('penstock.x')\n"
        "listens = logging.NullHandler(); listens.only_listens = True\n"
        "logging.getLogger('penstock').addHandler(listens)\n"
        "log_to_stderr(logging.INFO); log.info('as spark')\n"
        "log_to_stderr(logging.INFO, LogFormat.JSON)\n"
        "with about(query='q', slot=1): log.info('here')\n"
        "log_on_driver(LogFormat.TEXT); log.info('still so')\n"
        "logging.getLogger('penstock').handlers.clear(); logging.basicConfig(format='users: %(message)s')\n"
        "log_on_driver(LogFormat.JSON); log.info('as the user wants')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    spark, first, second, users = done.stderr.splitlines()
    assert spark.endswith("INFO penstock.x: as spark")
    told = json.loads(first)
    assert (told["message"], told["query"], told["slot"]) == ("here", "q", 1)
    assert json.loads(second)["message"] == "still so"
    assert users == "users: as the user wants"
