"""The allocator's settings, told by what they are for: pages that need not be had anew."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys
import numpy as np
from penstock.malloc import keep_freed_memory

if sys.argv[1] == "keep":
    assert keep_freed_memory()
a = np.arange(200_000)
for step in range(50):
    if step == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    b = ((a ^ 3) & (a ^ 5)) + (a ^ 9) * (a - 1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC", "GLIBC"))}
    command = [sys.executable, "-c", STEPS, how]
    return int(subprocess.run(command, env=plain, capture_output=True, text=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_steps_over_arrays_need_no_new_pages() -> None:
    assert page_faults("keep") < 500
    assert page_faults("leave") > 5_000, "else the setting is not needed any more"
