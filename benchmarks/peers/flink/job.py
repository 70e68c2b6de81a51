"""The jobs below ``job/``, started and looked at over REST."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from benchmarks.peers.flink.checkpoints import (
    Checkpoint,
    Waiting,
    completed,
    external_path,
    requested,
    savepoint,
    waiting,
)
from benchmarks.peers.flink.cluster import REFRESH_MS, Cluster
from benchmarks.peers.flink.installation import FlinkError

RUN_LIMIT_S = 60.0
CANCEL_LIMIT_S = 30.0
HISTORY_LIMIT_S = 10.0
"""From a checkpoint's completion until the history, which is cached, has it."""
TERMINAL = {"CANCELED", "FAILED", "FINISHED"}


class Runnable(Protocol):
    """Class of a job and its arguments."""

    @property
    def main_class(self) -> str: ...

    @property
    def parallelism(self) -> int: ...

    def arguments(self) -> list[str]: ...


@dataclass(frozen=True)
class Settings:
    """One run of the job of ``job/Backpressure.java``.

    Attributes:
        row_ms: what the slow sink takes for a row; 0: no time.
        interval_ms: from one checkpoint's trigger to the next; 0: none can be taken, nor asked for.
        unaligned: or aligned.
        alignment_timeout_ms: how long an unaligned one stays aligned at first.
        during_recovery: FLIP-547: checkpoints are taken while in-flight rows are still restored. It needs unaligned
            ones (FLINK-40518).
        hot_percent: of a hundred rows so many have one and the same key.
        fail_file: the job throws when it is there, and removes it; None: never.
        row_log: directory for files that ``benchmarks/lib/row_log.py`` reads; None for no log.
    """

    row_ms: float
    interval_ms: int = 1000
    unaligned: bool = False
    alignment_timeout_ms: int = 0
    during_recovery: bool = False
    parallelism: int = 2
    stages: int = 3
    keys: int = 10_000
    hot_percent: int = 0
    payload_bytes: int = 100
    fail_file: Path | None = None
    row_log: Path | None = None

    main_class: ClassVar[str] = "penstock.peer.Backpressure"

    def arguments(self) -> list[str]:
        given = {
            "stages": self.stages,
            "keys": self.keys,
            "hotPercent": self.hot_percent,
            "payloadBytes": self.payload_bytes,
            "rowUs": round(self.row_ms * 1000),
            "intervalMs": self.interval_ms,
            "unaligned": str(self.unaligned).lower(),
            "alignmentTimeoutMs": self.alignment_timeout_ms,
            "duringRecovery": str(self.during_recovery).lower(),
        }
        if self.fail_file is not None:
            given["failFile"] = str(self.fail_file)
        if self.row_log is not None:
            given["rowLog"] = str(self.row_log)
        return [text for name, value in given.items() for text in (f"--{name}", str(value))]


@dataclass(frozen=True)
class StateSettings:
    """One run of the job of ``job/LargeState.java``.

    Attributes:
        input: the folder that files of lines appear in.
        values: that are kept of each key.
        backend: ``hashmap`` or ``rocksdb``.
    """

    input: Path
    values: int
    backend: str
    interval_ms: int = 3_600_000
    parallelism: int = 2

    main_class: ClassVar[str] = "penstock.peer.LargeState"

    def arguments(self) -> list[str]:
        given = ["--input", str(self.input), "--values", str(self.values)]
        return [*given, "--backend", self.backend, "--intervalMs", str(self.interval_ms)]


class Job:
    """A job that runs, or ran."""

    def __init__(self, cluster: Cluster, job_id: str, settings: Runnable) -> None:
        self._cluster = cluster
        self._rest = cluster.rest
        self.id = job_id
        self.settings = settings

    def state(self) -> str:
        return str(self._rest.get(f"/jobs/{self.id}")["state"])

    def checkpoints(self, since_ms: int = 0) -> list[Checkpoint]:
        """The completed ones that were triggered then or later, oldest first."""
        return completed(self._rest.get(f"/jobs/{self.id}/checkpoints"), since_ms)

    def waiting(self, checkpoint: Checkpoint) -> Waiting:
        path = f"/jobs/{self.id}/checkpoints/details/{checkpoint.number}"
        vertices = self._rest.get(path)["tasks"]
        return waiting(self._rest.get(f"{path}/subtasks/{vertex}")["summary"] for vertex in vertices)

    def checkpoint(self, limit_s: float) -> Checkpoint | None:
        """Take one now, as the job's settings say, and wait for it.

        Returns:
            None: it was not complete then, and is still pending.
        """
        until = time.monotonic() + limit_s
        request = self._rest.post(f"/jobs/{self.id}/checkpoints", {"checkpointType": "CONFIGURED"})["request-id"]
        while (answer := self._rest.get(f"/jobs/{self.id}/checkpoints/{request}"))["status"]["id"] != "COMPLETED":
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
        number, until = requested(answer), time.monotonic() + HISTORY_LIMIT_S
        while number not in (found := {checkpoint.number: checkpoint for checkpoint in self.checkpoints()}):
            if time.monotonic() > until:
                raise FlinkError(f"Flink's checkpoint {number} is complete and not in its history: {sorted(found)}")
            time.sleep(REFRESH_MS / 1000)
        return found[number]

    def path_of(self, checkpoint: Checkpoint) -> str:
        """Return the path of a checkpoint to restore another job from, also after this one was cancelled."""
        return external_path(self._rest.get(f"/jobs/{self.id}/checkpoints"), checkpoint.number)

    def stop(self, folder: Path, limit_s: float) -> str:
        """Stop with a savepoint below ``folder`` and return its path.

        The savepoint is aligned whatever checkpoints are. Returns when the job has ended and its slots are free.
        """
        body = {"targetDirectory": folder.as_uri(), "drain": False}
        path = self._saved(self._rest.post(f"/jobs/{self.id}/stop", body)["request-id"], limit_s)
        self._wait_until_over()
        return path

    def savepoint(self, folder: Path, form: str, limit_s: float) -> str:
        """Below ``folder``, ``NATIVE`` or ``CANONICAL``; the job goes on. Returns its path when it is complete."""
        body = {"target-directory": folder.as_uri(), "cancel-job": False, "formatType": form}
        return self._saved(self._rest.post(f"/jobs/{self.id}/savepoints", body)["request-id"], limit_s)

    def _saved(self, request: str, limit_s: float) -> str:
        until = time.monotonic() + limit_s
        while (answer := self._rest.get(f"/jobs/{self.id}/savepoints/{request}"))["status"]["id"] != "COMPLETED":
            if time.monotonic() > until:
                raise FlinkError(f"Flink's savepoint was not complete within {limit_s:.0f} s")
            time.sleep(0.02)
        return savepoint(answer)

    def rows_generated(self) -> int:
        """Return the rows generated by the current tasks; the count begins at 0 after a restart."""
        return self._sum(0, "numRecordsOut")

    def rows_processed(self) -> int:
        """Return the rows processed by the slow sink; after a restart the count continues from the checkpoint."""
        return self._sum(-1, "slow.rowsProcessed")

    def rows_committed(self) -> int:
        """Return the processed rows in completed checkpoints."""
        return self._sum(-1, "slow.rowsCommitted")

    def rows_taken(self) -> int:
        """Return the rows processed by the large state; the count begins at 0 after a restart."""
        return self._sum(-1, "aggregates.rowsTaken")

    def task_manager(self) -> str:
        """The one that runs the slow sink's first subtask."""
        vertex = self._vertices()[-1]["id"]
        first = self._rest.get(f"/jobs/{self.id}/vertices/{vertex}")["subtasks"][0]
        return str(first["taskmanager-id"])

    def wait_until_running(self) -> None:
        """Returns when every subtask runs, each vertex with the parallelism that was asked for."""
        until = time.monotonic() + RUN_LIMIT_S
        while True:
            facts = self._rest.get(f"/jobs/{self.id}")
            if facts["state"] in TERMINAL or time.monotonic() > until:
                raise FlinkError(f"Flink's job does not run, it is {facts['state']}: {self._cause()}")
            for vertex in facts["vertices"]:
                if vertex["parallelism"] != self.settings.parallelism:
                    raise FlinkError(
                        f"Flink runs {vertex['name']!r} with parallelism {vertex['parallelism']}, "
                        f"not {self.settings.parallelism}"
                    )
            if facts["state"] == "RUNNING" and all(vertex["status"] == "RUNNING" for vertex in facts["vertices"]):
                return
            time.sleep(0.05)

    def cancel(self) -> None:
        """Returns when it has ended and its slots are free again."""
        if self.state() not in TERMINAL:
            self._rest.patch(f"/jobs/{self.id}?mode=cancel")
        self._wait_until_over()

    def _wait_until_over(self) -> None:
        until = time.monotonic() + CANCEL_LIMIT_S
        while self.state() not in TERMINAL:
            if time.monotonic() > until:
                raise FlinkError(f"Flink's job has not ended within {CANCEL_LIMIT_S:.0f} s; it is {self.state()}")
            time.sleep(0.02)

    def _cause(self) -> str:
        return str(self._rest.get(f"/jobs/{self.id}/exceptions").get("root-exception"))[:2000]

    def _vertices(self) -> list[dict[str, Any]]:
        return list(self._rest.get(f"/jobs/{self.id}")["vertices"])

    def _sum(self, position: int, metric: str) -> int:
        """Takes some time: a request makes the JobManager ask for metrics, and answers with those that it had."""
        vertex = self._vertices()[position]["id"]
        path = f"/jobs/{self.id}/vertices/{vertex}/subtasks/metrics?get={metric}&agg=sum"
        self._rest.get(path)
        time.sleep(REFRESH_MS / 1000)
        found = self._rest.get(path)
        return round(float(found[0]["sum"])) if found else 0  # not reported yet


def start(cluster: Cluster, settings: Runnable, restored_from: str | None = None) -> Job:
    """The job, which may not run yet; from a checkpoint or savepoint if one is given."""
    request: dict[str, Any] = {
        "entryClass": settings.main_class,
        "programArgsList": settings.arguments(),
        "parallelism": settings.parallelism,
    }
    if restored_from is not None:
        request["savepointPath"] = restored_from
    answer = cluster.rest.post(f"/jars/{cluster.jar}/run", request)
    return Job(cluster, answer["jobid"], settings)


@contextmanager
def running(cluster: Cluster, settings: Runnable) -> Iterator[Job]:
    """The job, all of whose subtasks run; cancelled on leaving."""
    job = start(cluster, settings)
    try:
        job.wait_until_running()
        yield job
    finally:
        job.cancel()
