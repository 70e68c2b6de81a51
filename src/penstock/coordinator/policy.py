"""Policies for checkpoints, restarts and scaling from the options of a query."""

from __future__ import annotations

from penstock.config import Options
from penstock.coordinator.machines.checkpoint_events import CheckpointPolicy
from penstock.coordinator.machines.restarts import RestartPolicy
from penstock.coordinator.machines.scaling import Scaling
from penstock.model.job_graph import JobGraph


def policy_of(options: Options) -> CheckpointPolicy:
    """Return the policy of the checkpoint coordinator."""
    return CheckpointPolicy(
        interval_ms=options.checkpoint_interval_ms,
        timeout_ms=options.checkpoint_timeout_ms,
        alignment=options.checkpoint_alignment,
        alignment_timeout_ms=options.checkpoint_alignment_timeout_ms,
        min_pause_ms=options.checkpoint_min_pause_ms,
        max_concurrent=options.checkpoint_max_concurrent,
        tolerable_failures=options.checkpoint_tolerable_failures,
        commit_retries=restart_policy_of(options),
        commit_timeout_ms=options.sink_retry_timeout_ms,
    )


def restart_policy_of(options: Options) -> RestartPolicy:
    """Return the bounds of the restart strategy."""
    return RestartPolicy(
        attempts=options.restart_attempts,
        delay_ms=options.restart_delay_ms,
        max_delay_ms=options.restart_max_delay_ms,
        strategy=options.restart_strategy,
        jitter=options.restart_jitter,
        interval_ms=options.restart_interval_ms,
    )


def scaling_of(options: Options, graph: JobGraph) -> Scaling:
    """Return the state machine for the scaling of a query."""
    return Scaling(
        graph.parallelism,
        graph.max_parallelism,
        may_shrink=options.restart_allow_scale_down,
        patience_ms=options.restart_scale_down_after_ms,
    )
