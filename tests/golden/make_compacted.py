"""Makes the golden location with a compacted log: ``python -m tests.golden.make_compacted``, once per format of a log.

    tests/golden/compacted/<n>/location/    a location of the driver in ``snapshot_kit``, most of whose log is removed
    tests/golden/compacted/<n>.json         its newest checkpoint, the committed epoch, and every position that it had

**Existing folders never change**: an earlier release wrote them.
"""

from __future__ import annotations

import json
import secrets
import sys

from penstock.snapshots.location import claim_identity, identity_of
from penstock.snapshots.store.store import LocalStore
from tests.support.places import GOLDEN
from tests.support.snapshots.snapshot_kit import Driver, Target

LOG_VERSION = 3


def main() -> int:
    target = GOLDEN / "compacted" / str(LOG_VERSION)
    if target.exists():
        print(f"{target} is there, and what is there is never made again", file=sys.stderr)
        return 1
    store = LocalStore(target / "location")
    store.prepare()
    positions = []
    for name in ("first", "second"):
        driver = Driver(store, Target(), name, summary_every=4)
        driver.effects._log._token = lambda: secrets.token_hex(16)
        claim_identity(store, identity_of(driver.graph, "query-1"))
        driver.start()
        for _ in range(10):
            driver.checkpoint()
            positions.append(driver.effects._log.position)
        driver.effects.close(driver.core.coordinator.committed_epoch, driver.core.coordinator.next_checkpoint)
    view = driver.effects.view
    said = {
        "checkpoint": view.lineage[-1].checkpoint,
        "committed_epoch": view.committed_epoch,
        "positions": [[position.seq, position.token] for position in positions],
    }
    (GOLDEN / "compacted" / f"{LOG_VERSION}.json").write_text(json.dumps(said) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
