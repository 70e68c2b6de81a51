"""Whole jobs with real threads at a switch interval of a microsecond: what the simulator, which runs one thread, cannot
see. Checkpoints and snapshots overlap, are given up half-way, slots die, queries are stopped in full motion; at the end
the output is exact.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest

from penstock.coordinator import generations, shutdown
from penstock.errors import CheckpointFailed, QueryFailed
from penstock.model.elements import Alignment
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.worker import slot
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, run
from tests.support.dataflow.thread_launcher import ThreadLauncher, break_some_link
from tests.support.dataflow.tiny import ROWS, CountSpec, Files, Numbers, assert_exact
from tests.support.queries.query_running import eventually

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

SWITCH_S = 1e-6
ROWS_IN_ALL = 40_000
SLOW_US_PER_ROW = 200
"""While the storm lasts: 5,000 rows a second and subtask, less than the sources give."""
REQUESTERS = 3
WISHES: list[tuple[Alignment, float | None]] = [
    (Alignment.UNALIGNED, None),
    (Alignment.UNALIGNED, 1.0),
    (Alignment.UNALIGNED, 0.01),  # given up half-way
    (Alignment.UNALIGNED, 0.03),
    (Alignment.AUTO, 0.5),
    (Alignment.ALIGNED, 0.02),
]
SMALL = {
    "checkpoint_interval_ms": 15,
    "checkpoint_max_concurrent": 4,
    "checkpoint_timeout_ms": 5_000,
    "checkpoint_alignment_timeout_ms": 5,
    "memory_per_gate": 48 << 10,
    "exclusive_window": 2 << 10,
    "flush_interval_ms": 1,
    "restart_attempts": 100,
}


@pytest.fixture(autouse=True)
def _switch_often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(slot, "SWITCH_INTERVAL_S", SWITCH_S)  # of slots that are threads here
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def chance() -> random.Random:
    seed = random.SystemRandom().randrange(2**32)
    log.warning("seed %d: it repeats the choices, not the interleaving", seed)
    return random.Random(seed)


def three_vertices(folder: Path, slow: Path, parallelism: int) -> JobGraph:
    """numbers -> rebalance -> nothing -> hash -> running count -> files."""
    return JobGraph(
        vertices=(
            Vertex(0, "Numbers", SourceSpec("numbers", "Numbers", Numbers(ROWS_IN_ALL, per_split=500)), (), None),
            Vertex(1, "Relay", None, (), None),
            Vertex(2, "Count", None, (CountSpec(str(slow)),), SinkSpec("files", "Files", Files(str(folder)))),
        ),
        edges=(Edge(0, 0, 1, EdgeKind.REBALANCE, ROWS), Edge(1, 1, 2, EdgeKind.HASH, ROWS, (0,))),
        parallelism=parallelism,
        max_parallelism=128,
    )


@contextmanager
def snapshots_all_the_time(query: Running, chance: random.Random) -> Iterator[list[str]]:
    """Threads that ask for one snapshot after the other; yields what became of each. A query may end meanwhile."""
    over = threading.Event()
    outcomes: list[str] = []

    def ask(wishes: random.Random) -> None:
        while not over.is_set():
            alignment, timeout_s = wishes.choice(WISHES)
            try:
                query.execution.request_snapshot("storm", alignment, timeout_s)
                outcomes.append(f"{alignment.value} complete")
            except CheckpointFailed:
                outcomes.append(f"{alignment.value} failed")
            except QueryFailed:
                return

    with ThreadPoolExecutor(REQUESTERS) as pool:
        asking: list[Future[None]] = [pool.submit(ask, random.Random(chance.random())) for _ in range(REQUESTERS)]
        try:
            yield outcomes
        finally:
            over.set()
        for future in asking:
            future.result(timeout=20)


def any_complete(outcomes: list[str]) -> bool:
    return any(outcome.endswith("complete") for outcome in outcomes)


def wait_for_unaligned(outcomes: list[str]) -> None:
    """Wait at least one second, until five unaligned snapshots are complete."""
    time.sleep(1.0)
    eventually(lambda: outcomes.count("unaligned complete") >= 5, "five complete unaligned snapshots", 60)


def assert_stormy(query: Running, outcomes: list[str]) -> None:
    counted = Counter(outcomes)
    log.warning("snapshots: %s", dict(sorted(counted.items())))
    assert most_in_flight(query) >= 3
    assert max(r.restored_inflight_rows for r in query.view.restarts) > 0, "no in-flight row was ever restored"
    assert sum(n for outcome, n in counted.items() if outcome.endswith("failed")) >= 3, "nothing was ever given up"


def most_in_flight(query: Running) -> int:
    """Checkpoints under way at once, of those the view remembers; each a millisecond short, for the rounding."""
    changes: list[tuple[float, int]] = []
    for known in query.view.checkpoints:
        if known.duration_ms > 1:
            changes += [(known.triggered_ms + 1, 1), (known.triggered_ms + known.duration_ms, -1)]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def finish(query: Running, folder: Path, slow: Path) -> None:
    slow.unlink()
    query.execution.process_all_available(60)
    query.execution.stop()
    assert query.execution.error is None
    assert_exact(folder, ROWS_IN_ALL)


@pytest.mark.parametrize("alignment", [Alignment.UNALIGNED, Alignment.AUTO])
def test_slot_processes_killed_in_a_storm_of_checkpoints(
    tmp_path: Path, launcher: ProcessLauncher, chance: random.Random, alignment: Alignment
) -> None:
    launcher.switch_interval_s = SWITCH_S
    folder, slow = tmp_path / "out", tmp_path / "slow"
    slow.write_text(str(SLOW_US_PER_ROW))
    query = run(three_vertices(folder, slow, 2), tmp_path / "chk", launcher, alignment, **SMALL)
    with snapshots_all_the_time(query, chance) as outcomes:
        for _ in range(3):
            query.until_running(query.view.generation)
            time.sleep(chance.uniform(0.1, 1.2))
            before = query.view
            os.kill(before.slots[chance.randrange(2)].pid, signal.SIGKILL)
            query.until_running(before.generation + 1)
        wait_for_unaligned(outcomes)
    assert_stormy(query, outcomes)
    finish(query, folder, slow)


def test_slots_in_one_process_lose_links_in_a_storm_of_checkpoints(
    tmp_path: Path,
    launcher: ProcessLauncher,  # looks that nothing is left behind
    chance: random.Random,
) -> None:
    folder, slow = tmp_path / "out", tmp_path / "slow"
    slow.write_text(str(SLOW_US_PER_ROW))
    query = run(three_vertices(folder, slow, 3), tmp_path / "chk", ThreadLauncher(), Alignment.UNALIGNED, **SMALL)
    with snapshots_all_the_time(query, chance) as outcomes:
        for _ in range(3):
            generation = query.until_running(query.view.generation).generation
            time.sleep(chance.uniform(0.1, 1.2))
            break_some_link(chance)
            query.until_running(generation + 1)
        wait_for_unaligned(outcomes)
    assert_stormy(query, outcomes)
    finish(query, folder, slow)


def test_queries_are_stopped_in_full_motion(
    tmp_path: Path, launcher: ProcessLauncher, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (generations, shutdown):
        monkeypatch.setattr(module, "STOP_TIMEOUT_S", 200.0)
    folder, slow = tmp_path / "out", tmp_path / "slow"
    slow.write_text(str(SLOW_US_PER_ROW))
    graph = three_vertices(folder, slow, 2)
    threads = ThreadLauncher()
    for stop in range(5):
        query = run(graph, tmp_path / "chk", threads, Alignment.UNALIGNED, **SMALL)
        query.until_running(query.view.generation)
        with snapshots_all_the_time(query, chance) as outcomes:
            time.sleep(chance.uniform(0.0, 0.8))
            if stop == 0:
                eventually(partial(any_complete, outcomes), "a complete snapshot", 60)
            began = time.monotonic()
            query.execution.stop()
            assert time.monotonic() - began < 60, "it took the time-outs of an end to stop"
        assert query.execution.error is None
        assert threads.jobs[-1].done
    finish(run(graph, tmp_path / "chk", threads, Alignment.UNALIGNED, **SMALL), folder, slow)
