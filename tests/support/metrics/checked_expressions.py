"""Check of every PromQL expression in the repository: its metrics exist, with these labels, and have the right type."""

from __future__ import annotations

from penstock.rest.metric_kinds import Kind, MetricSpec
from penstock.rest.metric_list import METRICS
from tests.support.metrics.promql import OVER_TIME, read

SERIES: dict[str, MetricSpec] = {name: spec for spec in METRICS for name in spec.series}
SCRAPED = {"job", "instance"}
"""Labels that Prometheus puts onto everything that it scrapes."""


def labels_of(series: str) -> set[str]:
    return {*SERIES[series].labels, *SCRAPED, *(["le"] if series.endswith("_bucket") else [])}


def complaints(text: str) -> list[str]:
    """Return the errors of an expression; empty if there are none."""
    found = []
    expression = read(text)
    unknown = [use.metric for use in expression.uses if use.metric not in SERIES]
    if unknown:
        return [f"there is no metric {name}" for name in unknown]
    for use in expression.uses:
        foreign = use.labels - labels_of(use.metric)
        if foreign:
            found.append(f"{use.metric} has no label {sorted(foreign)}")
        counts = SERIES[use.metric].kind is not Kind.GAUGE
        if counts and use.within not in ("rate", "increase"):
            found.append(f"{use.metric} is a counter: use rate or increase")
        if not counts and use.within in ("rate", "increase"):
            found.append(f"{use.metric} is a gauge: it has no {use.within}")
        if use.ranged != (use.within in OVER_TIME):
            found.append(f"{use.metric} {'has' if use.ranged else 'lacks'} a range")
    known = set().union(*(labels_of(use.metric) for use in expression.uses)) if expression.uses else set()
    if expression.grouped - known:
        found.append(f"nothing has the labels {sorted(expression.grouped - known)}")
    return found


def result_labels(text: str) -> set[str]:
    """The labels that the series of the result may have."""
    expression = read(text)
    if expression.grouped:
        return expression.grouped
    return set().union(*(labels_of(use.metric) for use in expression.uses))
