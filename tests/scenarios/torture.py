"""Random scenarios for as long as it takes: ``python -m tests.scenarios.torture <hours> [--seed N]``.

Each seed draws a job, its options and what is done to it: slots are killed, stopped and continued, rescaled, restarted
with another alignment, made to fail inside calls; four busy processes per CPU compete with them. The output must be
exact each time. A seed repeats the choices, not the interleaving. The first failure ends it, with exit status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.config import Backend
from penstock.errors import CheckpointFailed
from penstock.model.elements import Alignment
from tests.scenarios.injected import IN_OPERATORS, IN_SINKS, arm
from tests.scenarios.shapes import HUGE, SHAPES, Shape
from tests.scenarios.story import Story
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import stop_executions

SLOTS = 16
PARALLELISMS = (1, 1, 2, 2, 3, 4, 4, 7)
OVERSUBSCRIBED = 4
STEPS = (3, 12)
BURN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"
INTERVALS_MS = (20, 100, 100, 1_000, 3_600_000)
"""Of checkpoints; the last is never: then every restore is from a rescale's or a user's snapshot."""


@contextmanager
def busy_cpus() -> Iterator[None]:
    """All CPUs have several times as much to do as they can."""
    burners = [
        subprocess.Popen([sys.executable, "-S", "-c", BURN]) for _ in range(OVERSUBSCRIBED * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


class Campaign:
    """One seed."""

    def __init__(self, seed: int, folder: Path, launcher: ProcessLauncher) -> None:
        self._chance = chance = random.Random(seed)
        shape = self._larger(chance.choice(SHAPES))
        interval_ms = chance.choice(INTERVALS_MS)
        self.story = Story(
            shape,
            folder,
            launcher,
            chance.choice(PARALLELISMS),
            chance.choice(list(Alignment)),
            crowded=chance.random() < 0.8,
            slower=chance.choice((1, 1, 4)),
            backend=chance.choice((Backend.MEMORY, Backend.MEMORY, Backend.ROCKSDB)),
            checkpoint_interval_ms=interval_ms,
            checkpoint_max_concurrent=chance.choice((1, 1, 4)),
            checkpoint_alignment_timeout_ms=chance.choice((5, 200)),
            memory_per_gate=shape.options.get("memory_per_gate", chance.choice((32, 64, 1024)) << 10),
        )
        self._commits = interval_ms < 10_000

    def run(self) -> list[str]:
        """Run a scenario and return the faults of its output."""
        for _ in range(self._chance.randint(*STEPS)):
            self._step()
            time.sleep(self._chance.choice((0.0, 0.0, 0.1, 0.5)))
        if not self._commits:
            self.story.restart(self._chance.choice(PARALLELISMS), Alignment.AUTO, checkpoint_interval_ms=100)
        return self.story.finish()

    def _larger(self, shape: Shape) -> Shape:
        if shape is HUGE:
            return shape
        times = self._chance.choice((1, 2, 4))
        return replace(shape, sources=tuple(replace(s, splits=min(900, s.splits * times)) for s in shape.sources))

    def _step(self) -> None:
        chance, story = self._chance, self.story
        what = chance.choice(("kill", "kill", "freeze", "rescale", "rescale", "both", "restart", "fail", "ask", "wait"))
        if what == "kill":
            story.kill(*(chance.randrange(8) for _ in range(chance.choice((1, 1, 2, 8)))))
        elif what == "freeze":
            story.freeze(chance.randrange(8), chance.choice((0.05, 0.5, 2.0)))
        elif what == "rescale":
            story.rescale(chance.choice(PARALLELISMS))
        elif what == "both":
            slot, later_s = chance.randrange(8), chance.uniform(0, 0.5)
            pid = story.until_all_run().slots[slot % story.parallelism].pid
            story.rescale_while(chance.choice(PARALLELISMS), lambda: story.kill_later(pid, later_s))
        elif what == "restart":
            story.restart(chance.choice(PARALLELISMS), chance.choice(list(Alignment)))
        elif what == "fail":
            place = chance.choice((*IN_OPERATORS, *IN_SINKS))
            story.tell(f"somebody is to fail in {place}")
            arm(story.markers, place)
        elif what == "ask":
            self._ask(chance.choice(list(Alignment)), chance.choice((0.05, 5.0)))
        elif self._commits:
            story.until_commits(chance.choice((1, 3)))

    def _ask(self, alignment: Alignment, timeout_s: float) -> None:
        self.story.tell(f"a snapshot is asked for, {alignment.value}, within {timeout_s} s")
        try:
            self.story.query.execution.request_snapshot("asked for", alignment, timeout_s, kept=False)
        except CheckpointFailed as error:
            self.story.tell(f"there was none: {error}")


def torture(seed: int) -> bool:
    """One campaign; tells the story if it fails. Nothing is left of it but the folder of a failure."""
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-torture-{seed}-"))
    launcher = ProcessLauncher(SLOTS)
    campaign: Campaign | None = None
    wrong: list[str] = []
    try:
        campaign = Campaign(seed, folder, launcher)
        wrong = campaign.run()
    except Exception:  # noqa: BLE001 - whatever it was, it is told
        wrong = [traceback.format_exc()]
    finally:
        stop_executions()
        for job in launcher.jobs:
            if not job.wait(10):
                wrong.append(f"slots were left behind: {[process.pid for process in job.processes]}")
                job.cancel()
    if not wrong:
        shutil.rmtree(folder)
        return True
    print(f"seed {seed} failed; its files are in {folder}", *(campaign.story.told if campaign else []), sep="\n")
    print(*wrong, f"again: make torture HOURS=0 SEED={seed}", sep="\n", flush=True)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hours", type=float, help="at least one seed is run")
    parser.add_argument("--seed", type=int, help="the first one; then the next ones")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
    until_s = time.monotonic() + arguments.hours * 3_600
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    done = 0
    with busy_cpus():
        while done == 0 or time.monotonic() < until_s:
            began_s = time.monotonic()
            if not torture(seed + done):
                return 1
            print(f"seed {seed + done}: exact, {time.monotonic() - began_s:.1f} s", flush=True)
            done += 1
    print(f"{done} scenarios from seed {seed} on, all exact")
    return 0


if __name__ == "__main__":
    sys.exit(main())
