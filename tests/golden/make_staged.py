"""Makes the golden location with staged rows: ``python -m tests.golden.make_staged``, once per format version of these.

    tests/golden/staged/<version>/    of a foreachBatch query with a pending epoch, with the columns
                                      (a int, b int, c int): a is 0, 1 and 2, b = a + 100, c = a + 200

**Existing folders never change**; see ``make.py``. An earlier release writes the folder of its own format.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.machines.checkpoint_events import CommitEpoch, CommitFailed
from tests.support.places import GOLDEN


def main() -> int:
    folder = Path(tempfile.mkdtemp())
    spark = penstock.session()
    spark.range(3).selectExpr("int(id) a", "int(id + 100) b", "int(id + 200) c").coalesce(1).write.parquet(
        f"{folder}/in"
    )
    CommandExecutor._commit = _refuse  # type: ignore[method-assign]
    rows = spark.readStream.schema("a int, b int, c int").parquet(f"{folder}/in")
    writer = penstock.writeStream(rows).foreachBatch(lambda df, batch: None).option("parallelism", "1")
    query = writer.option("checkpointLocation", f"{folder}/location").start()
    while not (waiting := _waiting(folder / "location")):
        query.snapshot()
        time.sleep(0.2)
    query.stop()
    target = GOLDEN / "staged" / str(waiting["format_version"])
    if target.exists():
        print(f"{target} is there, and what is there is never made again", file=sys.stderr)
        return 1
    shutil.rmtree(folder / "location" / "history", ignore_errors=True)
    shutil.copytree(folder / "location", target)
    shutil.rmtree(folder)
    return 0


def _refuse(effects: CommandExecutor, command: CommitEpoch) -> Any:
    return CommitFailed(command.epoch, command.operator_id, "the golden epoch stays pending")


def _waiting(location: Path) -> dict[str, Any]:
    for path in sorted(location.glob("snapshots/chk-*/metadata.json"), reverse=True):
        metadata: dict[str, Any] = json.loads(path.read_bytes())
        if any(subtask["pending_messages"] for slot in metadata["slots"] for subtask in slot["subtasks"]):
            return metadata
    return {}


if __name__ == "__main__":
    raise SystemExit(main())
