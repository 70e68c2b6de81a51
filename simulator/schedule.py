"""One schedule as a task for any process: its settings, its outcome, and the command that repeats it."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from penstock.decoding import decode_json
from simulator.counters import Counters
from simulator.lifecycle_steps import watched
from simulator.mutants.catalog import MUTANTS
from simulator.settings import Settings
from simulator.simulation import Simulation

COMMAND = "python -m simulator"


@dataclass(frozen=True)
class Task:
    """One schedule to run.

    ``settings``: None for those of the seed. ``calm``: the seed's settings without faults and pressure. ``mutant``:
    name of the mutant to apply. ``trace``: keep the trace also of a schedule that passes.
    """

    seed: int
    settings: Settings | None = None
    calm: bool = False
    mutant: str | None = None
    trace: bool = False

    @property
    def chosen_settings(self) -> Settings:
        if self.settings is not None:
            return self.settings
        return Settings.calm(self.seed) if self.calm else Settings.random(self.seed)

    @property
    def command(self) -> str:
        """Command that repeats the schedule with its trace."""
        words = [*COMMAND.split(), "1", "--seed", str(self.seed)]
        if self.mutant is not None:
            words += ["--mutant", self.mutant]
        if self.settings is not None:
            words += ["--settings", settings_text(self.settings)]
        elif self.calm:
            words.append("--calm")
        return shlex.join([*words, "--trace"])


@dataclass(frozen=True)
class Failure:
    """Failure of a schedule.

    ``oracle``: the check that found it; equal kinds of failures have the same one. ``text``: message.
    """

    oracle: str
    text: str


@dataclass(frozen=True)
class Result:
    """Outcome of a schedule. ``story``: its last events, the newest last, if it was traced or has failed."""

    task: Task
    digest: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    story: tuple[str, ...] = ()
    details: str = ""


def run_task(task: Task) -> Result:
    """Run a schedule in this process. Never raises for what the schedule does."""
    seen = Counters()
    with broken(task.mutant), watched(seen):
        simulation = Simulation(task.seed, task.chosen_settings)
        try:
            outcome = simulation.run()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it is this schedule's failure
            failure = Failure(oracle_of(problem), f"{type(problem).__name__}: {problem}"[:1_000])
            details = "".join(traceback.format_exception(problem))
            return Result(task, simulation.context.digest, {}, failure, tuple(simulation.context.story), details)
    story = tuple(simulation.context.story) if task.trace else ()
    return Result(task, outcome.digest, outcome.counters.counts | seen.counts, story=story)


def oracle_of(problem: BaseException) -> str:
    """Return the oracle of a failure: that of the simulation, or the kind of error that the code itself raised."""
    oracle = getattr(problem, "oracle", None)
    if isinstance(oracle, str):
        return oracle
    return "a machine's invariant" if isinstance(problem, AssertionError) else type(problem).__name__


@contextmanager
def broken(mutant: str | None) -> Iterator[None]:
    """The code of this process is broken while the context is open; None: it is not."""
    if mutant is None:
        yield
    else:
        with MUTANTS[mutant].applied():
            yield


def settings_text(settings: Settings) -> str:
    """Settings for the command line: what differs from the defaults, as JSON."""
    plain = msgspec.to_builtins(settings)
    defaults = {f.name: f.default for f in msgspec.structs.fields(Settings) if f.default is not msgspec.NODEFAULT}
    kept = {k: v for k, v in plain.items() if k not in defaults or v != msgspec.to_builtins(defaults[k])}
    return msgspec.json.encode(kept).decode()


def settings_of(text: str) -> Settings:
    """The settings of a command line; raises msgspec.ValidationError or DecodeError (both ValueErrors)."""
    return decode_json(text, Settings)
