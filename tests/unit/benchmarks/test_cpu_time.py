"""CPU time is that of all processes below this one, whenever they end."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from benchmarks.lib.cpu_time import CpuTime

BURN = "import time\nwhile time.process_time() < {}: pass\n"


def burning(seconds: float, then: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BURN.format(seconds) + then], stdin=subprocess.PIPE)


def test_of_a_process_that_ended_before_the_end() -> None:
    with CpuTime() as used:
        assert burning(1.2).wait(60) == 0
    assert 0.5 < used.seconds < 3, used.seconds


def test_what_an_older_process_used_before_does_not_count_though_it_ends_meanwhile() -> None:
    older = burning(1.3, "input()")
    while cpu_of(older.pid) < 1.0:
        time.sleep(0.02)
    with CpuTime() as used:
        older.communicate(b"\n", timeout=60)
    assert 0 <= used.seconds < 0.7, used.seconds


def cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def test_of_others_and_without_some() -> None:
    with CpuTime(of=()) as nobody, CpuTime() as all_of_us, burning(0.9, "input()") as one:
        with CpuTime(of=[one.pid]) as alone, CpuTime(without=[one.pid]) as others:
            while cpu_of(one.pid) < 0.8:
                time.sleep(0.02)
        one.communicate(b"\n", timeout=60)
    assert nobody.seconds == 0
    assert 0.5 < alone.seconds < 1.5
    assert all_of_us.seconds - others.seconds >= 0.5, "of both, this process has used as much"
