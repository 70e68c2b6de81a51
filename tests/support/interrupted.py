"""Stress of classes that several threads use: threads lose the GIL in unlikely places, and a hang is detected."""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.support.effort import some

SWITCH_S = 1e-6
INTERRUPTED_EVERY = 15
"""Bytecodes, on average."""
FEWER = 5
"""Tracing each bytecode costs about this much."""
OFTEN, ANYWHERE = "switching often", "interrupted anywhere"

Times = Callable[[int], int]
"""How often to do what is worth doing ``n`` times."""


@contextmanager
def switching(how: str, files: set[str]) -> Iterator[Times]:
    """``OFTEN``: at a switch interval of a microsecond. ``ANYWHERE``: threads also give the GIL away between any two
    bytecodes of these files (CPython itself switches at calls and backward jumps only, and rarely in short passages).
    """

    def interrupt(frame: FrameType, event: str, argument: object) -> Callable[..., object] | None:
        if event == "call":
            frame.f_trace_opcodes = frame.f_code.co_filename in files
            return interrupt if frame.f_trace_opcodes else None
        if event == "opcode" and random.random() * INTERRUPTED_EVERY < 1:
            time.sleep(random.choice((0.0, 0.0, 1e-6, 1e-4)))  # at times long enough for a whole step elsewhere
        return interrupt

    interval, tracing = sys.getswitchinterval(), sys.gettrace()
    sys.setswitchinterval(SWITCH_S)
    try:
        if how == OFTEN:
            yield some
        else:
            threading.settrace(interrupt)
            sys.settrace(interrupt)
            yield lambda n: some(n // FEWER)
    finally:
        sys.settrace(tracing)
        threading.settrace(None)  # type: ignore[arg-type]
        sys.setswitchinterval(interval)


def together(*functions: Callable[[], None], timeout_s: float = 60.0) -> None:
    """Run each on a thread; fails with the first error, or with the whereabouts of a thread that hangs."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as problem:  # noqa: BLE001 - raised below
            errors.append(problem)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_s
    while not errors and time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    if errors:
        raise errors[0]
    for thread in threads:
        if thread.is_alive():
            frame = sys._current_frames()[thread.ident or 0]
            pytest.fail(f"{thread.name} hangs at\n{''.join(traceback.format_stack(frame))}")
