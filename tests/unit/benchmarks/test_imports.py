"""Every module of the benchmarks can be imported: most of them run only by hand."""

from __future__ import annotations

import subprocess
import sys

from tests.support.places import ROOT

PROGRAM = """
import importlib, pkgutil, benchmarks
for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def test_every_benchmark_can_be_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
