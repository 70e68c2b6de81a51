"""``python -m simulator N``: seeded schedules of the deterministic simulator, on all cores.

    simulate 20000 --seed 7            seeds 7 to 20006; a failing one prints the command that replays it
    simulate 1 --seed 42 --trace       one schedule with its whole story
    simulate 1 --seed 42 --shrink      the smallest settings found that fail in the same way
    simulate --mutants [--write]       every mutant: passes the calm schedules? killed by which, and by which oracle?

Exit codes: 0 all passed (and everything that should be seen was seen), 1 a schedule failed or a mutant is no good,
2 wrong arguments, 3 something was never seen in a long run, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.testing.failure import SimulationFailure
from simulator.coverage import REQUIRED_FROM, Coverage
from simulator.mutants.catalog import MUTANTS
from simulator.mutants.table import CALM, WITHIN, check_mutants, write_table
from simulator.progress import Progress
from simulator.schedule import Result, Task, run_task, settings_of
from simulator.shrink import shrink_by_oracle, size_text
from simulator.workers import LIMIT_S, Workers, cores

STORY_LINES = 40
DETAILED = 3
"""So many failures are printed with their story; further ones with their replay command only."""
FAILURES = Path("artifacts/simulation-failures.txt")

PASSED, FAILED, NOT_SEEN, INTERRUPTED = 0, 1, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules; returns the process's exit code (argparse raises SystemExit with 2)."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.mutants:
            return _mutants(chosen)
        return _one(chosen) if chosen.schedules == 1 or chosen.shrink else _many(chosen)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulator",
        description="Run seeded schedules of the whole protocol under faults.",
        epilog="exit codes: 0 passed, 1 failed, 2 wrong arguments, 3 something was never seen, 130 interrupted",
    )
    add = parser.add_argument
    add("schedules", type=_positive, nargs="?", default=1, metavar="N", help="how many seeds (default: 1)")
    add("--seed", type=int, default=0, metavar="S", help="the first one (default: 0)")
    add("--workers", type=_positive, default=cores(), metavar="K", help="processes (default: one per core)")
    add("--mutant", choices=sorted(MUTANTS), metavar="NAME", help="break the code on purpose: seeds should fail")
    add("--settings", type=settings_of, metavar="JSON", help="instead of what the seed says; the rest is default")
    add("--calm", action="store_true", help="the seed's job without faults and pressure")
    add("--trace", action="store_true", help="print the whole story (N = 1)")
    add("--shrink", action="store_true", help="find the smallest settings that still fail")
    add("--failures", type=Path, default=FAILURES, metavar="FILE", help=f"where failing seeds go (default: {FAILURES})")
    add("--max-failures", type=_positive, default=20, metavar="K", help="stop after so many (default: 20)")
    add("--mutants", action="store_true", help="check every mutant and print the table")
    add("--write", action="store_true", help="with --mutants: record the table in the documentation and the tests")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _task(chosen: argparse.Namespace, seed: int) -> Task:
    return Task(seed, chosen.settings, chosen.calm, chosen.mutant, chosen.trace)


# -- one schedule -----------------------------------------------------------------------------------------------------


def _one(chosen: argparse.Namespace) -> int:
    task = _task(chosen, chosen.seed)
    result = run_task(task)
    if result.failure is None:
        if chosen.trace:
            print("\n".join(result.story))
        print(f"seed {task.seed} passed; digest {result.digest}")
        for name, count in sorted(result.counters.items()):
            print(f"{count:>9,} {name}")
        return PASSED
    _report(result, None if chosen.trace else STORY_LINES)
    if chosen.shrink:
        with Workers(chosen.workers, LIMIT_S) as workers:
            smallest = shrink_by_oracle(
                task, result.failure.oracle, workers, lambda text: print(f"  {text}", flush=True)
            )
        print(f"smallest: {size_text(smallest.chosen_settings)}")
        print(f"replay: {smallest.command}")
    return FAILED


def _report(result: Result, lines: int | None) -> None:
    assert result.failure is not None
    print(f"\nseed {result.task.seed} failed; the last events:")
    for line in result.story if lines is None else result.story[-lines:]:
        print(f"  {line}")
    print(result.details)
    print(f"digest {result.digest}")
    print(f"oracle: {result.failure.oracle}")
    print(f"replay: {result.task.command}\n", flush=True)


# -- many schedules ---------------------------------------------------------------------------------------------------


def _many(chosen: argparse.Namespace) -> int:
    coverage, failed = Coverage(), 0
    tasks = (_task(chosen, seed) for seed in range(chosen.seed, chosen.seed + chosen.schedules))
    interrupted = False
    with Workers(chosen.workers, LIMIT_S) as workers, Progress(chosen.schedules) as progress:
        try:
            for result in workers.run(tasks):
                if result.failure is None:
                    coverage.add(result.task.chosen_settings, result.counters)
                else:
                    failed += 1
                    _keep(chosen.failures, result)
                    with progress.paused():
                        _tell(result, failed)
                progress.step(failed)
                if failed >= chosen.max_failures:
                    break
        except KeyboardInterrupt:
            interrupted = True
    print("\n".join(coverage.lines()))
    if failed:
        print(f"{failed} schedules failed; their seeds are in {chosen.failures}")
    if interrupted:
        print(f"interrupted after {coverage.schedules + failed:,} schedules")
        return INTERRUPTED
    if failed:
        return FAILED
    print(f"no schedule of {coverage.schedules:,} failed")
    judged = chosen.settings is None and not chosen.calm and coverage.schedules >= REQUIRED_FROM
    missing = coverage.problems() if judged else []
    for problem in missing:
        print(f"never seen enough: {problem}")
    return NOT_SEEN if missing else PASSED


def _tell(result: Result, number: int) -> None:
    if number <= DETAILED:
        _report(result, STORY_LINES)
    else:
        assert result.failure is not None
        print(f"seed {result.task.seed} failed: {result.failure.text}\nreplay: {result.task.command}", flush=True)


def _keep(path: Path, result: Result) -> None:
    """Append at once: a run may be stopped at any time."""
    assert result.failure is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{result.task.seed}\t{result.failure.oracle}\t{result.task.command}\n")


# -- mutants ----------------------------------------------------------------------------------------------------------


def _mutants(chosen: argparse.Namespace) -> int:
    names = [chosen.mutant] if chosen.mutant else sorted(MUTANTS)
    print(f"{len(names)} mutants: {CALM} calm schedules each, then up to {WITHIN} random ones")
    with Workers(chosen.workers, LIMIT_S) as workers:
        try:
            verdicts = check_mutants(names, workers, lambda text: print(text, flush=True))
        except SimulationFailure as unsound:
            print(unsound)
            return FAILED
    useless = [verdict for verdict in verdicts if not verdict.good]
    print(f"{len(verdicts) - len(useless)} of {len(verdicts)} pass the calm schedules and are killed")
    if chosen.write:
        write_table(verdicts)
    return FAILED if useless else PASSED


if __name__ == "__main__":
    sys.exit(main())
