"""Paths at which ``make flink`` has installed Flink and the compiled job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks import ROOT

ENVIRONMENT = ROOT / ".venv-flink"
PACKAGE = "apache_flink"


class FlinkError(Exception):
    """Flink is missing, did not start, or refused something; the message says what, and where its logs are."""


@dataclass(frozen=True)
class Installation:
    """``home``: as FLINK_HOME, with ``bin`` and ``lib``. ``jar``: the job's."""

    home: Path
    jar: Path
    version: str


def installation(environment: Path = ENVIRONMENT) -> Installation:
    """Return the installation.

    Raises:
        FlinkError: it is missing or incomplete.
    """
    packages = sorted(environment.glob(f"lib/python3.*/site-packages/{PACKAGE}-*.dist-info"))
    jar = environment / "peer.jar"
    if not packages or not jar.is_file():
        raise FlinkError(f"Apache Flink is not installed in {environment}: run make flink")
    home = packages[-1].parent / "pyflink"
    return Installation(home, jar, packages[-1].name.removeprefix(f"{PACKAGE}-").removesuffix(".dist-info"))
