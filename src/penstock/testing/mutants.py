"""Ways to break the code on purpose. The simulator is worth something only if it kills every one of them.

Each mutant passes the calm schedules (no faults, no pressure: or any test would do) and is killed by random ones.
``python -m penstock.testing.simulate --mutants`` checks both and prints which oracle caught which mutant.
"""

from __future__ import annotations

from penstock.testing.mutants_alignment import ALIGNMENT
from penstock.testing.mutants_batches import BATCHES
from penstock.testing.mutants_channels import CHANNELS
from penstock.testing.mutants_commits import COMMITS
from penstock.testing.mutants_drains import DRAINS
from penstock.testing.mutants_edits import EDITS
from penstock.testing.mutants_ends import ENDS
from penstock.testing.mutants_event_time import EVENT_TIME
from penstock.testing.mutants_forward import FORWARD
from penstock.testing.mutants_recovery import RECOVERY
from penstock.testing.mutants_requests import REQUESTS
from penstock.testing.mutants_rescale import RESCALE
from penstock.testing.mutants_snapshots import SNAPSHOTS
from penstock.testing.mutants_sources import SOURCES

AREAS = {
    "barriers": ALIGNMENT,
    "channels": CHANNELS,
    "forward edges": FORWARD,
    "recovery": RECOVERY,
    "rescaling": RESCALE,
    "epochs": COMMITS,
    "batch ids": BATCHES,
    "snapshots": SNAPSHOTS,
    "sources": SOURCES,
    "event time": EVENT_TIME,
    "ends": ENDS,
    "requests": REQUESTS,
    "in-flight drains": DRAINS,
    "edited jobs": EDITS,
}

MUTANTS = {name: mutant for area in AREAS.values() for name, mutant in area.items()}
