"""spark-submit on a real standalone master with two workers: executors and Python workers are killed by -9."""

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

import pytest
from standalone import Standalone

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
log = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_name("windowed_count.py")

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


def python_without_penstock(folder: Path, extra: str = "") -> Path:
    """A Python as an executor's machine may have it."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLIND + extra)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def spoken(driver: subprocess.Popen[str], word: str) -> list[str]:
    """The next line that begins with this word; fails with all that the driver said if none comes."""
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith(word):
            return line.split()
    _, errors = driver.communicate(timeout=30)
    pytest.fail(f"the driver never said {word}:\n{errors}")


def finish(driver: subprocess.Popen[str]) -> tuple[str, str]:
    assert driver.stdin is not None
    driver.stdin.write("go on\n")
    driver.stdin.flush()
    told, errors = driver.communicate(timeout=300)
    assert driver.returncode == 0, errors
    return told, errors


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
        told, errors = finish(driver)
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told + errors
    assert f"(pid {pids[0]} on 127.0.0.1) was lost" in told
    assert re.search(rf"\[query cluster, Generation {generation}\] .*was lost", errors), errors


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
        told, errors = finish(driver)
    finally:
        driver.kill()
    assert "EQUAL 440" in told, told + errors
    assert f"(pid {pids[1]} on 127.0.0.1) was lost" in told


def test_what_executors_lack_is_named_at_the_start(cluster: Standalone, tmp_path: Path) -> None:
    hidden = "\nimport importlib.util as u\nfind = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *more: None if name in ('xxhash', 'msgspec') else find(name, *more)\n"
    python = python_without_penstock(tmp_path / "python", hidden)
    conf = {"spark.pyspark.python": str(python), "spark.pyspark.driver.python": sys.executable}
    driver = cluster.submit(PROGRAM, tmp_path / "job", conf=conf)
    told, errors = driver.communicate(timeout=300)
    assert driver.returncode != 0
    assert "RUNNING" not in told
    assert re.search(r"ResourceError: .* on \S+ has no msgspec, xxhash: install what Penstock needs", errors), errors
