"""spark-submit on a real standalone master with two workers: executors, Python workers, their daemons and drivers are
killed by -9 or stopped for a while."""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cluster.application import Application
from tests.support.cluster.standalone import Standalone, family

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
log = logging.getLogger(__name__)

STOPPED_S = 5.0
"""Much less than a slot may be silent (two minutes)."""
TWO_SLOTS = {"spark.pyspark.python": sys.executable, "spark.penstock.parallelism": "2", "spark.executor.cores": "2"}

BLIND = """
import sys
from pathlib import Path
sys.path[:] = [place for place in sys.path if place.endswith(".zip") or not (Path(place) / "penstock").is_dir()]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
"""
"""A ``sitecustomize`` by which a Python has everything but an installed Penstock."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    started = time.monotonic()
    made = Standalone(tmp_path_factory.mktemp("cluster"))
    log.warning("master and workers after %.1f s", time.monotonic() - started)
    yield made
    made.stop()


def python_without_penstock(folder: Path) -> Path:
    """A Python as an executor's machine may have it."""
    (folder / "sitecustomize.py").write_text(BLIND)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


@pytest.fixture(scope="module")
def started() -> Iterator[dict[str, Application]]:
    """The applications that tests share, those that live."""
    some: dict[str, Application] = {}
    yield some
    for application in some.values():
        application.kill()


@pytest.fixture
def application(
    cluster: Standalone, started: dict[str, Application], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """Two slots on two executors with two cores each, where Penstock was never installed. One that a test has left in
    the middle of a job is not used again."""
    if "barrier" not in started:
        python = python_without_penstock(tmp_path_factory.mktemp("python"))
        conf = TWO_SLOTS | {
            "spark.pyspark.python": str(python),
            "spark.pyspark.driver.python": sys.executable,
            "spark.cores.max": "4",
            "spark.decommission.enabled": "true",
        }
        place = tmp_path_factory.mktemp("shared") / "place"
        started["barrier"] = Application(cluster, place, conf, executors=2)
    yield started["barrier"]
    if not started["barrier"].idle:
        started.pop("barrier").kill()


@pytest.fixture
def dynamic(
    cluster: Standalone, started: dict[str, Application], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Application]:
    """Three slots on executors that Spark adds when there are tasks for them. Their links are encrypted."""
    if "dynamic" not in started:
        conf = TWO_SLOTS | {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.maxExecutors": "2",
            "spark.penstock.parallelism": "3",
            "spark.penstock.network.tls": "true",
        }
        started["dynamic"] = Application(cluster, tmp_path_factory.mktemp("dynamic") / "place", conf)
    yield started["dynamic"]
    if not started["dynamic"].idle:
        started.pop("dynamic").kill()


# -- killed -----------------------------------------------------------------------------------------------------------


def kill_daemon_and_workers(cluster: Standalone, pid: int) -> None:
    """The executor starts another daemon for the next Generation's slot."""
    for process in family(cluster.daemon_of(pid)):
        process.kill()


def kill_executor(cluster: Standalone, pid: int) -> None:
    cluster.executor_of(pid).kill()


@pytest.mark.parametrize("kill", [kill_daemon_and_workers, kill_executor])
def test_a_query_goes_on_when_what_carries_a_slot_is_killed(
    kill: Callable[[Standalone, int], None], cluster: Standalone, application: Application, tmp_path: Path
) -> None:
    """Slots run on both executors, where Penstock was never installed."""
    application.begin(tmp_path)
    _, generation, *pids = application.spoken("RUNNING")
    assert len({cluster.executor_of(int(pid)).pid for pid in pids}) == 2
    kill(cluster, int(pids[0]))
    told = application.finish()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[0]} on 127.0.0.1) was lost" in told
    assert re.search(rf"\[query cluster, Generation {generation}\] .*was lost", told), told


def test_with_dynamic_allocation_an_ordinary_job_is_the_gang(dynamic: Application, tmp_path: Path) -> None:
    """Spark repeats the task of a killed worker; it does not join again, and the next Generation has all slots."""
    dynamic.begin(tmp_path)
    _, _, *pids = dynamic.spoken("RUNNING")
    os.kill(int(pids[1]), signal.SIGKILL)
    told = dynamic.finish()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[1]} on 127.0.0.1) was lost" in told


def test_a_query_moves_on_when_its_executor_is_decommissioned(
    cluster: Standalone, application: Application, tmp_path: Path
) -> None:
    """SIGPWR is how a platform tells an executor to leave."""
    application.begin(tmp_path)
    _, _, *pids = application.spoken("RUNNING")
    executor = cluster.executor_of(int(pids[0]))
    executor.send_signal(signal.SIGPWR)
    told = application.finish()
    assert "EQUAL 440" in told, told
    assert "the query moves on from a snapshot" in told
    assert "no snapshot was taken" not in told
    executor.wait(timeout=120)


# -- stopped ----------------------------------------------------------------------------------------------------------


def test_a_query_waits_for_a_slot_that_is_stopped_for_a_while(application: Application, tmp_path: Path) -> None:
    """Rows come meanwhile, and none is lost: the same Generation goes on with them."""
    application.begin(tmp_path, "goes-on")
    _, generation, *pids = application.spoken("RUNNING")
    stopped = psutil.Process(int(pids[0]))
    stopped.suspend()
    try:
        (tmp_path / "go").touch()
        time.sleep(STOPPED_S)
        assert stopped.status() == psutil.STATUS_STOPPED
        assert "STOPPED" not in application.told, "the query ended without one of its slots"
    finally:
        if stopped.is_running():
            stopped.resume()
    told = application.finish()
    assert "EQUAL 440" in told, told
    assert application.spoken("STOPPED") == ["STOPPED", generation]
    assert "RECOVERED" not in told


def test_a_stopped_slot_whose_generation_has_gone_wakes_up_and_harms_nothing(
    application: Application, tmp_path: Path
) -> None:
    """The next Generation runs in other workers when the zombie goes on."""
    application.begin(tmp_path)
    _, _, *pids = application.spoken("RUNNING")
    zombie = psutil.Process(int(pids[0]))
    zombie.suspend()
    os.kill(int(pids[1]), signal.SIGKILL)
    time.sleep(STOPPED_S)
    if zombie.is_running():  # Spark may have killed it: then there is no zombie
        zombie.resume()
    told = application.finish()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[1]} on 127.0.0.1) was lost" in told


# -- drivers ----------------------------------------------------------------------------------------------------------


def test_a_second_driver_takes_over_and_when_it_is_killed_another_one(
    application: Application, dynamic: Application, tmp_path: Path
) -> None:
    """Two run at one location at the same time, the second one with another parallelism; the application of the one
    that was fenced comes back in the end."""
    try:
        application.begin(tmp_path, "is-fenced")
        _, generation, *pids = application.spoken("RUNNING")
        dynamic.begin(tmp_path, "goes-on")
        _, next_generation, *next_pids = dynamic.spoken("RUNNING")
        assert "another driver" in " ".join(application.spoken("ENDED"))
        application.spoken("DONE")
    finally:
        dynamic.kill()
    application.begin(tmp_path, "goes-on")
    _, last_generation, *last_pids = application.spoken("RUNNING")
    told = application.finish()
    assert "EQUAL 440" in told, told
    assert int(generation) < int(next_generation) < int(last_generation)
    assert len({*pids, *next_pids}) == len({*next_pids, *last_pids}) == 5
