"""Makes tests/golden/meanings, once: ``python tests/golden/make_meanings.py``. Existing files never change.

texts.json    for each case of tests/query/meaning_cases.py, the stored texts of its plan
location/     a checkpoint location with the state of the case ``windows``
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "query"))

from meaning_cases import CASES, NEW_YORK, WINDOW, ZONE, windowed  # noqa: E402
from query_running import Inbox  # noqa: E402
from test_changed_meaning import GOLDEN, meanings  # noqa: E402

import penstock  # noqa: E402


def main() -> int:
    if GOLDEN.exists():
        print(f"{GOLDEN} is there, and what is there is never made again", file=sys.stderr)
        return 1
    GOLDEN.mkdir()
    spark = penstock.session(conf={"spark.ui.enabled": "false", ZONE: NEW_YORK})
    with tempfile.TemporaryDirectory() as name:
        inbox = Inbox(Path(name) / "in")
        texts = {case: meanings(CASES[case].build(inbox.stream(spark)), CASES[case].mode) for case in CASES}
        (GOLDEN / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")
        inbox.add([(1, 10, 1.0), (1, 20, 2.0), (2, 2, 3.0)])
        df = windowed(WINDOW, "key")(inbox.stream(spark)).select("key", "total")
        options = {"checkpointLocation": str(GOLDEN / "location"), "path": f"{name}/out", "parallelism": "1"}
        query = penstock.writeStream(df).options(**options).start()
        query.processAllAvailable()
        query.stop(snapshot=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
