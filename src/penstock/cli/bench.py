"""``penstock bench``: runs the benchmarks of a checkout in a separate process.

The benchmarks are in the repository, not in the package, and they import the package. So this module starts them and
does not import them.
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
"""Root of the repository, if this package is imported from a checkout."""
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(arguments: Sequence[str], checkout: Path = CHECKOUT) -> int:
    """Run ``python -m benchmarks`` in the checkout, with the checkout's package, and wait until it has ended.

    The first Ctrl-C, SIGTERM or SIGHUP is forwarded, so that the process can stop Spark and remove its temporary
    folders. The second one kills the process group. It must be called on the main thread.

    Returns:
        The exit code of the process; or 128 plus the number of the first signal that was forwarded or that ended the
        process, for example 130 for Ctrl-C.

    Raises:
        ResourceError: the package is not in a checkout.
    """
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise ResourceError(
            f"there are no benchmarks in {checkout}: they are in Penstock's repository and not in the installed "
            "package; clone it and run make bench there, or penstock bench of its .venv"
        )
    found = (str(checkout), str(checkout / "src"), os.environ.get("PYTHONPATH"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in found if path)}
    # In a separate process group, the terminal sends Ctrl-C only to this process, which forwards it once.
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process, forward signals meanwhile, and return the exit code."""
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
