"""What the slots of one Generation are started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.config import Options
from penstock.logs import effective_level
from penstock.model.job_graph import JobGraph
from penstock.network.secret import Secret
from penstock.network.tls import Credentials


@dataclass(frozen=True)
class SlotTask:
    """What every slot of one Generation is started with. Serialised with cloudpickle by the launcher, never stored.

    ``control_host``/``control_port``: where the driver listens. ``location``: the shared checkpoint location.
    ``tls``: of its links, if they are encrypted. ``first_epoch``: the lowest of this Generation's. ``fences``: see
    ``GenerationReady``. ``log_level``: of
    the slots' log lines, which go to their process's stderr; the driver's.
    """

    query_id: str
    name: str
    generation: int
    graph: JobGraph
    options: Options
    location: str
    control_host: str
    control_port: int
    secret: Secret
    tls: Credentials | None = None
    log_level: int = field(default_factory=effective_level)
    first_epoch: int = 1
    fences: Mapping[str, str] = field(default_factory=dict)
