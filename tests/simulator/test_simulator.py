"""Seeded schedules of the whole job with crashes, and proof that the simulator sees what it is meant to see."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.errors import CorruptSnapshot, ProtocolViolation
from penstock.testing.figures import Figures
from penstock.testing.mutants import MUTANTS, mutated
from penstock.testing.outside import SimulationFailure
from penstock.testing.simulate import main
from penstock.testing.simulation import Outcome, Simulation

pytestmark = pytest.mark.simulation

SEEDS = 200


def run(seed: int) -> Outcome:
    return Simulation(seed).run()


def test_no_schedule_loses_duplicates_or_reorders_anything() -> None:
    total = Figures()
    for seed in range(SEEDS):
        try:
            total.add(run(seed).figures)
        except Exception as problem:
            command = f"python -m penstock.testing.simulate --schedules 1 --seed {seed}"
            raise AssertionError(f"seed {seed} fails; replay: {command}") from problem
    assert total.runs == SEEDS
    for happened in (
        total.slot_crashes,
        total.driver_crashes,
        total.second_drivers,
        total.fenced,
        total.store_faults,
        total.restored_inflight_rows,
        total.carried_rows,
        total.captured_inflight_rows,
        total.aborted,
        total.completed_aligned,
        total.completed_unaligned,
    ):
        assert happened > 0, total.lines()


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_code_is_caught(name: str) -> None:
    def run_all() -> None:
        for seed in range(SEEDS):
            run(seed)

    with mutated(name), pytest.raises((SimulationFailure, ProtocolViolation, CorruptSnapshot)):
        run_all()


def test_a_seed_replays_identically_whatever_the_hash_seed() -> None:
    digests = []
    for hash_seed in ("1", "4242"):
        done = subprocess.run(
            [sys.executable, "-m", "penstock.testing.simulate", "--schedules", "1", "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        digests.append(next(line for line in done.stdout.splitlines() if "digest" in line))
    assert digests[0] == digests[1] == f"seed 3 passed; digest {run(3).digest}"


def test_a_failing_seed_ends_with_its_story_and_a_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schedules", "5", "--mutant", "output-queue-not-captured"]) == 1
    printed = capsys.readouterr().out
    replay = next(line for line in printed.splitlines() if line.startswith("replay: "))
    seed = int(replay.split("--seed ")[1].split()[0])
    digest = next(line for line in printed.splitlines() if line.startswith("digest "))
    assert f"seed {seed} failed" in printed
    assert main(["--schedules", "1", "--seed", str(seed), "--mutant", "output-queue-not-captured"]) == 1
    assert digest in capsys.readouterr().out
