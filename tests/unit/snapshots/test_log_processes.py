"""The log among real processes on a real file system: contention, and kill -9 in the middle of appending."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from penstock.snapshots.log.entries import GenerationOpened, fold
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.snapshots.snapshot_kit import tokens

CONTENDER = """
import secrets, sys, time
from penstock.errors import Fenced
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.log.entries import GenerationOpened
from penstock.snapshots.store.store import LocalStore

log = SnapshotLog(LocalStore(sys.argv[1]), lambda: secrets.token_hex(16))
won = []
while len(won) < int(sys.argv[2]):
    view = log.refresh()
    try:
        log.append(GenerationOpened(view.next_generation, 0, view.next_checkpoint, view.next_checkpoint + 64, 0))
        won.append(view.next_generation)
    except Fenced:
        time.sleep(secrets.randbelow(1000) / 1e5)  # in step, the two would fence each other for long
print(*won)
"""


def contend(location: Path, wins: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CONTENDER, str(location), str(wins)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_contend_for_the_log_never_win_the_same_number(tmp_path: Path) -> None:
    processes = [contend(tmp_path, 30) for _ in range(2)]
    won = [[int(text) for text in process.communicate(timeout=60)[0].split()] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(set(won[0] + won[1])) == 60
    # The log may have more: an entry counts although its writer was fenced when it looked above the entry.
    assert max(won[0] + won[1]) <= SnapshotLog(LocalStore(tmp_path), tokens()).refresh().owner


def test_a_killed_writer_leaves_a_whole_log_that_others_append_to(tmp_path: Path) -> None:
    process = contend(tmp_path, 1_000_000)
    log = SnapshotLog(LocalStore(tmp_path), tokens("survivor"))
    deadline = time.monotonic() + 30
    while log.refresh().owner < 20:
        assert time.monotonic() < deadline, "the writer does not write"
    process.kill()
    process.communicate()
    view = log.refresh()
    entry = GenerationOpened(view.next_generation, 0, view.next_checkpoint, view.next_checkpoint + 64, 0)
    assert log.append(entry) == fold(view, entry)
    assert SnapshotLog(LocalStore(tmp_path), tokens()).refresh() == log.view
