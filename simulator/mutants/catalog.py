"""Ways to break the code on purpose. The simulator is worth something only if it kills every one of them.

Each mutant passes the calm schedules (no faults, no pressure: or any test would do) and is killed by random ones.
``python -m simulator --mutants`` checks both and prints which oracle caught which mutant.
"""

from __future__ import annotations

from simulator.mutants.alignment import ALIGNMENT
from simulator.mutants.batches import BATCHES
from simulator.mutants.channels import CHANNELS
from simulator.mutants.commits import COMMITS
from simulator.mutants.drains import DRAINS
from simulator.mutants.edits import EDITS
from simulator.mutants.ends import ENDS
from simulator.mutants.event_time import EVENT_TIME
from simulator.mutants.forward import FORWARD
from simulator.mutants.recovery import RECOVERY
from simulator.mutants.requests import REQUESTS
from simulator.mutants.rescale import RESCALE
from simulator.mutants.snapshots import SNAPSHOTS
from simulator.mutants.sources import SOURCES

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
