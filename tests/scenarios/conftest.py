"""The scenarios use what the runtime's tests use: its launcher, its tiny job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import stop_executions


@pytest.fixture
def launcher() -> Iterator[ProcessLauncher]:
    """Launcher of slot processes. After the test every one has ended."""
    made = ProcessLauncher(slots=16)
    yield made
    stop_executions()
    made.check_ended()
