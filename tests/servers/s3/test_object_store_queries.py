"""Whole queries over slot processes with their checkpoints on an S3 server, which fails now and then."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.config import Options
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.query_execution import QueryExecution
from penstock.coordinator.view import EpochProgress
from penstock.errors import LocationError, NotSupported, PenstockError
from penstock.model.elements import Alignment
from penstock.model.job_graph import JobGraph
from penstock.network.messages import Deploy
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.fork import Origin
from penstock.snapshots.store import object_store
from penstock.snapshots.store.object_store import S3Store
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.worker import slot
from penstock.worker.slot_task import SlotTask
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import EXECUTIONS, FAST, Running, finish, stop_executions
from tests.support.dataflow.thread_launcher import ThreadLauncher
from tests.support.dataflow.tiny import Numbers, assert_exact, tiny_graph
from tests.support.faulty_proxy import Fault, FaultyProxy, Seen
from tests.support.s3_server import SECRET, S3Server

pytestmark = pytest.mark.cluster

RUNS = int(os.environ.get("PENSTOCK_S3_RUNS", "1"))
"""Of the test with random faults: ``PENSTOCK_S3_RUNS=50`` is a campaign."""


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as running:
        yield running


def run_at(
    location: str,
    access: StoreAccess,
    graph: JobGraph,
    launcher: SlotLauncher,
    alignment: Alignment = Alignment.UNALIGNED,
    origin: Origin | None = None,
    **options: int,
) -> Running:
    """Start a query with all credentials as options: the slots' environment has none."""
    progress: list[EpochProgress] = []
    ends: list[PenstockError | None] = []
    execution = QueryExecution(
        graph,
        name="tiny",
        run_id=str(uuid.uuid4()),
        location=location,
        options=Options(checkpoint_alignment=alignment, **{**FAST, **options}),
        launcher=launcher,
        origin=origin,
        access=access,
        on_progress=progress.append,
        on_end=ends.append,
    )
    EXECUTIONS.append(execution)
    execution.start()
    return Running(execution, progress, ends)


def verified(s3: S3Server, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    found = verify_location(location)
    assert found.damage == []
    assert found.snapshots > 0


@pytest.mark.parametrize("alignment", [Alignment.ALIGNED, Alignment.UNALIGNED])
def test_killed_and_started_again_the_result_is_exact(
    tmp_path: Path, s3: S3Server, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch, alignment: Alignment
) -> None:
    location, access = s3.location(), s3.access()
    graph = tiny_graph(tmp_path / "out", 2, Numbers(40_000, rate=20_000))
    query = run_at(location, access, graph, launcher, alignment)
    for kill in range(2):
        query.until(lambda v, kill=kill: v.committed_epoch > 2 + 3 * kill, what="commits")  # type: ignore[misc]
        before = query.until_running(query.view.generation)
        os.kill(before.slots[kill].pid, signal.SIGKILL)
        query.until_running(before.generation + 1)
    query.execution.request_snapshot("by hand", timeout_s=30)
    query.execution.stop()
    again = run_at(location, access, tiny_graph(tmp_path / "out", 1, Numbers(40_000, rate=40_000)), launcher, alignment)
    assert again.execution.query_id == query.execution.query_id
    finish(again, tmp_path / "out", 40_000)
    verified(s3, location, monkeypatch)


@pytest.mark.parametrize("repeats", [True, False], ids=["repeating", "not repeating"])
@pytest.mark.parametrize("_run", range(RUNS))
def test_behind_faults_the_result_is_exact(
    tmp_path: Path,
    s3: S3Server,
    proxy: FaultyProxy,
    launcher: ProcessLauncher,
    monkeypatch: pytest.MonkeyPatch,
    repeats: bool,
    _run: int,
) -> None:
    """Every sixth request fails somehow, and a slot is killed. Nothing is lost or doubled.

    Where the driver repeats no request, every twelfth one fails: checkpoints fail, Generations and drivers end, and a
    start needs some 20 requests in a row, more with every entry of the log.
    """
    if not repeats:
        for name, value in (("RETRIES", 0), ("LISTING_ATTEMPTS", 1), ("CREATE_PAUSES_S", (0.0,))):
            monkeypatch.setattr(object_store, name, value)
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    chance, lock = random.Random(seed), threading.Lock()
    faults = [fault for fault in Fault if fault not in (Fault.UNCONDITIONAL, Fault.DENIED)]
    met: set[Fault] = set()

    def plan(seen: Seen) -> Fault | None:
        with lock:
            if chance.random() >= (1 / 6 if repeats else 1 / 12):
                return None
            possible = [fault for fault in faults if fault is not Fault.CONFLICT or seen.is_conditional]
            fault = chance.choice([fault for fault in possible if fault not in met] or possible)
            met.add(fault)
            return fault

    proxy.slow_s = 0.1
    location, total = s3.location(), 30_000
    graph = tiny_graph(tmp_path / "out", 2, Numbers(total, rate=10_000))
    proxy.plan = plan
    deadline, killed = time.monotonic() + 200, False
    while True:
        assert time.monotonic() < deadline, "no end"
        try:
            query = run_at(location, s3.access(proxy.endpoint), graph, launcher)
            if not killed:  # a driver that repeats nothing seldom gets through a recovery
                view = query.until_running(query.view.generation)
                time.sleep(chance.uniform(0, 0.5))
                os.kill(view.slots[chance.randrange(2)].pid, signal.SIGKILL)
                killed = True
            finish(query, tmp_path / "out", total)
            break
        except (PenstockError, ProcessLookupError, AssertionError) as error:  # the next driver goes on
            print("ended:", error)
            stop_executions()
    proxy.plan = lambda seen: None
    assert_exact(tmp_path / "out", total)
    assert len(met) >= 3, "hardly anything went wrong"
    verified(s3, location, monkeypatch)


def test_a_store_that_is_gone_for_a_while_costs_checkpoints_only(
    tmp_path: Path, s3: S3Server, proxy: FaultyProxy, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(30_000, rate=8_000))
    query = run_at(s3.location(), s3.access(proxy.endpoint), graph, launcher)
    query.until(lambda v: v.committed_epoch > 2, what="commits")
    proxy.plan = lambda seen: Fault.UNAVAILABLE
    time.sleep(1.0)
    proxy.plan = lambda seen: None
    committed = query.view.committed_epoch
    query.until(lambda v: v.committed_epoch > committed + 1, what="commits")
    finish(query, tmp_path / "out", 30_000)


def test_a_fork_begins_from_a_bucket(
    tmp_path: Path, s3: S3Server, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, access = s3.location(), s3.access()
    first = run_at(location, access, tiny_graph(tmp_path / "out", 1, Numbers(5_000)), launcher)
    first.execution.process_all_available(30)
    first.execution.request_snapshot("start here", timeout_s=30)
    first.execution.stop()
    graph = tiny_graph(tmp_path / "fork", 1, Numbers(10_000))
    fork = run_at(s3.location(), access, graph, launcher, origin=Origin(location, "start here", access=access))
    fork.execution.process_all_available(30)
    fork.execution.stop()
    assert sum(progress.rows for progress in fork.progress) == 5_000
    assert fork.execution.query_id != first.execution.query_id


def test_keys_travel_over_the_control_link_alone(
    tmp_path: Path, s3: S3Server, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[SlotTask] = []
    launch = launcher.launch

    def watched(task: SlotTask, parallelism: int) -> object:
        tasks.append(task)
        return launch(task, parallelism)

    monkeypatch.setattr(launcher, "launch", watched)
    from pyspark.serializers import CloudPickleSerializer

    query = run_at(s3.location(), s3.access(), tiny_graph(tmp_path / "out", 1, Numbers(1_000)), launcher)
    query.execution.process_all_available(30)
    query.execution.stop()
    (task,) = tasks
    assert SECRET.encode() not in CloudPickleSerializer().dumps(task)
    assert SECRET not in repr(task)
    assert SECRET not in repr(Deploy(0, [], [], 0, s3.access()))


def test_a_slot_that_cannot_open_the_store_says_why(
    tmp_path: Path, s3: S3Server, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(location: str, access: StoreAccess | None) -> Store:
        raise LocationError(f"{location}: pip install 'penstock[s3]'")

    monkeypatch.setattr(slot, "store_at", refuse)
    threads = ThreadLauncher()
    graph = tiny_graph(tmp_path / "out", 1, Numbers(10))
    query = run_at(s3.location(), s3.access(), graph, threads, restart_attempts=1)
    assert query.execution.await_termination(30)
    assert "pip install 'penstock[s3]'" in str(query.execution.error)


def test_wrong_keys_are_an_error_before_anything_runs(
    tmp_path: Path, s3: S3Server, proxy: FaultyProxy, launcher: ProcessLauncher
) -> None:
    location = s3.location()
    proxy.plan = lambda seen: Fault.DENIED if seen.method == "PUT" else None
    with pytest.raises(LocationError, match=rf"{location} cannot be used.*AccessDenied"):
        run_at(location, s3.access(proxy.endpoint), tiny_graph(tmp_path / "out", 1, Numbers(10)), launcher)
    assert launcher.jobs == []
    assert S3Store(location, s3.access()).top_names() == []


def test_what_keeps_files_at_the_location_wants_a_folder(
    tmp_path: Path, s3: S3Server, launcher: ProcessLauncher
) -> None:
    class Keeper(Numbers):
        keeps_files = True

    location = s3.location()
    graph = tiny_graph(tmp_path / "out", 1, Keeper(10))
    with pytest.raises(NotSupported, match=r"Numbers\[10\] keeps files.*s3://.*give a checkpointLocation on a file"):
        run_at(location, s3.access(), graph, launcher)
    assert S3Store(location, s3.access()).top_names() == [], "nothing was begun"
