"""A stand-alone session cluster on loopback: a JobManager, and TaskManagers of one slot each.

Started with the scripts and defaults that Flink ships; ports are free ones, logs and checkpoints are in a temporary
folder that goes with the cluster. The scripts end in ``exec java``: a process's id is its JVM's.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from benchmarks.peers.flink.installation import FlinkError, Installation, installation
from benchmarks.peers.flink.rest import Rest

HOST = "127.0.0.1"
START_LIMIT_S = 90.0
STOP_LIMIT_S = 20.0
WHOLE_LIMIT_S = 150.0
"""A lost heartbeat takes 50 s to show."""
LOG_TAIL_LINES = 15
HISTORY = 2000
"""Checkpoints that the JobManager remembers; its default of 10 is fewer than a minute's."""
REFRESH_MS = 200
"""How old an answer about a job, and a metric, may be; by default 3 and 10 s."""
RESTART_DELAY_MS = 100


class Cluster:
    """A context manager: on leaving, every process has ended and the folder is gone.

    Attributes:
        rest: its REST API.
        version: of Flink.
    """

    def __init__(self, task_managers: int, **own: str) -> None:
        """``own``: settings of Flink's, by key."""
        self._own = own
        self._found: Installation = installation()
        self.version = self._found.version
        self._count = task_managers
        self._started = 0
        self._resources = ExitStack()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        with ExitStack() as resources:
            self._folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="penstock-flink-")))
            resources.callback(self._stop)
            rpc_port, rest_port = free_ports(2)
            self._settings = settings(self._folder, rpc_port, rest_port) | self._own
            self.rest = Rest(rest_port)
            self._start("jobmanager", {})
            for _ in range(self._count):
                self.start_task_manager()
            self._wait_for_slots()
            self.jar = self.rest.upload(self._found.jar)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def pids(self) -> list[int]:
        """Return the ids of all processes of the cluster, which have no children."""
        return [process.pid for process in self._processes.values()]

    def start_task_manager(self) -> str:
        """Returns its resource id at once; its slot is there some seconds later."""
        name = f"taskmanager-{self._started}"
        self._started += 1
        self._start(name, {"taskmanager.resource-id": name})
        return name

    def has_task_manager(self, name: str) -> bool:
        """It was started, and not killed; its slot may not be there yet."""
        return name in self._processes

    def kill_task_manager(self, name: str) -> None:
        """``kill -9``; returns when it is gone."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_LIMIT_S)

    def wait_until_whole(self) -> None:
        """Returns when those TaskManagers have registered that run, and killed ones are forgotten: by default some ten
        seconds after they are gone, and longer where nobody calls them."""
        until = time.monotonic() + WHOLE_LIMIT_S
        alive = {name for name in self._processes if name.startswith("taskmanager")}
        while (known := {one["id"] for one in self.rest.get("/taskmanagers")["taskmanagers"]}) != alive:
            if time.monotonic() > until:
                raise FlinkError(f"Flink knows {sorted(known)} after {WHOLE_LIMIT_S:.0f} s; there are {sorted(alive)}")
            time.sleep(0.5)

    def _start(self, name: str, own: dict[str, str]) -> None:
        script = self._found.home / "bin" / f"{name.split('-')[0]}.sh"
        command = [str(script), "start-foreground"]
        for key, value in {**self._settings, **own}.items():
            command += ["-D", f"{key}={value}"]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]  # nor do they outlive a benchmark that is killed
        folder = str(self._folder)
        # They are killed, and would leave in the system's folder what they unpack.
        java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={folder}".strip()
        environment = {**os.environ, "FLINK_LOG_DIR": folder, "FLINK_PID_DIR": folder, "JAVA_TOOL_OPTIONS": java}
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_for_slots(self) -> None:
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise FlinkError(f"Flink's {name} ended with status {process.returncode}: {self._tail(name)}")
            if self._slots() >= self._count:
                return
            time.sleep(0.2)
        raise FlinkError(
            f"{self._slots()} of {self._count} slots of Flink were there after {START_LIMIT_S:.0f} s: "
            f"{self._tail('jobmanager')}"
        )

    def _slots(self) -> int:
        try:
            return int(self.rest.get("/overview")["slots-total"])
        except FlinkError:
            return 0  # not up yet

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.out"

    def _tail(self, name: str) -> str:
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    def _stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what a start script may still be running
        for process in self._processes.values():
            process.wait(STOP_LIMIT_S)
        self._processes.clear()


def settings(folder: Path, rpc_port: int, rest_port: int) -> dict[str, str]:
    """Return the settings that differ from the configuration that Flink ships."""
    return {
        "jobmanager.rpc.address": HOST,
        "jobmanager.bind-host": HOST,
        "jobmanager.rpc.port": str(rpc_port),
        "taskmanager.host": HOST,
        "taskmanager.bind-host": HOST,
        "rest.address": HOST,
        "rest.bind-address": HOST,
        "rest.port": str(rest_port),
        "io.tmp.dirs": str(folder),
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        # What a cancelled job is begun again from; it goes with the folder.
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": f"{RESTART_DELAY_MS} ms",
        "web.checkpoints.history": str(HISTORY),
        "metrics.fetcher.update-interval": str(REFRESH_MS),
        "web.refresh-interval": str(REFRESH_MS),
    }


def free_ports(count: int) -> list[int]:
    """That many ports of loopback that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]
