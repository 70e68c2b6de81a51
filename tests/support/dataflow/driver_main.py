"""A driver in a process of its own, to be killed: ``driver_main.py <location> <output> <rows>``. Prints slot pids."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, tiny_graph


def main() -> None:
    location, output, slow, rows = sys.argv[1:]
    graph = tiny_graph(Path(output), 2, Numbers(int(rows)), CountSpec(slow_file=slow))
    query = run(graph, Path(location), ProcessLauncher(), memory_per_gate=1 << 20)
    before = query.view.committed_epoch
    query.until(lambda v: v.committed_epoch > before + 1, what="commits")
    print(*(slot.pid for slot in query.view.slots), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
