"""Error texts for a failed slot or a failed Spark job."""

from __future__ import annotations

import pytest

from penstock.coordinator.failures import discovery_failure, error_of, failure_of, gave_up, may_pass, recovery_failure
from penstock.coordinator.machines.restarts import Failure, GiveUp, RestartAt, RestartPolicy, Restarts
from penstock.errors import (
    DataError,
    EvaluationError,
    GenerationFailed,
    PenstockError,
    SinkError,
    SinkFenced,
    UnfitFile,
)
from penstock.network.messages import SlotFailed
from penstock.spark.job import reason as reason_of


@pytest.mark.parametrize(
    ("kind", "message", "error", "text"),
    [
        ("data", "DataError: in.csv, line 2: malformed", DataError, "Read: in.csv, line 2: malformed"),
        ("data", "EvaluationError: [DIVIDE_BY_ZERO] no", EvaluationError, "Read: [DIVIDE_BY_ZERO] no"),
        ("internal", "SinkError: cannot write /out", SinkError, "Read: cannot write /out"),
        ("internal", "KeyError: 3", GenerationFailed, "slot 0: Read: KeyError: 3\nTraceback of Penstock"),
    ],
)
def test_errors_keep_their_type_and_say_their_name_once(
    kind: str, message: str, error: type[PenstockError], text: str
) -> None:
    told = error_of(SlotFailed(0, kind, "Read", message, "Traceback of Penstock", ""))
    assert type(told) is error
    assert str(told) == text


def test_input_that_cannot_be_read_is_tried_twice() -> None:
    restarts = Restarts(RestartPolicy(attempts=10, delay_ms=100, max_delay_ms=10_000))
    failure = failure_of(SlotFailed(0, "data", "Read", "DataError: in.csv, line 2: malformed", "", ""))
    assert isinstance(restarts.failed(failure, 0), RestartAt)
    decision = restarts.failed(failure, 200)
    assert isinstance(decision, GiveUp)
    assert str(gave_up(decision, DataError("in.csv"))).startswith("in.csv\nThe query gave up: the same error")


def test_an_unfit_file_is_permanent_and_other_failures_of_a_discovery_are_not() -> None:
    restarts = Restarts(RestartPolicy(attempts=10, delay_ms=100, max_delay_ms=10_000))
    for _ in range(5):
        assert isinstance(restarts.failed(discovery_failure("Read", DataError("/in does not exist")), 0), RestartAt)
    misplaced = discovery_failure("Read", UnfitFile("/in/day=1/a"))
    assert isinstance(restarts.failed(misplaced, 0), RestartAt)
    decision = restarts.failed(misplaced, 0)
    assert isinstance(decision, GiveUp)
    assert decision.reason.startswith("the same error")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o8.\n: org.apache.spark.SparkException: Job aborted\n"
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n SQLSTATE: 3\n\tat a.b(C:1)",
            "ModuleNotFoundError: No module named 'x'",
        ),
        (
            "An error occurred while calling o8.\n: org.SparkException: Job 3 cancelled SQLSTATE: X\n\tat a.b",
            "org.SparkException: Job 3 cancelled SQLSTATE: X",
        ),
        ("", "RuntimeError"),
    ],
)
def test_a_job_that_spark_ended_says_why(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_a_recovery_during_which_another_driver_takes_the_output_is_repeated() -> None:
    lost = SinkFenced("/out: another driver")
    assert may_pass(lost)
    assert recovery_failure(lost) == (Failure("fenced", "", "/out: another driver"), lost)


def test_only_an_unavailable_store_or_output_makes_a_recovery_wait() -> None:
    full = SinkError("cannot take over /out")
    full.__cause__ = OSError("No space left on device")
    assert recovery_failure(full)[1] is full
    assert recovery_failure(full)[0].kind == "sink"
    assert recovery_failure(OSError("away"))[0].kind == "location"
    assert [may_pass(error) for error in (full, OSError("away"))] == [True, True]
    assert not may_pass(SinkError("the location is older than the output"))
    assert not may_pass(DataError("malformed"))
