"""``python -m penstock.testing.simulate --schedules N [--seed S]``: many seeded runs of the deterministic simulator.

Prints progress, and for a seed that fails its last events, the error and one command that replays it. Exits with 1 if
any seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.testing.figures import Figures
from penstock.testing.mutants import MUTANTS, mutated
from penstock.testing.simulation import Simulation

PROGRESS_EVERY = 50
STORY_LINES = 40


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m penstock.testing.simulate", description="Run seeded schedules.")
    parser.add_argument("--schedules", type=int, default=1, help="how many seeds, one after the other")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the code on purpose: seeds must fail")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    chosen = parser.parse_args(arguments)
    with _broken(chosen.mutant):
        failed = _run(chosen.seed, chosen.schedules, chosen.keep_going, chosen.mutant)
    return 1 if failed else 0


def _run(first: int, schedules: int, keep_going: bool, mutant: str | None) -> list[int]:
    total, failed, began = Figures(), [], time.monotonic()
    for number, seed in enumerate(range(first, first + schedules), 1):
        simulation = Simulation(seed)
        try:
            outcome = simulation.run()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this seed's failure
            failed.append(seed)
            _report(simulation, problem, mutant)
            if not keep_going:
                break
        else:
            total.add(outcome.figures)
            if schedules == 1:
                print(f"seed {seed} passed; digest {outcome.digest}")
        if number % PROGRESS_EVERY == 0:
            print(f"{number:,} schedules, {len(failed)} failed, {time.monotonic() - began:.1f} s", flush=True)
    print("\n".join(total.lines()))
    print(f"{len(failed)} failed: {failed}" if failed else "no seed failed")
    return failed


def _report(simulation: Simulation, problem: Exception, mutant: str | None) -> None:
    print(f"\nseed {simulation.seed} failed; the last events:")
    print("\n".join(f"  {line}" for line in simulation.chance.story[-STORY_LINES:]))
    print("".join(traceback.format_exception(problem)))
    option = f" --mutant {mutant}" if mutant else ""
    print(f"digest {simulation.chance.digest}")
    print(f"replay: {sys.executable} -m penstock.testing.simulate --schedules 1 --seed {simulation.seed}{option}\n")


@contextmanager
def _broken(mutant: str | None) -> Iterator[None]:
    if mutant is None:
        yield
    else:
        with mutated(mutant):
            yield


if __name__ == "__main__":
    sys.exit(main())
