"""The scenarios use what the runtime's tests use: its launcher, its tiny job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))

from process_launcher import ProcessLauncher
from running import EXECUTIONS


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    """At the end of the test every slot process has ended."""
    made = ProcessLauncher(slots=16)
    yield made
    while EXECUTIONS:
        EXECUTIONS.pop().stop()
    for job in made.jobs:
        if not job.wait(30):
            job.cancel()
            pytest.fail("a slot process was left behind")
