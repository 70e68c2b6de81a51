"""Task that starts the slots of one generation."""

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
    """All data that a slot needs to register. The launcher pickles it with cloudpickle; it is never stored.

    Attributes:
        control_host, control_port: address of the driver's control socket.
        location: the shared checkpoint location.
        tls: credentials of the links, if they are encrypted.
        log_level: level of the lines that slots write to the stderr of their process; by default the driver's.
        first_epoch: the lowest epoch of this generation.
        fences: see ``GenerationReady``.
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
