"""Makes tests/golden/meanings, once: ``python -m tests.golden.make_meanings``. Existing files never change.

texts.json    for each case of tests/support/golden/meaning_cases.py, the stored texts of its plan
location/     a checkpoint location with the state of the case ``windows``
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import penstock
from tests.integration.snapshots.test_changed_meaning import MEANINGS, meanings
from tests.support.golden.meaning_cases import CASES, NEW_YORK, WINDOW, ZONE, windowed
from tests.support.queries.query_running import Inbox


def main() -> int:
    if MEANINGS.exists():
        print(f"{MEANINGS} is there, and what is there is never made again", file=sys.stderr)
        return 1
    MEANINGS.mkdir()
    spark = penstock.session(conf={"spark.ui.enabled": "false", ZONE: NEW_YORK})
    with tempfile.TemporaryDirectory() as name:
        inbox = Inbox(Path(name) / "in")
        texts = {case: meanings(CASES[case].build(inbox.stream(spark)), CASES[case].mode) for case in CASES}
        (MEANINGS / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
        inbox.add([(1, 10, 1.0), (1, 20, 2.0), (2, 2, 3.0)])
        df = windowed(WINDOW, "key")(inbox.stream(spark)).select("key", "total")
        options = {"checkpointLocation": str(MEANINGS / "location"), "path": f"{name}/out", "parallelism": "1"}
        query = penstock.writeStream(df).options(**options).start()
        query.processAllAvailable()
        query.stop(snapshot=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
