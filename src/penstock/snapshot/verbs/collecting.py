"""``gc``: remove the files that nothing refers to, such as a crash leaves."""

from __future__ import annotations

from penstock.snapshot.collect import find_orphans
from penstock.snapshot.verbs.owned import Owned, bytes_of
from penstock.snapshot.verbs.requests import Answer


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
