"""How pytest-xdist hands out files: half of the workers take those first that need a Spark session, the others those
that need none.

A session costs its worker fifteen seconds of CPU until it is warm, so not every worker should have one. What a file
needs is guessed from its text: a wrong guess costs time only.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SIGNS = ("SparkSession", "mark.spark")


class SparkFirst(LoadFileScheduling):
    """``--dist loadfile`` but for the order."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        """The next file of the worker's kind, while there is one."""
        wants_spark = int(node.gateway.id.removeprefix("gw")) % 2 == 1
        fitting = (file for file in self.workqueue if _needs_spark(self.config.rootpath / file) == wants_spark)
        self.workqueue.move_to_end(next(fitting, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)


@cache
def _needs_spark(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return any(sign in text for sign in _SIGNS)
