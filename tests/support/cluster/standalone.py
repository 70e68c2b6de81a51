"""A real standalone Spark cluster on loopback: a master and workers as processes of their own, on free ports."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil
import pyspark

from tests.support.quick_java import quick_java

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 240.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def eventually(
    condition: Callable[[], bool], what: str, timeout_s: float, story: Callable[[], str] = lambda: ""
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s for {what}\n{story()}"
        time.sleep(0.1)


class Standalone:
    """``workers`` workers with ``cores`` cores each. Logs lie in ``folder``."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 4) -> None:
        self.folder = folder
        self._temporary = folder / "tmp"  # what a process that is killed cannot remove goes with the test's folder
        self._temporary.mkdir()
        self._java_options = f"{quick_java()} -Djava.io.tmpdir={self._temporary}"
        self._logs: list[IO[bytes]] = []
        self._processes: list[psutil.Popen] = []
        port, self._web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        try:
            self._come_up(port, workers, cores)
        except BaseException:
            self.stop()
            raise

    def _come_up(self, port: int, workers: int, cores: int) -> None:
        self._start("master", "master.Master", "--port", port, "--webui-port", self._web)
        eventually(lambda: self._alive_workers() == 0, "the master", START_TIMEOUT_S)
        for number in range(workers):
            place = self.folder / f"work-{number}"
            size = ("--cores", cores, "--memory", "2g", "--webui-port", free_port(), "-d", place)
            self._start(f"worker-{number}", "worker.Worker", *size, self.url)
        eventually(lambda: self._alive_workers() == workers, "the workers", START_TIMEOUT_S)

    def submit(self, program: Path, *arguments: object, conf: dict[str, str], output: Path) -> subprocess.Popen[bytes]:
        """``spark-submit`` of a program; all that it says goes to a file."""
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": self._java_options,
            "spark.executor.extraJavaOptions": self._java_options,
        }
        given = [text for name, value in (settings | conf).items() for text in ("--conf", f"{name}={value}")]
        with output.open("ab") as file:
            return subprocess.Popen(
                [
                    str(SPARK_HOME / "bin" / "spark-submit"),
                    *("--master", self.url, "--driver-memory", "512m", *given, str(program), *map(str, arguments)),
                ],
                env=self._environment()
                | {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TMPDIR": str(self._temporary)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def executor_of(self, python_worker: int) -> psutil.Process:
        """The executor JVM above a Python worker, by its pid."""
        above = psutil.Process(python_worker).parents()
        return next(process for process in above if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()))

    def daemon_of(self, python_worker: int) -> psutil.Process:
        """The process that a Python worker was forked from."""
        above = psutil.Process(python_worker).parent()
        assert above is not None
        assert "daemon" in " ".join(above.cmdline()), above.cmdline()
        return above

    def executor_logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("work-*/*/*/stderr")))

    def stop(self) -> None:
        """All of it is gone then, executors too."""
        doomed = [child for process in self._processes for child in family(process)]
        for process in reversed(doomed):
            if process.is_running():
                process.kill()
        psutil.wait_procs(doomed, timeout=10)
        for log in self._logs:
            log.close()

    def _start(self, name: str, main: str, *arguments: object) -> None:
        log = (self.folder / f"{name}.log").open("wb")
        self._logs.append(log)
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1"]
        started = psutil.Popen([*command, *map(str, arguments)], env=self._environment(), stdout=log, stderr=log)
        self._processes.append(started)

    def _environment(self) -> dict[str, str]:
        """Without what tests set for their own session."""
        own = ("PYSPARK_", "SPARK_", "PYTHON")
        return {name: value for name, value in os.environ.items() if not name.startswith(own)} | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": self._java_options,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONUNBUFFERED": "1",
        }

    def _alive_workers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, json.JSONDecodeError):  # the page is there a moment before its figures are
            return -1


def family(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
