"""Makes the golden outputs: ``python -m tests.golden.make_fence``, once per format of what a query keeps there.

    tests/golden/fence/<n>/files/     an output directory of a file sink: epoch 1 visible, 2 kept back, 3 staged
    tests/golden/fence/<n>/table/     a table's directory: epoch 1 visible
    tests/golden/fence/<n>/*.json     the log tokens of the location that wrote it, and the messages of pending epochs

Format 1, which has no fence, is of the release before; in its table the commit of epoch 2 (rows 3 and 4) was killed.
**Existing folders never change**: an earlier release wrote them.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
from pathlib import Path

from penstock.connectors.files.sink import FileSizes
from penstock.connectors.files.sink_committer import FORMAT_VERSION, FileSinkCommitter
from penstock.model.commits import EpochCommit
from tests.support.connectors.file_sinks import batch, sink
from tests.support.places import GOLDEN
from tests.unit.connectors.test_fence import Driver, Location, table
from tests.unit.connectors.test_table_sink import Writer
from tests.unit.connectors.test_table_sink import batch as table_batch


def main() -> int:
    target = GOLDEN / "fence" / str(FORMAT_VERSION)
    if target.exists():
        print(f"{target} is there, and what is there is never made again", file=sys.stderr)
        return 1
    FileSinkCommitter._set_timer = lambda self, least_s: None  # type: ignore[method-assign]
    location = Location("/checkpoints/golden")
    driver = Driver(sink(target / "files", "csv"), location).fence()
    driver.committer.commit(driver.stage(1, batch(1, 2)))
    keeper = Driver(sink(target / "files", "csv", sizes=FileSizes(1 << 60)), location).fence()
    keeper.committer.commit(keeper.stage(2, batch(3)))
    note(target / "files.json", location, keeper.stage(3, batch(4, 5)))
    location = Location("/checkpoints/golden")
    staged = Path(tempfile.mkdtemp())
    writer = table(staged, "one", location, Writer(target / "table")).fence()
    writer.committer.commit(writer.stage(1, table_batch(1, 2)))
    note(target / "table.json", location, None)
    shutil.rmtree(staged)
    return 0


def note(path: Path, location: Location, pending: EpochCommit | None) -> None:
    messages = (
        {} if pending is None else {index: base64.b64encode(data).decode() for index, data in pending.messages.items()}
    )
    path.write_text(json.dumps({"log": location.log, "pending": messages}) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
