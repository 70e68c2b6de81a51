"""One launcher per test, and nothing left behind after it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import EXECUTIONS


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    """Launcher of slot processes. After the test every one has ended and this process has no thread of ours left."""
    before = {thread.ident for thread in threading.enumerate()}
    made = ProcessLauncher()
    yield made
    while EXECUTIONS:
        EXECUTIONS.pop().stop()
    for job in made.jobs:
        if not job.wait(30):
            job.cancel()
            pytest.fail("a slot process was left behind")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [t.name for t in threading.enumerate() if t.ident not in before and t.name.startswith("penstock")]
        if not left:
            return
        time.sleep(0.02)
    pytest.fail(f"threads were left behind: {left}")
