"""Loader of the user's ``demo/job.py``. It is loaded from its path, so that an edited file takes effect."""

from __future__ import annotations

import importlib.util
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from penstock.errors import ConfigError, ResourceError

REPOSITORY_JOB = Path(__file__).resolve().parents[4] / "demo" / "job.py"


@dataclass(frozen=True)
class Job:
    """Job that the demo runs, as defined by the file.

    Attributes:
        path: path of the file.
        build: ``delays(flights, control)``, which returns the DataFrame. ``control`` is a path; empty: full speed.
        schema: schema of the input, as a DDL string.
        delay: delay of the watermark, for example ``1 hour``.
        window_end: output column with the end of the window.
        source: source code of ``delays``.
    """

    path: Path
    build: Callable[[DataFrame, str], DataFrame]
    schema: str
    delay: str
    window_end: str
    source: str


def load_job(path: Path | None = None) -> Job:
    """Load a job file, by default the repository's.

    Raises:
        ResourceError: the file does not exist.
        ConfigError: the file does not define one of the names that the demo needs.
    """
    path = path or REPOSITORY_JOB
    if not path.is_file():
        raise ResourceError(f"{path} is missing: run the demo from a checkout, or name a job file with --job")
    spec = importlib.util.spec_from_file_location("penstock_demo_job", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in ("delays", "SCHEMA", "DELAY", "WINDOW_END") if not hasattr(module, name)]
    if missing:
        raise ConfigError(f"{path} must define {', '.join(missing)}")
    source = textwrap.dedent(inspect.getsource(module.delays))
    return Job(path, module.delays, module.SCHEMA, module.DELAY, module.WINDOW_END, source)
