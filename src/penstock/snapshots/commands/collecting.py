"""``gc``: remove the files that nothing refers to, such as a crash leaves."""

from __future__ import annotations

from penstock.snapshots.commands.owned import Owned, bytes_of
from penstock.snapshots.commands.requests import Answer
from penstock.snapshots.retention import find_orphans


def collect_orphans(owned: Owned, dry_run: bool) -> Answer:
    """Remove orphans, or only tell of them.

    Raises:
        CorruptSnapshot: the references of a snapshot cannot be read, so nothing can be called an orphan.
        OSError: the store fails; what is left the next collection finds.
    """
    found = find_orphans(owned.store, owned.view, owned.catalog, owned.in_flight, owned.kept)
    answer = Answer(files=len(found), bytes=bytes_of(owned.store, found))
    if not dry_run:
        owned.store.delete_all(found)
    return answer
