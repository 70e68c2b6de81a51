"""A Spark application on the cluster that does one job after the other: what is dear is its start."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from tests.support.cluster.standalone import Standalone, eventually, family

PROGRAM = Path(__file__).with_name("windowed_count.py")
PATIENCE_S = 200.0


class Application:
    """``windowed_count.py`` by ``spark-submit``. What it says goes to a file, so that it never waits for a reader.

    Args:
        folder: for its own files.
        executors: a job begins when so many are there.
    """

    def __init__(self, cluster: Standalone, folder: Path, conf: dict[str, str], executors: int = 0) -> None:
        folder.mkdir()
        self._folder = folder
        self._output = folder / "output"
        self._job = folder
        self._told_from = 0
        self._process = cluster.submit(PROGRAM, folder, executors, conf=conf, output=self._output)

    def begin(self, job: Path, mode: str = "recovers") -> None:
        """The next job: its folder, and how it goes on (see ``windowed_count.py``)."""
        self._job = job
        self._told_from = self._output.stat().st_size
        hidden = self._folder / ".next"
        hidden.write_text(f"{job}\n{mode}")
        os.replace(hidden, self._folder / "next")

    @property
    def told(self) -> str:
        """All that it has said since the present job began."""
        with self._output.open("rb") as file:
            file.seek(self._told_from)
            return file.read().decode(errors="replace")

    @property
    def idle(self) -> bool:
        """It lives and has done its job."""
        return self._process.poll() is None and bool(self._lines("DONE"))

    def spoken(self, word: str) -> list[str]:
        """The words of the first line of this job that begins with this one; fails with all that was said if none
        comes."""
        eventually(
            lambda: bool(self._lines(word)) or self._process.poll() is not None, word, PATIENCE_S, lambda: self.told
        )
        found = self._lines(word)
        if not found:
            pytest.fail(f"it ended without {word}:\n{self.told}")
        return found[0].split()

    def finish(self) -> str:
        """Let the job go on to its end; what was said since it began. spark-submit hands no input to a Python program,
        so the word to go on is a file."""
        (self._job / "go").touch()
        self.spoken("DONE")
        return self.told

    def kill(self) -> None:
        """SIGKILL to the JVM and the Python program in it."""
        if self._process.poll() is None:
            for process in family(psutil.Process(self._process.pid)):
                process.kill()
        self._process.wait(timeout=60)

    def _lines(self, word: str) -> list[str]:
        """Whole ones."""
        return [line for line in self.told.splitlines(keepends=True) if line.startswith(word) and line.endswith("\n")]
