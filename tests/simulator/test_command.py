"""The command: what it prints, keeps and returns, and that a failing seed can be replayed and made smaller."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from simulator import __main__ as simulate
from simulator.__main__ import main
from simulator.coverage import Coverage
from simulator.jobs.topology import Inlet, Node
from simulator.mutants.table import first_failure, read_kills
from simulator.schedule import COMMAND, Task, settings_of, settings_text
from simulator.settings import Fault, Settings
from simulator.workers import Workers

pytestmark = pytest.mark.simulation

MUTANT = "output-queue-not-captured"
Printed = Callable[[], str]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: capsys.readouterr().out


@pytest.fixture(scope="module")
def killing_seed(workers: Workers) -> int:
    """The recorded one, or another one if schedules have changed since."""
    recorded = read_kills().get(MUTANT)
    seeds = [*([recorded.seed] if recorded else []), *range(60)]
    found = first_failure(workers, (Task(seed, mutant=MUTANT) for seed in seeds))
    assert found is not None
    return found[0]


def line(text: str, start: str) -> str:
    return next(found for found in text.splitlines() if found.startswith(start))


def arguments_of(replay: str) -> list[str]:
    command = replay.removeprefix("replay: ")
    assert command.startswith(COMMAND)
    return shlex.split(command.removeprefix(COMMAND))


def test_a_seed_that_passes_prints_its_digest_and_its_story_if_asked(printed: Printed) -> None:
    assert main(["1", "--seed", "3"]) == simulate.PASSED
    short = printed()
    assert "seed 3 passed" in short
    assert main(["1", "--seed", "3", "--trace"]) == simulate.PASSED
    long = printed()
    assert line(short, "seed 3 passed") == line(long, "seed 3 passed")
    assert long.index("seed 3 passed") > 10 * len(line(long, "seed 3 passed")), "the story comes first"


def test_a_failing_seed_is_kept_and_its_command_fails_in_the_same_way(
    printed: Printed, tmp_path: Path, killing_seed: int
) -> None:
    seed = killing_seed
    kept = tmp_path / "deep" / "failures.txt"
    many = ["3", "--seed", str(seed), "--mutant", MUTANT, "--workers", "2", "--failures", str(kept)]
    assert main(many) == simulate.FAILED
    first = printed()
    lines = [entry for entry in kept.read_text().splitlines() if entry.startswith(f"{seed}\t")]
    assert len(lines) == 1
    assert lines[0].endswith(f"--seed {seed} --mutant {MUTANT} --trace")
    assert str(kept) in first
    assert f"seed {seed} failed" in first

    command = lines[0].split("\t")[2].removeprefix(COMMAND)
    assert main(shlex.split(command)) == simulate.FAILED
    again = printed()
    digest = line(again, "digest ")
    assert digest in first
    assert line(again, "oracle: ") == f"oracle: {lines[0].split(chr(9))[1]}"
    assert shlex.split(command) == arguments_of(line(again, "replay: "))


def test_many_schedules_end_with_the_table(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "REQUIRED_FROM", 2)
    assert main(["2", "--workers", "2"]) == simulate.NOT_SEEN, "two schedules cannot have met every fault"
    text = printed()
    assert "2 of 2 schedules" in text
    assert "-- faults" in text
    assert "the median of 2 schedules" in text
    assert "never seen enough: faults: " in text
    assert main(["2", "--workers", "2", "--calm"]) == simulate.PASSED, "calm ones do not have to"
    assert "no schedule of 2 failed" in printed()


def test_settings_survive_the_command_line(printed: Printed) -> None:
    for seed in range(20):
        for settings in (Settings.random(seed), Settings.calm(seed)):
            assert settings_of(settings_text(settings)) == settings
    command = Task(3, Settings.calm(3)).command.removeprefix(COMMAND)
    assert main(shlex.split(command)) == simulate.PASSED
    told = line(printed(), "seed 3 passed")
    assert main(["1", "--seed", "3", "--calm"]) == simulate.PASSED
    assert line(printed(), "seed 3 passed") == told


@pytest.mark.parametrize("wrong", [["0"], ["x"], ["1", "--settings", "{}"], ["1", "--mutant", "none"], ["1", "--what"]])
def test_wrong_arguments_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(wrong)
    assert refused.value.code == 2
    assert "usage: " in capsys.readouterr().err


def test_ctrl_c_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "simulator", "100000", "--workers", "2"]
    running = subprocess.Popen(
        [*command, "--failures", str(tmp_path / "f.txt")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # shells have jobs in the background ignore it
    )
    parent = psutil.Process(running.pid)
    deadline = time.monotonic() + 60
    while len(parent.children(recursive=True)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.0)
    children = parent.children(recursive=True)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    assert running.returncode == simulate.INTERRUPTED, err
    assert "interrupted after" in out
    assert "Traceback" not in err
    _, alive = psutil.wait_procs(children, timeout=10)
    assert len(children) >= 2
    assert not alive


def test_shrinking_finds_smaller_settings_that_fail_in_the_same_way(printed: Printed) -> None:
    nodes = (
        Node("source", splits=4, rows_per_split=50),
        Node("count", (Inlet(0, "hash"),)),
        Node("relay", (Inlet(1, "rebalance"),), cost_ms=5.0),
    )
    faults = (Fault("slot declines", 100), Fault("slow store", 200))
    before = Settings(
        nodes,
        parallelism=3,
        exclusive_window=384,
        memory_per_gate=3_840,
        alignment="unaligned",
        interval_ms=20,
        faults=faults,
    )
    task = Task(0, before, mutant=MUTANT)
    assert main([*arguments_of(task.command), "--shrink"]) == simulate.FAILED
    text = printed()
    oracle = line(text, "oracle: ")
    replays = [found for found in text.splitlines() if found.startswith("replay: ")]
    assert len(replays) == 2, "of the seed and of the smallest settings"
    smallest = arguments_of(replays[1])
    settings = settings_of(smallest[smallest.index("--settings") + 1])
    assert settings.faults == ()
    assert settings.rows < before.rows
    assert settings.parallelism < before.parallelism
    assert len(settings.nodes) <= len(before.nodes)

    assert main(smallest) == simulate.FAILED
    assert line(printed(), "oracle: ") == oracle


def test_a_zero_in_the_table_is_a_problem() -> None:
    coverage = Coverage()
    full = dict.fromkeys(coverage.problems_by_counter(), 1) | {"rows": 500, "completed": 3, "faults": 1}
    for seed in range(300):
        coverage.add(Settings.random(seed), full)
    assert coverage.problems() == []

    name = "fault: torn file"
    without = Coverage()
    for seed in range(300):
        without.add(Settings.random(seed), {k: v for k, v in full.items() if k != name})
    assert without.problems() == [f"faults: {name}"]
    assert any(name in found and "never seen" in found for found in without.lines())


@pytest.mark.parametrize(("figure", "least"), [("rows", 500), ("completed", 3), ("faults", 1)])
def test_a_median_that_is_too_low_is_a_problem(figure: str, least: int) -> None:
    coverage = Coverage()
    high = {"rows": 500, "completed": 3, "faults": 1}
    for seed in range(5):
        coverage.add(Settings.random(seed), high | ({figure: least - 1} if seed < 3 else {}))
    assert [problem for problem in coverage.problems() if "median" in problem] == [
        f"the median schedule has {least - 1} {figure}, not {least}"
    ]
