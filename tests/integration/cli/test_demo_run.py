"""The whole demo on small input, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

PENSTOCK = Path(sys.executable).parent / "penstock"


@pytest.mark.spark
@pytest.mark.slow
def test_the_small_demo_passes(tmp_path: Path) -> None:
    command = [str(PENSTOCK), "demo", "--small", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    screen = " ".join(done.stdout.split())
    verdict = re.search(r"([\d,]+) = ([\d,]+) rows, identical; dropped late 0; kills 1", screen)
    assert verdict is not None, screen
    assert verdict[1] == verdict[2] == "1,903"
    assert re.search(r"Generation 1 -> 2 in [\d,]+ ms, [1-9][\d,]* in-flight rows restored", screen)
    [run] = tmp_path.iterdir()
    assert "identical" in (run / "report.html").read_text()
    assert (run / "job.py").read_text() == (ROOT / "demo" / "job.py").read_text()
    assert sorted(path.name for path in run.iterdir()) == [
        "job.py",
        "log4j2.properties",
        "output",
        "penstock.log",
        "report.html",
        "spark.log",
    ]
