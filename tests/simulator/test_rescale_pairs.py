"""Whole jobs that begin at one parallelism and go on at another, with rows in flight; every oracle watches as always.

Random schedules draw small parallelisms that anything may follow. Here each pair is run on purpose, large ones too,
and what the schedules report says that it was.
"""

from __future__ import annotations

import pytest

from simulator.jobs.topology import Inlet, Node
from simulator.schedule import Result, Task
from simulator.settings import Fault, Settings
from simulator.workers import Workers
from tests.support.effort import some

pytestmark = pytest.mark.simulation

PAIRS = ((1, 2), (2, 1), (3, 7), (7, 3), (12, 7), (20, 21))
SEEDS = range(2)
"""Random schedules, of which ``make simulate`` runs thousands, rescale as well."""
NODES = (
    Node("source", splits=24, rows_per_split=20),
    Node("source", splits=2, rows_per_split=60),
    Node("relay", (Inlet(0, "forward"), Inlet(1, "forward"))),
    Node("sort", (Inlet(2, "hash"),)),
    Node("join", (Inlet(1, "broadcast"), Inlet(3, "hash"))),
    Node("relay", (Inlet(4, "rebalance"),)),
)
"""Every kind of edge, a union, state by key and by time, and splits that end while others are being read."""


def pair(before: int, after: int) -> Settings:
    """The sinks stand still, so that rows pile up; behind the first snapshot that has some of them in flight a slot
    dies, and once more behind one that carries some of those on."""
    return Settings(
        nodes=NODES,
        max_parallelism=32,
        keys=50,
        first_parallelism=before,
        parallelisms=(after,),
        cold_parallelism=after,
        exclusive_window=128,
        memory_per_gate=128 * max(before, after) * 2,
        flush_interval_ms=50,
        pace_ms=0.05,
        alignment="unaligned",
        eagerness=0.4,
        checks=32,
        faults=(Fault("blocked sinks", 40), Fault("crash in recovery", 60)),
    )


def run(workers: Workers, before: int, after: int, seeds: range, mutant: str | None = None) -> list[Result]:
    settings = pair(before, after)
    return list(workers.run(Task(seed, settings, mutant=mutant) for seed in seeds))


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_a_job_goes_on_at_another_parallelism_with_rows_in_flight(before: int, after: int, workers: Workers) -> None:
    results = run(workers, before, after, SEEDS)
    failed = [f"{result.failure.text}\n  replay: {result.task.command}" for result in results if result.failure]
    assert not failed, "\n".join(failed)
    up, down = (1, 0) if before < after else (0, 1)
    for counters in (result.counters for result in results):
        assert (counters.get("rescaled up", 0), counters.get("rescaled down", 0)) == (up, down)
        assert counters["rescaled with in-flight rows"] == 1
        assert counters["restored in-flight rows"] > 0
    narrowed = [result.counters.get("carried entries that were narrowed", 0) for result in results]
    assert any(narrowed), "nobody carried on what had been in flight before"


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_it_is_noticed_if_heirs_of_rows_in_flight_all_process_them(before: int, after: int, workers: Workers) -> None:
    """So there are some that have to be narrowed, whatever the pair."""
    seeds = SEEDS[: some(len(SEEDS), 1)]
    assert all(result.failure for result in run(workers, before, after, seeds, mutant="rows-not-narrowed"))
