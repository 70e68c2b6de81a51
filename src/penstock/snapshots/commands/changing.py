"""What changes a location without its query: carried out by the driver that owns it, or by whoever takes it over."""

from __future__ import annotations

from typing import assert_never

from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.collecting import collect_orphans
from penstock.snapshots.commands.deleting import delete_snapshots
from penstock.snapshots.commands.labelling import label_snapshot
from penstock.snapshots.commands.owned import Owned


def carry_out(owned: Owned, change: rq.Change) -> rq.Answer:
    """Errors are the verb's. What can be done twice is done again."""
    match change:
        case rq.Delete():
            return delete_snapshots(owned, change.checkpoints)
        case rq.Collect():
            return collect_orphans(owned, change.dry_run)
        case rq.Label():
            return label_snapshot(owned, change)
        case _:
            assert_never(change)
