"""Control of the REST benchmark: the same service in a process of its own, with a made-up query at a real location.

Requests to it load the machine as requests to a driver do, but not the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import psutil

import penstock
from penstock.queries.active_queries import ACTIVE_QUERIES
from tests.support.rest.made_up_query import MadeUpQuery


class ControlService:
    """Handle of the process, a context manager.

    Attributes:
        url, query_id, newest: of the service, its one query and the newest checkpoint of that.
    """

    def __init__(self, location: str, vertices: int, parallelism: int) -> None:
        command = [sys.executable, "-m", __name__, location, str(vertices), str(parallelism)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url, self.query_id, self.newest = json.loads(self._process.stdout.readline())

    def __enter__(self) -> ControlService:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate(timeout=30)

    def cpu_s(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)


def main(location: str, vertices: str, parallelism: str) -> None:
    """Serve until stdin ends, with as many checkpoints as a driver remembers."""
    query = MadeUpQuery(vertices=int(vertices), parallelism=int(parallelism), checkpoints=200)
    facts = replace(query.facts(), location=location)
    with mock.patch.object(ACTIVE_QUERIES, "known", return_value=[facts]), penstock.serve(token="") as server:
        print(json.dumps([server.url, query.query_id, query.checkpoints]), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
