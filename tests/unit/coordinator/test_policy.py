"""Policies of the coordinator and its restarts, made from option texts."""

from __future__ import annotations

import pytest

from penstock.config import MAX_CONCURRENT, Options, RestartStrategy, parse_options
from penstock.coordinator.machines.checkpoint_events import MAX_IN_FLIGHT, CheckpointPolicy
from penstock.coordinator.machines.restarts import RestartPolicy
from penstock.coordinator.policy import policy_of, restart_policy_of
from penstock.errors import ConfigError
from penstock.model.elements import Alignment


def test_the_default_is_aligned_with_a_budget_one_at_a_time_and_any_number_of_failures() -> None:
    assert policy_of(Options()) == CheckpointPolicy(
        interval_ms=10_000,
        timeout_ms=600_000,
        alignment=Alignment.AUTO,
        alignment_timeout_ms=200,
        min_pause_ms=0,
        max_concurrent=1,
        tolerable_failures=None,
        commit_retries=restart_policy_of(Options()),
        commit_timeout_ms=None,
    )


def test_every_option_of_checkpoints_reaches_the_policy() -> None:
    texts = {
        "checkpoint.interval": "1s",
        "checkpoint.timeout": "2m",
        "checkpoint.alignment": "Unaligned",
        "checkpoint.alignmenttimeout": "50ms",
        "checkpoint.minPause": "300",
        "checkpoint.maxConcurrent": "4",
        "checkpoint.tolerableFailures": "0",
        "restart.attempts": "4",
        "sink.retryTimeout": "5m",
    }
    assert policy_of(parse_options(texts)) == CheckpointPolicy(
        interval_ms=1000,
        timeout_ms=120_000,
        alignment=Alignment.UNALIGNED,
        alignment_timeout_ms=50,
        min_pause_ms=300,
        max_concurrent=4,
        tolerable_failures=0,
        commit_retries=RestartPolicy(4, 100, 10_000, RestartStrategy.EXPONENTIAL, 0.1, 600_000),
        commit_timeout_ms=300_000,
    )
    assert parse_options({"checkpoint.tolerableFailures": "unlimited"}).checkpoint_tolerable_failures is None


def test_every_option_of_restarts_reaches_their_policy() -> None:
    default = RestartPolicy(10, 100, 10_000, RestartStrategy.EXPONENTIAL, 0.1, 600_000)
    assert restart_policy_of(Options()) == default
    texts = {
        "restart.attempts": "3",
        "restart.delay": "2s",
        "restart.maxDelay": "9s",
        "restart.strategy": "failurerate",
        "restart.jitter": "0",
        "restart.interval": "1h",
    }
    policy = RestartPolicy(3, 2_000, 9_000, RestartStrategy.FAILURE_RATE, 0.0, 3_600_000)
    assert restart_policy_of(parse_options(texts)) == policy


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("restart.strategy", "sometimes", "choose exponential, fixed, failureRate, none"),
        ("restart.jitter", "1.5", "not a number from 0 to 1"),
        ("restart.jitter", "nan", "not a number from 0 to 1"),
        ("restart.jitter", "some", "not a number from 0 to 1"),
        ("checkpoint.alignment", "sideways", "auto, aligned or unaligned"),
        ("checkpoint.maxConcurrent", "0", "positive whole number"),
        ("checkpoint.maxConcurrent", str(MAX_CONCURRENT + 1), "at most 8"),
        ("checkpoint.tolerableFailures", "-1", "neither a whole number nor unlimited"),
        ("checkpoint.alignmentTimeout", "soon", "is not a duration"),
        ("checkpoint.interval", "1ms", "checkpoint.interval='1ms': must be 10ms or longer"),
        ("checkpoint.interval", "9.9", "must be 10ms or longer"),
        ("checkpoint.timeout", "0", "checkpoint.timeout='0': must be 10ms or longer"),
        ("checkpoint.maxInflightBytes", "0", "checkpoint.maxInflightBytes='0': must be 1 byte or more"),
        ("checkpoint.captureMemory", "0.5b", "must be 1 byte or more"),
        ("exchange.memoryPerGate", "0m", "must be 1 byte or more"),
        ("exchange.exclusiveWindow", "0", "must be 1 byte or more"),
        ("slot.startTimeout", "0", "slot.startTimeout='0': must be 1ms or longer"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_possible(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_options({name: text})


def test_the_shortest_checkpoint_interval_is_taken() -> None:
    assert policy_of(parse_options({"checkpoint.interval": "10ms"})).interval_ms == 10


def test_as_many_periodic_ones_as_can_be_in_flight_at_all() -> None:
    assert MAX_CONCURRENT == MAX_IN_FLIGHT
