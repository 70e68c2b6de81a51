"""Jobs of ``job``, started and looked at over REST; the settings here are those of ``Backpressure.java``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from benchmarks.flink.checkpoints import Checkpoint, Waiting, completed, requested, waiting
from benchmarks.flink.cluster import REFRESH_MS, Cluster
from benchmarks.flink.installation import FlinkError

RUN_LIMIT_S = 60.0
CANCEL_LIMIT_S = 30.0
HISTORY_LIMIT_S = 10.0
"""From a checkpoint's completion until the history, which is cached, has it."""
TERMINAL = {"CANCELED", "FAILED", "FINISHED"}


class JobSettings(Protocol):
    """What one run of a job is started with."""

    main_class: ClassVar[str]

    @property
    def parallelism(self) -> int: ...

    def arguments(self) -> list[str]: ...


@dataclass(frozen=True)
class Settings:
    """One run of the job.

    Attributes:
        row_ms: what the slow sink takes for a row; 0: no time.
        interval_ms: from one checkpoint's trigger to the next; 0: none can be taken, nor asked for.
        unaligned: or aligned.
        alignment_timeout_ms: how long an unaligned one stays aligned at first.
        fail_file: the job throws when it is there, and removes it; None: never.
        diary: a folder, for what ``benchmarks/diary.py`` reads; None: it keeps none.
    """

    main_class: ClassVar[str] = "penstock.peer.Backpressure"

    row_ms: float
    interval_ms: int = 1000
    unaligned: bool = False
    alignment_timeout_ms: int = 0
    parallelism: int = 2
    stages: int = 3
    keys: int = 10_000
    payload_bytes: int = 100
    fail_file: Path | None = None
    diary: Path | None = None

    def arguments(self) -> list[str]:
        given = {
            "stages": self.stages,
            "keys": self.keys,
            "payloadBytes": self.payload_bytes,
            "rowUs": round(self.row_ms * 1000),
            "intervalMs": self.interval_ms,
            "unaligned": str(self.unaligned).lower(),
            "alignmentTimeoutMs": self.alignment_timeout_ms,
        }
        if self.fail_file is not None:
            given["failFile"] = str(self.fail_file)
        if self.diary is not None:
            given["diary"] = str(self.diary)
        return [text for name, value in given.items() for text in (f"--{name}", str(value))]


class Job:
    """A job that runs, or ran."""

    def __init__(self, cluster: Cluster, job_id: str, settings: JobSettings) -> None:
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

    def rows_generated(self) -> int:
        """By the tasks that run now: after a restart it begins anew."""
        return self._sum(0, "numRecordsOut")

    def rows_processed(self) -> int:
        """By the slow sink; after a restart, from those of the checkpoint on."""
        return self._sum(-1, "slow.rowsProcessed")

    def rows_committed(self) -> int:
        """Of these, those in completed checkpoints."""
        return self._sum(-1, "slow.rowsCommitted")

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
            time.sleep(0.1)

    def cancel(self) -> None:
        """Returns when it has ended and its slots are free again."""
        if self.state() not in TERMINAL:
            self._rest.patch(f"/jobs/{self.id}?mode=cancel")
        until = time.monotonic() + CANCEL_LIMIT_S
        while self.state() not in TERMINAL:
            if time.monotonic() > until:
                raise FlinkError(f"Flink's job was not cancelled within {CANCEL_LIMIT_S:.0f} s; it is {self.state()}")
            time.sleep(0.1)

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


@contextmanager
def running(cluster: Cluster, settings: JobSettings) -> Iterator[Job]:
    """The job, all of whose subtasks run; cancelled on leaving."""
    request = {
        "entryClass": settings.main_class,
        "programArgsList": settings.arguments(),
        "parallelism": settings.parallelism,
    }
    answer = cluster.rest.post(f"/jars/{cluster.jar}/run", request)
    job = Job(cluster, answer["jobid"], settings)
    try:
        job.wait_until_running()
        yield job
    finally:
        job.cancel()
