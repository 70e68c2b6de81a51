"""kill -9 of the driver: its slots end by themselves, and the program run again goes on from the location."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, assert_exact, tiny_graph

log = logging.getLogger(__name__)
ROWS = 40_000
DRIVER = [sys.executable, "-m", "tests.support.dataflow.driver_main"]


def killed_driver(location: Path, output: Path, slow: Path) -> list[int]:
    """Run a driver until it has committed, kill it, and return the pids of the slots it leaves."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as sockets,  # it will not remove its own
        subprocess.Popen(
            [*DRIVER, str(location), str(output), str(slow), str(ROWS)],
            env={**os.environ, "TMPDIR": sockets},
            stdout=subprocess.PIPE,
            text=True,
        ) as driver,
    ):
        assert driver.stdout is not None
        line = driver.stdout.readline()
        driver.send_signal(signal.SIGKILL)
    if not line:
        pytest.fail("the driver ended by itself")
    log.warning("killed the driver, pid %d, of slots %s", driver.pid, line.strip())
    return [int(pid) for pid in line.split()]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_program_run_again_goes_on(tmp_path: Path, launcher: ProcessLauncher) -> None:
    slow = tmp_path / "slow"
    slow.write_text("100")
    for _ in range(2):
        slots = killed_driver(tmp_path / "chk", tmp_path / "out", slow)
        deadline = time.monotonic() + 30
        while any(alive(pid) for pid in slots) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(alive(pid) for pid in slots), "slots outlived their driver"
    slow.unlink()
    graph = tiny_graph(tmp_path / "out", 2, Numbers(ROWS), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher)
    assert query.execution.view().generation == 3
    query.execution.process_all_available(60)
    query.execution.stop()
    assert_exact(tmp_path / "out", ROWS)
