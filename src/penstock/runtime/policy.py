"""What a query's options say about its checkpoints."""

from __future__ import annotations

from penstock.config import Options
from penstock.protocol import coordinator_types as ct


def policy_of(options: Options) -> ct.Policy:
    """The coordinator's policy."""
    return ct.Policy(
        interval_ms=options.checkpoint_interval_ms,
        timeout_ms=options.checkpoint_timeout_ms,
        alignment=options.checkpoint_alignment,
        alignment_timeout_ms=options.checkpoint_alignment_timeout_ms,
        min_pause_ms=options.checkpoint_min_pause_ms,
        max_concurrent=options.checkpoint_max_concurrent,
        tolerable_failures=options.checkpoint_tolerable_failures,
    )
