"""``penstock bench``: the benchmarks of a checkout, in a process of their own.

They are in the repository and not in the package, and import the package: so they are started and not imported.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from penstock.errors import ResourceError

CHECKOUT = Path(__file__).parents[3]
"""Root of the repository, if this package is imported from one."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(arguments: Sequence[str], checkout: Path = CHECKOUT) -> int:
    """``python -m benchmarks`` with these arguments, in the checkout and with its package; waits until it has ended.

    Ctrl-C, and a signal that ends this process, reach it once, so that it can stop Spark and remove what it wrote to
    temporary folders; a second one kills it with all that it has started in its group. The main thread's alone.

    Returns:
        Its exit code; 128 and the number of the signal that ended it, or this process first received: 130 for Ctrl-C.

    Raises:
        ResourceError: there is no checkout around this package.
    """
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise ResourceError(
            f"there are no benchmarks in {checkout}: they are in Penstock's repository and not in the installed "
            "package; clone it and run make bench there, or penstock bench of its .venv"
        )
    found = (str(checkout), str(checkout / "src"), os.environ.get("PYTHONPATH"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in found if path)}
    # A group of its own: a terminal sends Ctrl-C to this process alone, which hands it on once.
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for it; signals go to it meanwhile."""
    received: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        if process.poll() is None:
            if received:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.send_signal(number)
        received.append(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        return 128 + received[0]
    return code if code >= 0 else 128 - code
