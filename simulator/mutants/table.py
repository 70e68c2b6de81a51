"""Table of the mutants that the simulator kills, for the documentation, and the seeds for quick tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.decoding import decode_json
from penstock.testing.failure import SimulationFailure
from simulator.mutants.catalog import AREAS, MUTANTS
from simulator.schedule import Task
from simulator.workers import Workers

CALM = 15
"""A mutant has to pass so many schedules without faults and pressure."""
WITHIN = 1_000
"""A mutant has to be killed by one of so many random schedules."""

ROOT = Path(__file__).parents[2]
SEEDS = Path("tests/simulator/killing_seeds.json")
PAGE = Path("docs/simulator.md")
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"


@dataclass(frozen=True)
class Verdict:
    """``calm_failure``: how it failed a calm schedule; empty if it passed all. ``seed``: the first that kills it."""

    name: str
    calm_failure: str
    seed: int | None
    oracle: str

    @property
    def good(self) -> bool:
        return not self.calm_failure and self.seed is not None

    @property
    def text(self) -> str:
        calm = f"fails calm schedules ({self.calm_failure})" if self.calm_failure else "passes calm schedules"
        end = "survives" if self.seed is None else f"killed by schedule {self.seed + 1}: {self.oracle}"
        return f"{self.name}: {calm}, {end}"


class Kill(msgspec.Struct, frozen=True):
    """Seed and oracle that kill a mutant, for the quick tests."""

    seed: int
    oracle: str


def check_mutants(names: Sequence[str], workers: Workers, tell: Callable[[str], None]) -> list[Verdict]:
    """Run every mutant; ``tell`` is called with the text of each verdict.

    Raises:
        SimulationFailure: a schedule fails without any mutant, so the result would mean nothing.
    """
    _require_sound(workers, (Task(seed, calm=True) for seed in range(CALM)))
    verdicts: list[Verdict] = []
    for name in names:
        verdict = check_mutant(name, workers)
        verdicts.append(verdict)
        tell(verdict.text)
    _require_sound(workers, (Task(seed) for seed in sorted({v.seed for v in verdicts if v.seed is not None})))
    return verdicts


def _require_sound(workers: Workers, tasks: Iterator[Task]) -> None:
    failed = first_failure(workers, tasks)
    if failed is not None:
        raise SimulationFailure(f"seed {failed[0]} fails without any mutant, by {failed[1]}", "mutants")


def check_mutant(name: str, workers: Workers) -> Verdict:
    """Run the calm schedules of a mutant, then random ones up to the first that fails."""
    calm = first_failure(workers, (Task(seed, calm=True, mutant=name) for seed in range(CALM)))
    killed = first_failure(workers, (Task(seed, mutant=name) for seed in range(WITHIN)))
    seed, oracle = (None, "") if killed is None else killed
    return Verdict(name, "" if calm is None else f"seed {calm[0]}: {calm[1]}", seed, oracle)


def first_failure(workers: Workers, tasks: Iterator[Task]) -> tuple[int, str] | None:
    """Return the lowest failing seed and its oracle; tasks come with rising seeds."""
    failures: dict[int, str] = {}

    def until_failed() -> Iterator[Task]:
        for task in tasks:
            if failures:
                return
            yield task

    for result in workers.run(until_failed()):  # schedules begun before the failure was known are run to their end
        if result.failure is not None:
            failures[result.task.seed] = result.failure.oracle
    return min(failures.items(), default=None)


def read_kills(root: Path = ROOT) -> dict[str, Kill]:
    """Return the recorded seeds, by mutant."""
    path = root / SEEDS
    return decode_json(path.read_bytes(), dict[str, Kill]) if path.exists() else {}


def write_table(verdicts: Sequence[Verdict], root: Path = ROOT) -> None:
    """Record the seeds and the table of the documentation; mutants that were not run keep what is recorded.

    Raises:
        FileNotFoundError: this is not a working copy of the project.
    """
    kills = read_kills(root)
    for verdict in verdicts:
        kills.pop(verdict.name, None)
        if verdict.good:
            assert verdict.seed is not None
            kills[verdict.name] = Kill(verdict.seed, verdict.oracle)
    known = {name: kills[name] for name in MUTANTS if name in kills}
    (root / SEEDS).write_bytes(msgspec.json.format(msgspec.json.encode(known)) + b"\n")
    page = (root / PAGE).read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    (root / PAGE).write_text(f"{before}{BEGIN}\n{table(known)}{END}{after}", encoding="utf-8")


def table(kills: dict[str, Kill]) -> str:
    """Markdown, by area."""
    lines = [
        f"{len(kills)} of {len(MUTANTS)} mutants pass all of {CALM} calm schedules and are killed by one of the first"
        f" {WITHIN} random ones.",
        "",
        "| area | mutant | what is wrong | killed by schedule | oracle |",
        "|---|---|---|---:|---|",
    ]
    for area, mutants in AREAS.items():
        for name, mutant in mutants.items():
            kill = kills.get(name)
            end = f"{kill.seed + 1} | {kill.oracle}" if kill else "| not killed"
            lines.append(f"| {area} | `{name}` | {mutant.text} | {end} |")
    return "\n".join(lines) + "\n"
