"""Order in which pytest-xdist distributes files: slow ones first, and those with a Spark session to every other worker.

A session costs its worker fifteen seconds of CPU until it is warm, so not every worker should have one. The need for a
session is guessed from a file's text; a wrong guess costs time only. The costs of files were measured (``costs.json``,
which ``make costs`` writes anew): a slow one that begins late would run alone at the end.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.support.places import ROOT

_SIGNS = ("SparkSession", "mark.spark")

COSTS = Path(__file__).with_name("costs.json")
"""Seconds by file; the cheap ones and new ones are not in it."""
CHEAP_S = 10.0


class SparkFirst(LoadFileScheduling):
    """``--dist loadfile`` but for the order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The dearest file of the worker's kind, while there is one."""
        wants_spark = int(node.gateway.id.removeprefix("gw")) % 2 == 0
        root = self.config.rootpath
        first = max(self.workqueue, key=lambda file: (_needs_spark(root / file) == wants_spark, _costs().get(file, 0)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


class Costs:
    """A plugin that writes down what each file has cost."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] = self._seconds.get(file, 0) + report.duration

    def pytest_sessionfinish(self) -> None:
        # Files that did not run keep their cost.
        seconds = {file: kept for file, kept in _costs().items() if (ROOT / file).exists()} | self._seconds
        dear = {file: round(cost) for file, cost in sorted(seconds.items()) if cost >= CHEAP_S}
        COSTS.write_text(json.dumps(dear, indent=0) + "\n", encoding="utf-8")


@cache
def _costs() -> dict[str, float]:
    return dict(json.loads(COSTS.read_text(encoding="utf-8")))


@cache
def _needs_spark(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return any(sign in text for sign in _SIGNS)
