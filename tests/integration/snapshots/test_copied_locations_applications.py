"""Copies of a location in applications of their own: each row comes once, and the driver that has lost is told why.

Two processes, each with a Spark of its own, start copies of one location that share input and output. One of them is
paused in front of a step, and goes on when the other one has written. In full it is paused in front of every step.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.effort import FULL
from tests.support.queries import copied_application
from tests.support.queries.query_running import Inbox, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(copied_application.__file__)
COPIES = {"stopped": ["cp", "-a"], "linked": ["cp", "-al"], "running": ["cp", "-a"]}
SINKS = ("files", "table", "database")


class Application:
    """One process. Orders are answered one after the other."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._log = (folder / "stderr").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder / "warehouse")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(copied_application.TOLD):
                self._told.put(json.loads(line.removeprefix(copied_application.TOLD)))

    def order(self, do: str, **order: Any) -> None:
        assert self._process.stdin is not None
        self._number += 1
        self._process.stdin.write(json.dumps({"do": do, "number": self._number} | order) + "\n")
        self._process.stdin.flush()

    def answer(self, timeout_s: float = 90.0) -> dict[str, Any]:
        while True:
            told = self._told.get(timeout=timeout_s)
            if told["number"] == self._number:  # not of an order of a test that has failed
                return told

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        self.order(do, **order)
        return self.answer()

    @property
    def is_paused(self) -> bool:
        """The third field of its status, after a name that may have spaces."""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def pause_all(self) -> None:
        """The JVM and the slots, too."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def answered_or_paused(self) -> dict[str, Any] | None:
        """The answer; None if the process has stopped itself before."""
        eventually(lambda: self.is_paused or not self._told.empty(), "an answer or a pause", 90.0)
        return None if self.is_paused else self.answer()

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


@dataclass
class Scene:
    """A location, what it reads and writes, and its copy."""

    root: Path
    sink: str
    inbox: Inbox = field(init=False)
    keys: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root.mkdir()
        self.inbox = Inbox(self.root / "in")

    @property
    def origin(self) -> Path:
        return self.root / "origin"

    @property
    def copy(self) -> Path:
        return self.root / "copy"

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            key = len(self.keys) + 1
            self.inbox.add([(key, key, float(key))])
            self.keys.append(key)

    def start(self, application: Application, location: Path, stop_at: int | None = None, claim: bool = False) -> None:
        """Its answer tells whether the start was refused."""
        application.order(
            "start",
            location=str(location),
            claim=claim,
            stop_at=stop_at,
            sink=self.sink,
            inbox=str(self.inbox.directory),
            out=str(self.root / "out"),
        )

    def written(self) -> list[int]:
        out = self.root / "out"
        if self.sink != "database":
            return sorted(row[0] for row in rows_of(out))
        with closing(sqlite3.connect(out / "rows.sqlite")) as connection:
            return sorted(key for (key,) in connection.execute("SELECT key FROM rows"))


@pytest.fixture(scope="module")
def applications(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Application, Application]]:
    folder = tmp_path_factory.mktemp("applications")
    both = Application(folder / "one"), Application(folder / "two")
    try:
        for one in both:
            one.answer()
        yield both
    finally:
        for one in both:
            one.close()


@pytest.fixture
def scene_of(tmp_path: Path, applications: tuple[Application, Application]) -> Iterator[Callable[..., Scene]]:
    """``scene_of(sink, how)``: the query has written a row, and its location was copied; nothing runs."""
    one, two = applications

    def made(sink: str, how: str) -> Scene:
        scene = Scene(tmp_path / "scene", sink)
        scene.add()
        scene.start(one, scene.origin)
        assert not one.answer()["failed"]
        assert not one.ask("settle")["failed"]
        if how != "running":
            one.ask("stop")
        copied(scene, COPIES[how])
        one.ask("stop")
        return scene

    yield made
    for application in (one, two):
        application.resume()
        application.ask("stop")


def copied(scene: Scene, command: list[str]) -> None:
    """Again if a snapshot was deleted meanwhile."""
    while subprocess.run([*command, str(scene.origin), str(scene.copy)], check=False).returncode:
        shutil.rmtree(scene.copy)


def settled(application: Application) -> str:
    """Why the query there has failed, after it has had every chance to write; empty if it runs."""
    return str(application.ask("settle")["failed"])


@pytest.mark.parametrize(("sink", "how"), list(itertools.product(SINKS, COPIES)) if FULL else [("files", "linked")])
def test_one_after_the_other(
    applications: tuple[Application, Application], scene_of: Callable[..., Scene], sink: str, how: str
) -> None:
    one, two = applications
    scene = scene_of(sink, how)
    scene.add()
    scene.start(two, scene.copy)
    refusal = two.answer()["failed"]
    assert refusal.startswith("LocationError")
    assert "looks like a copy of" in refusal
    scene.start(two, scene.copy, claim=True)
    assert not two.answer()["failed"]
    assert not settled(two)
    two.ask("stop")
    scene.add()
    scene.start(one, scene.origin)
    assert_newer(one.answer()["failed"], scene.copy)
    scene.start(two, scene.copy)
    assert not two.answer()["failed"]
    assert not settled(two)
    assert scene.written() == scene.keys


def assert_newer(text: str, location: Path) -> None:
    assert "has newer output of query" in text, text
    assert f"written by the location at '{location}'" in text, text


@pytest.mark.parametrize(("sink", "how"), list(itertools.product(SINKS, COPIES)) if FULL else [("files", "running")])
def test_both_at_the_same_time(
    applications: tuple[Application, Application], scene_of: Callable[..., Scene], sink: str, how: str
) -> None:
    one, two = applications
    scene = scene_of(sink, how)
    scene.start(one, scene.origin)
    scene.start(two, scene.copy, claim=True)
    refused = {application: application.answer()["failed"] for application in (one, two)}
    for _ in range(3):
        scene.add()
        time.sleep(0.3)
    answers = {application: failed or settled(application) for application, failed in refused.items()}
    (winner,) = [application for application, failed in answers.items() if not failed]
    assert_newer(answers[two if winner is one else one], scene.origin if winner is one else scene.copy)
    scene.add(2)
    assert not settled(winner)
    assert scene.written() == scene.keys


SOME = [("files", 5), ("files", 14), ("files", 19), ("table", 20), ("database", 16)]
"""Steps of a driver that starts and commits a row."""
MOST = 40


@pytest.mark.parametrize(("sink", "step"), list(itertools.product(SINKS, range(1, MOST))) if FULL else SOME)
def test_a_driver_that_is_paused_in_front_of_a_step(
    applications: tuple[Application, Application], scene_of: Callable[..., Scene], sink: str, step: int
) -> None:
    one, two = applications
    scene = scene_of(sink, list(COPIES)[step % len(COPIES)])
    scene.add()
    scene.start(one, scene.origin, stop_at=step)
    begun = one.answered_or_paused()
    if begun is not None:
        assert not begun["failed"]
        one.order("settle")
        begun = one.answered_or_paused()
    if begun is not None:
        assert FULL, f"there are {begun['steps']} steps only"
        pytest.skip(f"there are {begun['steps']} steps")
    if step % 2:
        one.pause_all()
    scene.add()
    scene.start(two, scene.copy, claim=True)
    refused = two.answer()["failed"] or settled(two)
    if refused:
        assert_newer(refused, scene.origin)
    one.resume()
    lost = one.answer()["failed"] or settled(one)
    assert bool(lost) != bool(refused), (lost, refused)
    if lost:
        assert_newer(lost, scene.copy)
    scene.add()
    assert not settled(two if lost else one)
    assert scene.written() == scene.keys
