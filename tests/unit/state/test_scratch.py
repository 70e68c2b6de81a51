"""Private folders of state: gone when closed, swept when their process was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from penstock.state.scratch import PREFIX, ScratchFolder

HOLDS = """
import sys, time
from penstock.state.scratch import ScratchFolder
folder = ScratchFolder(sys.argv[1])
(folder.path / "content").write_text("x")
print("ready", flush=True)
time.sleep(60)
"""


def test_it_goes_when_it_is_closed(tmp_path: Path) -> None:
    folder = ScratchFolder(str(tmp_path))
    (folder.path / "file").write_text("x")
    folder.close()
    folder.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    (tmp_path / f"{PREFIX}in-the-making").mkdir()
    ScratchFolder(str(tmp_path)).close()
    assert len(list(tmp_path.iterdir())) == 2, "the living one's, and one without a lock so far"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    ScratchFolder(str(tmp_path)).close()
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}in-the-making"]
