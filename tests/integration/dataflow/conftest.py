"""One launcher per test, and nothing left behind after any test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import stop_executions


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After the test its executions have ended, and this process has none of their threads."""
    before = {thread.ident for thread in threading.enumerate()}
    yield
    stop_executions()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [t.name for t in threading.enumerate() if t.ident not in before and t.name.startswith("penstock")]
        if not left:
            return
        time.sleep(0.02)
    pytest.fail(f"threads were left behind: {left}")


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    """Launcher of slot processes. After the test every one has ended."""
    made = ProcessLauncher()
    yield made
    stop_executions()
    made.check_ended()
