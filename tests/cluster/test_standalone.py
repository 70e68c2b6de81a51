"""spark-submit on a real standalone master with two workers: executors, Python workers, their daemons and drivers are
killed by -9 or stopped for a while."""

from __future__ import annotations

import logging
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from standalone import Standalone, family

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
log = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_name("windowed_count.py")

STOPPED_S = 10.0
TWO_SLOTS = {"spark.pyspark.python": sys.executable, "spark.penstock.parallelism": "2"}

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
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLIND)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def spoken(driver: subprocess.Popen[str], word: str) -> list[str]:
    """The next line that begins with this word; fails with all that the driver said if none comes."""
    assert driver.stdout is not None
    said = []
    for line in driver.stdout:
        if line.startswith(word):
            return line.split()
        said.append(line)
    pytest.fail(f"the driver never said {word}:\n{''.join(said)}")


def finish(driver: subprocess.Popen[str], job: Path) -> str:
    """What it says from here on; spark-submit hands no input to a Python program, so the word to go on is a file."""
    (job / "go").touch()
    told, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0, told
    return told


def test_an_executor_is_killed_and_penstock_was_never_installed(cluster: Standalone, tmp_path: Path) -> None:
    """Slots run on both executors; one of these is killed by -9."""
    python = python_without_penstock(tmp_path / "python")
    conf = {"spark.pyspark.python": str(python), "spark.pyspark.driver.python": sys.executable}
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=conf | {"spark.penstock.parallelism": "2"})
    try:
        _, generation, *pids = spoken(driver, "RUNNING")
        executors = [cluster.executor_of(int(pid)) for pid in pids]
        assert len({executor.pid for executor in executors}) == 2
        os.kill(executors[0].pid, signal.SIGKILL)
        told = finish(driver, tmp_path / "job")
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[0]} on 127.0.0.1) was lost" in told
    assert re.search(rf"\[query cluster, Generation {generation}\] .*was lost", told), told


def test_with_dynamic_allocation_an_ordinary_job_is_the_gang(cluster: Standalone, tmp_path: Path) -> None:
    """Spark repeats the task of a killed worker; it does not join again, and the next Generation has all slots."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.executor.cores": "2",
        "spark.pyspark.python": sys.executable,
        "spark.penstock.parallelism": "3",
    }
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=conf)
    try:
        _, _, *pids = spoken(driver, "RUNNING")
        os.kill(int(pids[1]), signal.SIGKILL)
        told = finish(driver, tmp_path / "job")
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[1]} on 127.0.0.1) was lost" in told


def test_a_query_moves_on_when_its_executor_is_decommissioned(cluster: Standalone, tmp_path: Path) -> None:
    """SIGPWR is how a platform tells an executor to leave."""
    conf = {
        "spark.decommission.enabled": "true",
        "spark.pyspark.python": sys.executable,
        "spark.penstock.parallelism": "2",
    }
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=conf)
    try:
        _, _, *pids = spoken(driver, "RUNNING")
        os.kill(cluster.executor_of(int(pids[0])).pid, signal.SIGPWR)
        told = finish(driver, tmp_path / "job")
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told
    assert "the query moves on from a snapshot" in told
    assert "no snapshot was taken" not in told


def test_a_python_worker_and_the_daemon_it_came_from_are_killed(cluster: Standalone, tmp_path: Path) -> None:
    """The executor starts another daemon for the next Generation's slot."""
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=TWO_SLOTS)
    try:
        _, _, *pids = spoken(driver, "RUNNING")
        daemon = cluster.daemon_of(int(pids[0]))
        daemon.kill()
        os.kill(int(pids[0]), signal.SIGKILL)
        told = finish(driver, tmp_path / "job")
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[0]} on 127.0.0.1) was lost" in told


def test_a_stopped_slot_whose_generation_has_gone_wakes_up_and_harms_nothing(
    cluster: Standalone, tmp_path: Path
) -> None:
    """The next Generation runs in other workers when the zombie goes on."""
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=TWO_SLOTS)
    try:
        _, _, *pids = spoken(driver, "RUNNING")
        zombie = psutil.Process(int(pids[0]))
        zombie.suspend()
        os.kill(int(pids[1]), signal.SIGKILL)
        time.sleep(STOPPED_S)
        if zombie.is_running():  # Spark may have killed it: then there is no zombie
            zombie.resume()
        told = finish(driver, tmp_path / "job")
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told
    assert f"(pid {pids[1]} on 127.0.0.1) was lost" in told


def end_hard(driver: subprocess.Popen[str]) -> None:
    """SIGKILL to the JVM and the Python program in it."""
    if driver.poll() is None:
        for process in family(psutil.Process(driver.pid)):
            process.kill()
    driver.communicate(timeout=60)


def test_a_second_driver_takes_over_and_when_it_is_killed_a_third_one(cluster: Standalone, tmp_path: Path) -> None:
    """Two run at one location at the same time: each application gets half of the cores."""
    conf = TWO_SLOTS | {"spark.cores.max": "2"}
    drivers = [cluster.submit(PROGRAM, tmp_path / "job", "is-fenced", conf=conf)]
    try:
        _, generation, *pids = spoken(drivers[0], "RUNNING")
        drivers.append(cluster.submit(PROGRAM, tmp_path / "job", "goes-on", conf=conf))
        _, next_generation, *next_pids = spoken(drivers[1], "RUNNING")
        assert "another driver" in " ".join(spoken(drivers[0], "ENDED"))
        end_hard(drivers[1])
        drivers.append(cluster.submit(PROGRAM, tmp_path / "job", "goes-on", conf=conf))
        _, last_generation, *last_pids = spoken(drivers[2], "RUNNING")
        told = finish(drivers[2], tmp_path / "job")
    finally:
        for driver in drivers:
            end_hard(driver)
    assert "EQUAL 440" in told, told
    assert int(generation) < int(next_generation) < int(last_generation)
    assert len({*pids, *next_pids, *last_pids}) == 6
