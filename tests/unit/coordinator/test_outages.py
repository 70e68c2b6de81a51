"""Ends of outages: which events end the outage of what."""

from __future__ import annotations

from pathlib import Path

from penstock.coordinator.commands import CheckLocation, LocationChecked
from penstock.coordinator.machines.restarts import RestartPolicy, Retries
from penstock.coordinator.metrics import QueryMetrics
from penstock.coordinator.outages import Outages
from tests.support.dataflow.tiny import Numbers, tiny_graph


def test_a_checkpoint_that_completes_ends_the_outage_of_the_location_before_the_next_check(tmp_path: Path) -> None:
    figures = QueryMetrics(tiny_graph(tmp_path, 1, Numbers(10)), "q", "run", None)
    retries = Retries(RestartPolicy(attempts=1, delay_ms=1000, max_delay_ms=1000))
    outages = Outages(figures, retries)
    outages.checkpoint_failed(2, "its metadata cannot be written")
    outages.executed(CheckLocation(), LocationChecked("the location is gone"), 100.0)
    assert [outage.what for outage in figures.view().outages] == ["checkpoints", "the checkpoint location"]
    assert not outages.location_due(1099.0)
    outages.checkpoint_completed(0)
    assert figures.view().outages == ()
    assert retries.failures == 0, "a later outage has all its retries"
    assert not outages.location_due(1101.0), "the checkpoint has shown that the location is there"
