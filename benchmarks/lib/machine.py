"""Description of the machine of a benchmark, kept with its raw results and printed in its section."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import ROOT

PACKAGES = {"pyspark": "PySpark", "pyarrow": "pyarrow", "numpy": "numpy", "pandas": "pandas"}
"""Of those whose code is measured, too: as a result names them, and their own names."""
LABELS = {
    "cpu": "CPU",
    "memory_bytes": "memory",
    "kernel": "kernel",
    "penstock": "Penstock's commit",
    "python": "Python",
    "java": "Java",
    **PACKAGES,
}
"""As the page tells them. Older results have fewer, and nothing is made up for them."""


def recorded() -> dict[str, Any]:
    """The machine and all versions, now. What cannot be found out is left out."""
    found = {
        "cores": os.cpu_count(),
        "cpu": _first(r"model name\s*: (.+)", Path("/proc/cpuinfo")),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "java": _java(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in PACKAGES},
        "penstock": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    return {name: value for name, value in found.items() if value is not None}


def told(machine: dict[str, Any]) -> str:
    """Return the date, the machine and the versions as text."""
    known = {name: machine[name] for name in LABELS if name in machine}
    if "memory_bytes" in known:
        known["memory_bytes"] = f"{known['memory_bytes'] / 2**30:.0f} GiB"
    parts = [f"{machine['date']}, {machine['cores']} cores", *(f"{LABELS[name]} {known[name]}" for name in known)]
    missing = [label for name, label in LABELS.items() if name not in known]
    return ", ".join(parts) + (f"; not recorded: {', '.join(missing)}" if missing else "")


def _first(pattern: str, file: Path) -> str | None:
    if not file.exists():
        return None
    found = re.search(pattern, file.read_text())
    return found and found[1].strip()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")  # as Spark looks for it
    java = f"{home}/bin/java" if home else shutil.which("java")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr if java else ""
    found = re.search(r'version "([^"]+)"', said)
    return found and found[1]


def _commit() -> str | None:
    """The checkout's, with a mark if its code differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD") if shutil.which("git") and (ROOT / ".git").exists() else ""
    if not head:
        return None
    changed = _git("status", "--porcelain", "--", "src", "benchmarks", ":!benchmarks/results")
    return f"{head} with changes" if changed else head


def _git(*arguments: str) -> str:
    """Return the output of a git command, or an empty text if it fails: results matter more than the commit's name."""
    git = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return git.stdout.strip()
